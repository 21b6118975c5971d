"""The preprocess stage: it turns typed tables into encoded rows, in three splits."""

from __future__ import annotations

import pyarrow as pa
from pydantic import JsonValue

from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.part_writer import REUSING
from shoestring.data.transforms import preprocess
from shoestring.stages.work import StageProgress, Work

# Measured on 336,776 flights: 1.1 s of imports in two processes (supervisor and child), then 0.3 to 0.6 s of
# CPU by format, with reading and writing, and 330 MB of memory; 510 MB with ten times the rows, since the
# size of a part is bounded. A second core changed neither: the batches are processed one after another.
# Where the size of the tables is known, `data/needs/table_needs.py` computes the cost of a row.
NEED = Need(
    stage="preprocess",
    setup_s=1.5,
    cpu_us_per_row=1.0,
    reads="scan",
    writes_bytes_per_row=130,
    memory_fixed_gb=0.6,
)


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """Return the settings that the result depends on.

    Splits follow the recipe's seed, not the run's, so all runs have the same sealed test rows.
    """
    return preprocess.settings(recipe)


def run(work: Work) -> StageOutcome:
    """Preprocess the ingested tables. Raises RecipeError, DataError, StoreFull, StageStopped."""
    if work.format is None:
        raise StageFailed(f"{work.stage} writes a data set, but its decision names no format")
    pa.set_cpu_count(work.cores)
    pa.set_io_thread_count(work.cores)

    reused_rows = 0

    def report(phase: str, rows: int) -> None:
        nonlocal reused_rows
        if phase == REUSING:
            reused_rows = rows
        work.report_progress(StageProgress(phase=phase, samples=rows))
        if work.should_stop():
            raise StageStopped(f"at {rows} rows")

    key, manifest = preprocess.preprocess(
        work.recipe,
        work.inputs["data"],
        work.format,
        work.store,
        work.scratch,
        report,
        work.storage_class,
    )
    left_out = float(sum(manifest.quarantined.values()))
    return StageOutcome(
        key=key, rows=manifest.rows, reused_rows=reused_rows, metrics={"rows_left_out": left_out}
    )
