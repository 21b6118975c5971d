"""The report as its reader finds it: quality first, nothing off a phone, one account of the dollars."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from recorded_run import RUN_ID
from run_stories import done, extended, on_argo, resumed
from test_html import EVERY, Story, html_of, page_of

from shoestring.core.money import usd
from shoestring.core.types import Market
from shoestring.evaluation.results import SealedOpening
from shoestring.reporting.html.page import page
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.terminal_text import verdict_text
from shoestring.routing.analysis.hindsight import CounterfactualOffer, Hindsight


def test_quality_comes_first(tmp_path: Path) -> None:
    html = html_of(done, tmp_path)
    assert re.findall(r"<dt>(.*?)</dt>", html)[0] == "Quality on the sealed test split"
    assert re.findall(r'<a href="#(.*?)">', html)[:2] == ["quality", "loss"]


def test_quality_names_the_units_of_the_split(tmp_path: Path) -> None:
    story = read_run_story(done(tmp_path).store, RUN_ID)
    assert story.evaluation is not None
    opening = SealedOpening(number=2, units=143, unit="distinct rows")
    evaluation = story.evaluation.model_copy(update={"opening": opening, "unit_count": 143})
    html = page(replace(story, evaluation=evaluation))
    assert "the 2nd evaluation on these 143 distinct rows" in html
    assert "Intervals by bootstrap over 143 distinct rows, 1,000 times" in html


@EVERY
def test_every_class_on_the_page_has_a_style(story: Story, tmp_path: Path) -> None:
    style = files("shoestring.reporting.html").joinpath("report.css").read_text()
    styled = set(re.findall(r"\.([a-z][\w-]*)", style))
    used = {name for names in page_of(story, tmp_path).values_of("class") for name in names.split()}
    # These name what an element is, for a reader of the source; the parents' styles are enough.
    assert used - styled <= {"name", "waiting", "running", "axis", "band", "band-name", "stages"}


@EVERY
def test_every_table_is_laid_out_in_lines_on_a_phone(story: Story, tmp_path: Path) -> None:
    tables = [attributes for name, attributes in page_of(story, tmp_path).tags if name == "table"]
    assert [each for each in tables if "stack" not in each.get("class", "")] == []


@EVERY
def test_no_cell_says_that_a_value_is_not_known(story: Story, tmp_path: Path) -> None:
    assert not re.search(r"unknown|not known", page_of(story, tmp_path).text)


def test_dollars_that_were_not_used_are_told_once_and_the_same_everywhere(tmp_path: Path) -> None:
    for story in (done, resumed):
        run = story(tmp_path / story.__name__)
        found = read_run_story(run.store, RUN_ID)
        page = page_of(story, tmp_path / f"{story.__name__}-page")
        left = f"${found.budget_usd - found.spent_usd:.6f}"
        assert f"; {left} not used" in page.text
        assert page.text.count(left) == 2, "in the headline and in the ledger"
        assert not re.search(r"released|Released|handed back|returned", page.text)


def test_the_time_of_the_engine_is_a_row_of_the_stages(tmp_path: Path) -> None:
    engine = "Engine between the stages, 45.0 s planned 2.40 s Whole run"
    assert engine in page_of(on_argo, tmp_path / "argo").text
    assert "between the stages" not in page_of(done, tmp_path / "done").text


def test_a_raised_budget_is_on_the_row_of_its_stage(tmp_path: Path) -> None:
    text = page_of(extended, tmp_path).text
    assert "$0.000128 raised by $0.000040" in text


def offer(pool: str, total_usd: str, **which: bool) -> CounterfactualOffer:
    amounts = {"expected_usd": total_usd, "stage_usd": total_usd, "total_usd": total_usd}
    times = {"stage_s": 10.0, "total_s": 10.0}
    marks = {"selected": False, "best": False, **which}
    return CounterfactualOffer.model_validate(
        {"pool": pool, "market": Market.ON_DEMAND, "format": None, **amounts, **times, **marks}
    )


@pytest.mark.parametrize(
    ("regret", "saved", "cause", "verdict"),
    [
        ("0", "0", "", "would have cost the same and been 4.00 s faster"),
        (
            "0.000002",
            "0.000002",
            "price",
            "saved $0.000002 and been 4.00 s faster: the price",
        ),
        ("0.000002", "0", "work", "saved $0.000002 and been 4.00 s faster: no single estimate explains it"),
        (
            "-0.000003",
            "0",
            "",
            "cost $0.000003 more and been 4.00 s faster, which the deadline",
        ),
    ],
)
def test_the_sentence_about_a_choice_agrees_with_its_row(
    regret: str, saved: str, cause: str, verdict: str
) -> None:
    offers = (offer("b", "0.00001", best=True), offer("a", "0.00001", selected=True))
    found = Hindsight.model_construct(
        paid_usd=usd("0.00001"),
        regret_usd=usd(regret),
        regret_s=4.0,
        saved_by_knowing={cause or "work": usd(saved)},
        main_cause=cause,
        offers=offers,
    )
    assert verdict in verdict_text(found)
    best = found.model_copy(update={"offers": (offer("a", "0.00001", best=True, selected=True),)})
    assert verdict_text(best) == "no alternative was cheaper"
