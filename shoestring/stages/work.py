"""What a stage is given: the seams it asks for and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from shoestring.data.recipe import Recipe
from shoestring.model import Format, Noun
from shoestring.seams import Clock, Store
from shoestring.spending.meter import Meter


class Progress(Noun):
    """What a stage says of itself while it runs; the frame puts it into the heartbeat."""

    phase: str = ""
    samples: int = 0
    total: int | None = None
    quality: dict[str, float] = Field({}, description="metric -> the last value")


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt at a stage. `inputs` maps names to keys in the store; `stopping()` turns true when a TERM came."""

    run_id: str
    stage: str
    attempt: int
    seed: int
    inputs: Mapping[str, str]
    recipe: Recipe
    format: Format | None
    cores: int
    store: Store
    meter: Meter
    clock: Clock
    scratch: Path
    progress: Callable[[Progress], None]
    stopping: Callable[[], bool]
