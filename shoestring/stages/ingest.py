"""Raw files into typed tables of the store."""

from __future__ import annotations

import pyarrow as pa
from pydantic import JsonValue

from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.cache import code_digest
from shoestring.data.transforms import ingest
from shoestring.stages.work import Progress, Work

SHARED = True

# Measured on 336,776 flights of 92 bytes of text: 1.1 s of imports in two processes (frame and stage), then 0.9 to 1.1 s of CPU, writing
# included, and 340 MB; 650 MB on ten times the rows, as parts are bounded. A second core changed neither: Arrow numbers bad rows only
# when it reads on one thread.
NEED = Need(stage="ingest", setup_s=1.5, cpu_us_per_row=2.4, writes_bytes_per_row=160, memory_fixed_gb=0.7)


def code() -> str:
    """The digest of the code that computes this stage."""
    return code_digest(
        "data.columns",
        "data.formats",
        "data.ingest",
        "data.kinds",
        "data.packed",
        "data.parquet",
        "data.parts",
        "data.quarantine",
        "data.sources",
        "data.text",
        "stages.ingest",
    )


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """What else its result depends on; not on the run's seed."""
    return ingest.settings(recipe)


def run(work: Work) -> StageOutcome:
    """Raises RecipeError, DataError, StoreFull, StageStopped."""
    if work.format is None:
        raise StageFailed(f"{work.stage} writes a data set, and was given no format for it")
    pa.set_cpu_count(work.cores)
    pa.set_io_thread_count(work.cores)

    def tell(table: str, rows: int) -> None:
        work.progress(Progress(phase=f"reading {table}", samples=rows))
        if work.stopping():
            raise StageStopped(f"at {rows} rows")

    key, manifest = ingest.ingest(work.recipe, work.format, work.store, work.scratch, tell, work.storage_class)
    return StageOutcome(
        key=key, rows=manifest.rows, metrics={"quarantined_rows": float(sum(manifest.quarantined.values()))}
    )
