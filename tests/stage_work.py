"""The work of a stage of a recipe that runs in the process of a test or a bench, without a ledger."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.core.types import Format
from shoestring.data.recipe import Recipe
from shoestring.spending.meter import Meter
from shoestring.stages.work import Work

USD_PER_HOUR = Decimal("0.04")


def stage_work(
    folder: Path,
    recipe: Recipe,
    stage: str,
    *,
    run_id: str = "one",
    seed: int = 0,
    limit_usd: str = "1",
    **inputs: str,
) -> Work:
    """Return the first attempt at a stage, on a core whose meter runs from now on.

    The store is `folder / "store"`. `inputs` are keys in it. $1, the default limit, is enough for 25 hours.
    """
    scratch, clock = folder / "scratch" / stage, WallClock()
    scratch.mkdir(parents=True, exist_ok=True)
    return Work(
        run_id=run_id,
        stage=stage,
        attempt=1,
        seed=seed,
        inputs=inputs,
        recipe=recipe,
        format=Format.PACKED,
        cores=1,
        store=FolderStore(folder / "store"),
        meter=Meter(USD_PER_HOUR, clock.monotonic_s(), Decimal(limit_usd), None),
        clock=clock,
        scratch=scratch,
        report_progress=lambda progress: None,
        should_stop=lambda: False,
    )
