"""Where a table may come from, and what is refused before a server is asked."""

import pytest
from pydantic import ValidationError

from shoestring.core.errors import RecipeError
from shoestring.data.recipe import Recipe
from shoestring.data.source import Source
from shoestring.data.sources.files import estimate_size


@pytest.mark.parametrize(
    "url",
    [
        "s3://b",
        "s3://b/",
        "s3://b/a/",
        "s3://b/a b/c.csv",
        "gs://b/...",
        "https://h:8443/x%20y.csv",
        "http://h/x",
    ],
)
def test_a_url_is_taken_as_it_is_written(url: str) -> None:
    assert Source(url=url).url == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///data/x.csv", "write it as s3://BUCKET/KEY"),
        ("s3://", "write it as s3://BUCKET/KEY"),
        ("https://h:99999/x.csv", "Port out of range"),
        ("https://name:word@h/x.csv", "it may hold a credential.*a run stores its recipe"),
        ("https://h/x.csv?signature=1", "it may hold a credential.*name its `path`"),
        ("https://h/x y.csv", "write spaces as %20"),
        ("s3://b/../x.csv", "a key with an empty part, `.` or `..` cannot be read"),
        ("gs://b//x.csv", "a key with an empty part, `.` or `..` cannot be read"),
    ],
)
def test_a_url_that_cannot_be_read_or_stored_is_refused(url: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Source(url=url)


def test_a_source_without_a_url_is_stored_as_before() -> None:
    assert '"url"' not in Source.model_validate({"path": "rows.csv"}).model_dump_json()


def test_a_world_that_reads_no_servers_refuses_a_url() -> None:
    recipe = Recipe.model_validate(
        {"name": "mine", "source": {"rows": {"url": "s3://b/x.csv"}}, "target": {"column": "y"}}
    )
    with pytest.raises(RecipeError, match=r"s3://b/x.csv cannot be read here: name a `path`"):
        estimate_size(recipe)
