"""The data page as text: for a terminal with colours, or plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

from rich.table import Table

from shoestring.core.datasets import Manifest
from shoestring.core.text import shown_line
from shoestring.data.inspect.page_records import DataPage, FileEntry, ImageEntry, TargetEntry, TextEntry
from shoestring.data.sources.text.lost_classes import class_losses
from shoestring.reporting.number_text import count, percent, quantity, size
from shoestring.reporting.terminal.output import TerminalConsole
from shoestring.routing.text_table import TextTable, shown_table, text_lines

MAX_FILES_SHOWN = 10
"""The files that are listed; the JSON has all."""

MAX_REASONS_SHOWN = 5
"""The reasons that are named, of those for which most rows were left out."""

KEPT_TOGETHER = {
    "": "",
    "rows": "; each row is assigned by itself",
    "distinct rows": "; rows that are equal but for target, weight and leaks stay together",
}


def print_page(page: DataPage, out: TextIO) -> None:
    """Print the data page on `out`, with colours if it is a terminal."""
    if not out.isatty():
        out.write("\n".join(map(shown_line, plain_lines(page))) + "\n")
        return
    console = TerminalConsole(out)
    for line in summary_lines(page):
        console.print(shown_line(line))
    for table in page_tables(page):
        console.print(_rich_table(shown_table(table)))
    for sentence in problems(page):
        console.print(shown_line(sentence), style="yellow")


def plain_lines(page: DataPage) -> list[str]:
    """Return the data page as lines of text."""
    lines = summary_lines(page)
    for table in page_tables(page):
        lines += ["", *text_lines(table)]
    return [*lines, "", *problems(page)]


def summary_lines(page: DataPage) -> list[str]:
    """Return the rows, the splits and what will be predicted, a line each."""
    if page.texts is not None:
        return [*_text_lines(page, page.texts), page.prediction, *page.remarks]
    rows = quantity(page.rows, "row") if page.is_whole else f"about {quantity(page.rows, 'row')}"
    parts = "all read" if page.is_whole else f"{count(page.rows_read)} of them read"
    of = f" ({page.sample})" if page.sample else ""
    aside = f" ({_reasons(page.lost)})" if page.lost else ""
    lines = [
        f"{page.recipe}: {rows}, {parts}{of}; {count(page.without_target)} without a target, "
        f"{count(page.misfits)} set aside{aside}, {quantity(page.unread, 'value')} not of the type of their "
        "column"
    ]
    expected = "" if page.is_whole else " (expected)"
    splits = ", ".join(f"{name} {count(rows)}" for name, rows in page.splits.items())
    together = KEPT_TOGETHER.get(page.unit, f"; {page.unit} stay together")
    lines.append(f"rows with a target by split{expected}: {splits}{together}")
    if page.images is not None:
        lines.append(_images_line(page.images))
    return [*lines, *([page.prediction] if page.prediction else ()), *page.remarks]


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {count(rows)}" for reason, rows in _most(counts))


def _text_lines(page: DataPage, texts: TextEntry) -> list[str]:
    about = "" if page.is_whole else "about "
    parts = "all read" if page.is_whole else f"{count(page.rows_read)} of them read"
    unusable = "".join(f"; {count(number)} set aside: {reason}" for reason, number in texts.unusable.items())
    empty = f"; {count(page.without_target)} empty" if page.without_target else ""
    splits = ", ".join(f"{name} {count(number)}" for name, number in page.splits.items())
    tokens = "a byte each" if texts.vocabulary is None else f"of a vocabulary of {count(texts.vocabulary)}"
    return [
        f"{page.recipe}: {about}{quantity(texts.documents, 'document')} in {quantity(texts.files, 'file')}, "
        f"{parts}{empty}{unusable}",
        f"documents by split{'' if page.is_whole else ' (expected)'}: {splits}",
        f"text: {about}{quantity(texts.size_bytes, 'byte')} of {texts.encoding}; "
        f"about {quantity(page.rows, 'row')} of {count(texts.row_tokens)} tokens, {tokens}",
    ]


def _images_line(images: ImageEntry) -> str:
    channels, height, width = images.shape
    sizes = ", ".join(f"{size} ({count(number)})" for size, number in images.sizes.items())
    unusable = "".join(f"; {count(number)} set aside: {reason}" for reason, number in images.unusable.items())
    return (
        f"images: stored as {height} x {width}, {quantity(channels, 'channel')}; "
        f"of {count(images.looked_at)} looked at: {sizes or 'none can be used'}{unusable}"
    )


def problems(page: DataPage) -> list[str]:
    """Return what looks wrong, a sentence each."""
    found = [f"warning: {each}" for each in page.sentences]
    refused = [f"a run is refused: {page.refusal}"] if page.refusal else []
    return [*refused, *found] or ["nothing looks wrong"]


def left_out_lines(data_sets: Sequence[Manifest]) -> list[str]:
    """Return how many rows ingest and preprocess left out of these data sets, with the reasons, and the
    classes that lost more of them than the others."""
    lines = []
    set_aside = sum(sum(data.quarantined.values()) for data in data_sets if data.encoding is None)
    for data in data_sets:
        if found := sorted(data.quarantined.items(), key=lambda item: -item[1]):
            reasons = ", ".join(f"{reason} ({count(rows)})" for reason, rows in found[:MAX_REASONS_SHOWN])
            more = (
                f", and {len(found) - MAX_REASONS_SHOWN} more reasons"
                if len(found) > MAX_REASONS_SHOWN
                else ""
            )
            stage = "ingest" if data.encoding is None else "preprocess"
            left_out = quantity(sum(data.quarantined.values()), "row")
            lines.append(f"{left_out} left out by {stage}: {reasons}{more}")
        if data.unread:
            reasons = ", ".join(f"{reason} ({count(cells)})" for reason, cells in _most(data.unread))
            lines.append(f"{quantity(sum(data.unread.values()), 'value')} read as missing: {reasons}")
        if data.lost_classes and data.encoding is not None:
            # The shares of train are those of all rows, as far as the splits are alike.
            shares = zip(data.encoding.classes, data.encoding.train_prior, strict=True)
            kept = {label: share * data.rows for label, share in shares}
            lines += [f"warning: {each}" for each in class_losses(data.lost_classes, kept, set_aside)]
    return lines


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: -item[1])[:MAX_REASONS_SHOWN]


def page_tables(page: DataPage) -> list[TextTable]:
    """Return the table of the columns, and that of the target's distribution; none of texts."""
    if page.texts is not None:
        return []
    several = len({each.table for each in page.columns}) > 1
    header = ("column", *(("table",) if several else ()), "read as", "used as", "values", "missing", "why")
    rows = [
        (
            each.name,
            *((each.table,) if several else ()),
            each.type,
            each.use,
            count(each.values),
            percent(each.missing / page.rows_read),
            each.reason,
        )
        for each in page.columns
    ]
    tables = [TextTable("Columns", header, rows, frozenset({"values", "missing"}))]
    tables += [_target_table(page.target)] if page.target else []
    return [*tables, _files_table(page.listed)] if page.listed else tables


