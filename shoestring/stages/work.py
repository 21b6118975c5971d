"""What a stage is given: the seams it asks for and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, JsonValue

from shoestring.config.policy import Policy
from shoestring.core.interfaces import Clock, Store
from shoestring.core.receipt import AdaptationChange, SpendForecast
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.recipe import Recipe
from shoestring.spending.meter import Meter


class Progress(Record):
    """What a stage says of itself while it runs; the frame puts it into the heartbeat."""

    phase: str = ""
    samples: int = 0
    began: int = Field(
        0, description="of the samples, those that earlier attempts had made: its checkpoint's"
    )
    total: int | None = None
    quality: dict[str, float] = Field({}, description="metric -> the last value")
    changes: tuple[AdaptationChange, ...] = ()
    forecast: SpendForecast | None = None


RULES = Policy()


class Origin(Record):
    """An author's own stage, as its pipeline has it: what does the work, and what names its result.

    The router imports nothing of it, so it cannot ask it.
    """

    module: str = Field(description="has `run(work) -> Outcome`; imported in the stage's pod alone")
    code: str = Field(description="digest of the sources of the module's package")
    settings: dict[str, JsonValue] = Field(
        {}, description="what its pipeline gave it; the work finds them in `work.settings`"
    )
    shared: bool = Field(True, description="may its result serve other runs")


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt at a stage. `inputs` maps names to keys in the store; `stopping()` turns true when a TERM came. A data set is to be
    written in `format`, on the storage class `storage_class`.

    `settings` are those that the pipeline gave an author's own stage; the stages here follow the recipe.
    """

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
    rules: Policy = RULES
    settings: Mapping[str, JsonValue] = field(default_factory=dict)
    storage_class: str = STANDARD_CLASS
