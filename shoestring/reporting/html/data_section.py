"""The report's sections on the data that a run reads, from the sample that was read before it started, and on
the rows that it predicted."""

from __future__ import annotations

from shoestring.reporting.data_text import left_out_lines, page_tables, problems, summary_lines
from shoestring.reporting.html.markup import Html, table, tag, text
from shoestring.reporting.number_text import as_sentence, percent, quantity
from shoestring.reporting.run_story import RunStory
from shoestring.routing.text_table import TextTable


def data_section(story: RunStory) -> Html | None:
    """Return what looks wrong, the rows left out, the columns and the target; None for a run without a data
    page."""
    page = story.data
    if page is None:
        return None
    found = (*problems(page), *summary_lines(page), *left_out_lines(story.data_sets))
    lines = [tag("p", as_sentence(line)) for line in found]
    return text(*lines, *(_html_table(each) for each in page_tables(page)))


def predictions_section(story: RunStory) -> Html | None:
    """Return how many rows were predicted, by which model, and what it does not know of them; None for a run
    that predicts none."""
    found = story.predictions
    if found is None:
        return None
    what = f"{quantity(found.rows, 'row')} predicted with the model of run "
    first = tag("p", what, tag("code", found.model_run_id), ".")
    largest = sorted(found.unknown_shares.items(), key=lambda each: (-each[1], each[0]))
    shares = [(name, percent(share)) for name, share in largest]
    heads = (("column", "name"), ("unknown values", "n"))
    unknown = [table("Values that the model does not know", heads, shares)] if shares else []
    return text(first, *(tag("p", as_sentence(note)) for note in found.notes), *unknown)


def _html_table(found: TextTable) -> Html:
    first, *others = found.header
    heads = [(first, "name"), *((name, "n" if name in found.right else "") for name in others)]
    note = f", {found.note}" if found.note else ""
    return table(as_sentence(f"{found.caption}{note}, in a sample"), heads, found.rows, class_="stack")
