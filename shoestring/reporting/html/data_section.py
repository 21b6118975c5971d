"""The report's section on the data that a run reads, from the sample that was read before it started."""

from __future__ import annotations

from shoestring.reporting.data_text import left_out_lines, page_tables, problems, summary_lines
from shoestring.reporting.html.markup import Html, table, tag, text
from shoestring.reporting.number_text import as_sentence
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


def _html_table(found: TextTable) -> Html:
    first, *others = found.header
    heads = [(first, "name"), *((name, "n" if name in found.right else "") for name in others)]
    note = f", {found.note}" if found.note else ""
    return table(as_sentence(f"{found.caption}{note}, in a sample"), heads, found.rows, class_="stack")
