"""The report page, for every way a run can end."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from recorded_run import RUN_ID, STAGES, STALLED
from run_stories import (
    HOSTILE,
    STORIES,
    Story,
    done,
    failed,
    hostile,
    in_the_cloud,
    refused,
    resumed,
    running,
)

from shoestring.core.receipt import TimeShares
from shoestring.reporting.html.markup import VOID
from shoestring.reporting.html.page import page
from shoestring.reporting.run_reader import read_run_story
from shoestring.training.curve import NoiseScale, TrainingCurve

EVERY = pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)


class Page(HTMLParser):
    """A parser that checks that every element is closed in order, and records tags and words."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values_of(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


def page_of(story: Story, folder: Path) -> Page:
    return Page(html_of(story, folder))


def html_of(story: Story, folder: Path) -> str:
    return page(read_run_story(story(folder).store, RUN_ID))


@EVERY
def test_the_page_is_well_formed_and_its_references_resolve(story: Story, tmp_path: Path) -> None:
    page = page_of(story, tmp_path)
    ids = page.values_of("id")
    assert len(ids) == len(set(ids))
    wanted = {link.removeprefix("#") for link in page.values_of("href")} | {
        name for each in page.values_of("aria-labelledby") for name in each.split()
    }
    assert wanted <= set(ids)


@EVERY
def test_the_page_loads_nothing_external(story: Story, tmp_path: Path) -> None:
    page = page_of(story, tmp_path)
    assert {"script", "link", "img", "iframe", "object", "image", "use"} & {
        name for name, _ in page.tags
    } == set()
    assert page.values_of("src") == []
    assert all(link.startswith("#") for link in page.values_of("href"))
    style = files("shoestring.reporting.html").joinpath("report.css").read_text()
    assert not re.search(r"url\(|@import|http", style)


@EVERY
def test_every_table_has_a_caption_and_every_chart_a_name_and_a_description(
    story: Story, tmp_path: Path
) -> None:
    html = html_of(story, tmp_path)
    assert html.count("<table") == html.count("<caption>")
    for chart in re.findall(r"<svg[^>]*role=\"img\".*?</svg>", html, re.S):
        assert "<title" in chart
    for chart in re.findall(r"<svg[^>]*aria-labelledby.*?</svg>", html, re.S):
        assert "<desc" in chart


@EVERY
def test_no_number_on_the_page_is_malformed(story: Story, tmp_path: Path) -> None:
    html = html_of(story, tmp_path)
    assert not re.search(r"\bnan\b|\binf\b|None|\dE[+-]\d", html)


def test_every_stage_has_its_row_and_every_decision_its_reason(tmp_path: Path) -> None:
    run = done(tmp_path)
    story = read_run_story(run.store, RUN_ID)
    text = Page(page(story)).text
    for stage in STAGES:
        assert f"Offers for {stage}" in text
    for attempt in story.attempts:
        assert attempt.decision.choice is not None
        assert attempt.decision.choice.sentence[1:] in text
        assert all(refusal.sentence[1:] in text for refusal in attempt.decision.refusals)
        assert f"shoestring replay runs/{RUN_ID}/decisions/{attempt.key}.json" in text


def test_offers_beyond_the_first_eight_are_folded(tmp_path: Path) -> None:
    html = html_of(in_the_cloud, tmp_path)
    shown, _, rest = html.partition("<summary>The other 8 offers, and why they were rejected</summary>")
    assert shown.count("<caption>Offers for ingest: 16, the first 8</caption>") == 1
    assert "<caption>The other offers for ingest</caption>" in rest


def test_the_page_of_a_done_run_compares_quality_with_the_baselines(tmp_path: Path) -> None:
    text = page_of(done, tmp_path).text
    assert "0.4413 log loss 95% interval 0.4332 to 0.4494" in text
    assert "The model is better than class prior by 0.0599 log loss" in text
    assert "The model and gradient boosting are statistically tied" in text
    assert f"2,640,000 samples, 9.60 epochs, $0.000680: {STALLED}." in text


def test_the_page_shows_the_data_that_was_looked_at(tmp_path: Path) -> None:
    text = page_of(done, tmp_path).text
    assert "Warning: column x0: target recoded, of 400 rows; add it." in text
    assert "Flights: about 336,776 rows, 400 of them read; 7 without a target, 2 set aside" in text
    assert "x0 number numeric 9 10.0% a number" in text
    assert "maximum 1e+12" in text
    assert "read as" not in page_of(running, tmp_path / "older").text


