"""The classes of the rows that ingest would quarantine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shoestring.data.inspect.columns import SampleTarget
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.sources.text.lost_classes import class_losses, lost_classes


def losing_classes(table: str, sample: TableSample, target: SampleTarget | None) -> Iterator[str]:
    """Yield a sentence for each class that loses far more rows of a table that was read whole."""
    if sample.whole is None or target is None or not target.classes:
        return
    counts = np.bincount(target.codes[target.known], minlength=len(target.classes)).tolist()
    lines, columns = sample.whole.lines.splitlines(), sample.table.names
    lost = lost_classes(lines, table, columns, target.name, target.classes)
    yield from class_losses(lost, dict(zip(target.classes, counts, strict=True)), sample.misfits)
