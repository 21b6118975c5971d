"""Typed tables into encoded rows, in three splits."""

from __future__ import annotations

import pyarrow as pa
from pydantic import JsonValue

from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.cache import code_digest
from shoestring.data.transforms import preprocess
from shoestring.stages.work import Progress, Work

SHARED = True

# Measured on 336,776 flights: 1.1 s of imports in two processes (frame and stage), then 0.3 to 0.6 s of CPU by format, reading and writing
# included, and 330 MB; 510 MB on ten times the rows, as parts are bounded. A second core changed neither: one batch follows the other.
NEED = Need(
    stage="preprocess",
    setup_s=1.5,
    cpu_us_per_row=1.0,
    reads="scan",
    writes_bytes_per_row=90,
    memory_fixed_gb=0.6,
)


def code() -> str:
    """The digest of the code that computes this stage."""
    return code_digest(
        "data.columns",
        "data.encode",
        "data.formats",
        "data.join",
        "data.packed",
        "data.parts",
        "data.preprocess",
        "data.split",
        "data.target",
        "stages.preprocess",
    )


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """What else its result depends on. Splits follow the recipe's seed, not the run's: the sealed test rows stay the same in all runs."""
    return preprocess.settings(recipe)


def run(work: Work) -> StageOutcome:
    """Raises RecipeError, DataError, StoreFull, StageStopped."""
    if work.format is None:
        raise StageFailed(f"{work.stage} writes a data set, and was given no format for it")
    pa.set_cpu_count(work.cores)
    pa.set_io_thread_count(work.cores)

    def tell(phase: str, rows: int) -> None:
        work.progress(Progress(phase=phase, samples=rows))
        if work.stopping():
            raise StageStopped(f"at {rows} rows")

    key, manifest = preprocess.preprocess(
        work.recipe, work.inputs["data"], work.format, work.store, work.scratch, tell, work.storage_class
    )
    return StageOutcome(
        key=key, rows=manifest.rows, metrics={"rows_left_out": float(sum(manifest.quarantined.values()))}
    )