def test_the_seconds_of_training_are_told_apart_from_what_its_stage_took(tmp_path: Path) -> None:
    """On two cores a loop of 1 s cannot take 4 CPU-seconds; its stage can."""
    story = read_run_story(done(tmp_path).store, RUN_ID)
    assert story.evaluation is not None
    assert "Its stage took" not in page(story)
    cost = {"training_s": 1.03, "training_cpu_s": 4.2, "training_usd": Decimal("0.0001")}
    text = " ".join(
        Page(page(replace(story, evaluation=story.evaluation.model_copy(update=cost)))).text.split()
    )
    assert "Training took 1.03 s. Its stage took 4.2 CPU-seconds and $0.000100, with its start" in text


def test_the_page_tells_where_the_time_of_the_training_went(tmp_path: Path) -> None:
    run = done(tmp_path)
    path = tmp_path / "runs" / RUN_ID / "curve.json"
    curve = TrainingCurve.model_validate_json(path.read_bytes())
    shares = TimeShares(read=0.02, decode=0.01, compute=0.97)
    run.put("curve.json", curve.model_copy(update={"time_shares": shares}))
    assert (
        "It computed for 97% of its time, and waited 2% for rows to be read and 1% for them to be decoded "
        "(bottleneck: compute)."
    ) in Page(page(read_run_story(run.store, RUN_ID))).text
    moved = TimeShares(read=0.02, decode=0.01, transfer=0.17, compute=0.8)
    run.put("curve.json", curve.model_copy(update={"time_shares": moved}))
    assert (
        "waited 2% for rows to be read, 1% for them to be decoded and 17% for them to be moved to the GPU "
        "(bottleneck: transfer)."
    ) in Page(page(read_run_story(run.store, RUN_ID))).text


@pytest.mark.parametrize(
    ("noise", "measured", "text"),
    [
        (NoiseScale(1234.0, 950.4, 1700.0, 64), 64, "is 1.23k rows (950 to 1.7k, from 64 steps)."),
        (NoiseScale(1234.0, 950.4, None, 64), 64, "is 1.23k rows (at least 950, from 64 steps)."),
        (None, 12, "12 steps measured the noise of its gradient: too few for its scale."),
    ],
)
def test_the_page_has_the_noise_scale(
    tmp_path: Path, noise: NoiseScale | None, measured: int, text: str
) -> None:
    run = done(tmp_path)
    curve = TrainingCurve.model_validate_json((tmp_path / "runs" / RUN_ID / "curve.json").read_bytes())
    run.put("curve.json", curve.model_copy(update={"noise": noise, "measured_steps": measured}))
    assert text in Page(page(read_run_story(run.store, RUN_ID))).text


def test_a_refused_run_shows_the_smallest_budget_and_the_command_for_it(tmp_path: Path) -> None:
    page = page_of(refused, tmp_path)
    too_small = "A budget of $0.000200 is too small: the smallest budget that is enough is $0.000518"
    assert f"{too_small}; nearest: cpu-" in page.text
    assert "shoestring run flights --budget 0.000518" in page.text
    assert "#stages" not in page.values_of("href")


def test_a_failed_run_shows_the_reason_and_how_to_resume(tmp_path: Path) -> None:
    text = page_of(failed, tmp_path).text
    assert "Preprocess failed: ArrowInvalid: column 'dep_time' has 3 values that are no time." in text
    assert f"shoestring run --resume {RUN_ID}" in text
    assert "train not reached" in text


def test_a_running_run_shows_its_reservations(tmp_path: Path) -> None:
    text = page_of(running, tmp_path).text
    assert "Open reservations" in text
    assert "train-1 $0.002131" in text
    assert "train running" in text


def test_a_resumed_run_shows_both_of_its_accounts(tmp_path: Path) -> None:
    text = page_of(resumed, tmp_path).text
    assert "started 2 times" in text
    assert f"{RUN_ID}.2 in 2026-11" in text


def test_record_contents_are_escaped(tmp_path: Path) -> None:
    html = html_of(hostile, tmp_path)
    assert "<script" not in html.lower()
    assert "<img" not in html.lower()
    assert html.count("</style>") == 1
    assert Page(html).text.count("<script>alert('x')</script>") >= 3
    assert HOSTILE not in html


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ink", ["ink", "muted", "accent"])
@pytest.mark.parametrize("paper", ["page", "panel"])
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_enough_contrast_in_both_colour_schemes(ink: str, paper: str, scheme: int) -> None:
    style = files("shoestring.reporting.html").joinpath("report.css").read_text()
    colours = dict(
        re.findall(r"--(\w+): (#[0-9a-f]{6});", style.split("@media (prefers-color-scheme: dark)")[scheme])
    )
    lighter, darker = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5
