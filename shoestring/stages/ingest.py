"""The ingest stage: it reads raw files into typed tables of the store."""

from __future__ import annotations

import pyarrow as pa
from pydantic import JsonValue

from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.part_writer import REUSING
from shoestring.data.transforms import ingest
from shoestring.stages.work import StageProgress, Work

# Measured on 336,776 flights of 92 bytes of text: 1.1 s of imports in two processes (supervisor and child),
# then 0.4 to 0.6 s of CPU with writing, and 340 MB of memory; 650 MB with ten times the rows, since the size
# of a part is bounded. A second core changed neither: Arrow numbers bad rows only when it reads in one
# thread. Where the size of the tables is known, `data/needs/table_needs.py` computes the cost of a row.
NEED = Need(stage="ingest", setup_s=1.5, cpu_us_per_row=1.4, writes_bytes_per_row=160, memory_fixed_gb=0.7)


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """Return the settings that the result depends on. The run's seed is not one of them."""
    return ingest.settings(recipe)


def run(work: Work) -> StageOutcome:
    """Ingest the recipe's sources. Raises RecipeError, DataError, StoreFull, StageStopped."""
    if work.format is None:
        raise StageFailed(f"{work.stage} writes a data set, but its decision names no format")
    pa.set_cpu_count(work.cores)
    pa.set_io_thread_count(work.cores)

    reused_rows = 0

    def report(table: str, rows: int) -> None:
        nonlocal reused_rows
        if table == REUSING:
            reused_rows = rows
        phase = table if table == REUSING else f"reading {table}"
        work.report_progress(StageProgress(phase=phase, samples=rows))
        if work.should_stop():
            raise StageStopped(f"at {rows} rows")

    key, manifest = ingest.ingest(
        work.recipe, work.format, work.store, work.scratch, report, work.storage_class, work.remote
    )
    rejected = float(sum(manifest.quarantined.values()))
    return StageOutcome(
        key=key, rows=manifest.rows, reused_rows=reused_rows, metrics={"quarantined_rows": rejected}
    )