def _files_table(files: Sequence[FileEntry]) -> TextTable:
    rows = [
        (each.table, each.name, size(each.size_bytes), "" if each.rows is None else count(each.rows))
        for each in files[:MAX_FILES_SHOWN]
    ]
    more = len(files) - len(rows)
    note = f"and {count(more)} more: {count(len(files))} in all; --json lists them" if more else ""
    return TextTable("Files", ("table", "file", "size", "rows"), rows, frozenset({"size", "rows"}), note)


def _target_table(target: TargetEntry) -> TextTable:
    if target.quantiles:
        quantiles = [(name, f"{value:,.6g}") for name, value in target.quantiles.items()]
        return TextTable(f"Target {target.column}", ("quantile", "value"), quantiles, frozenset({"value"}))
    rows = [(each.name, percent(each.share)) for each in target.classes]
    more = target.class_count - len(rows)
    note = f"and {count(more)} smaller ones" if more > 0 else ""
    return TextTable(f"Target {target.column}", ("class", "share of rows"), rows, frozenset(), note)


def _rich_table(table: TextTable) -> Table:
    grid = Table(title=table.caption, title_justify="left", box=None, pad_edge=False, caption=table.note)
    for name in table.header:
        is_last = name == table.header[-1]
        grid.add_column(name, justify="right" if name in table.right else "left", no_wrap=not is_last)
    for row in table.rows:
        grid.add_row(*row, style="dim" if "not used" in row else None)
    return grid
