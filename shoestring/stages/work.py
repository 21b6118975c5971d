"""The inputs of a stage's code, and the interfaces that it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, JsonValue

from shoestring.config.policy import Policy
from shoestring.core.interfaces import Clock, RemoteSources, Store
from shoestring.core.receipt import AdaptationChange, SpendForecast, TimeShares
from shoestring.core.record import Count, Record
from shoestring.core.types import STANDARD_CLASS, Format, Pool
from shoestring.data.job import Command
from shoestring.data.recipe import Recipe
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.spending.meter import Meter

DEFAULT_POLICY = Policy()


class StageProgress(Record):
    """The progress that a stage reports while it runs. The supervisor puts it into the heartbeat."""

    phase: str = ""
    samples: Count = 0
    resumed_samples: Count = Field(
        0, description="how many of the samples earlier attempts made, before the checkpoint"
    )
    total: Count | None = None
    quality: dict[str, float] = Field({}, description="metric -> its last value")
    changes: tuple[AdaptationChange, ...] = ()
    forecast: SpendForecast | None = None
    time_shares: TimeShares | None = Field(
        None, exclude_if=lambda shares: shares is None, description="where the time of the last seconds went"
    )


class Origin(Record):
    """The code of an author's own stage, as its pipeline names it.

    The router does not import that code, so the pipeline has to name everything that the result depends on.
    """

    module: str = Field(description="has `run(work) -> StageOutcome`; imported only in the stage's pod")
    code: str = Field(description="digest of the sources that the module's imports reach")
    libraries: tuple[str, ...] = Field(
        (), description="libraries that they import; their versions in the stage's image are in the cache key"
    )
    settings: dict[str, JsonValue] = Field(
        {}, description="the settings in the pipeline; the code reads them from `work.settings`"
    )
    shared: bool = Field(True, description="whether other runs can use its result")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTools:
    """The tools of every attempt: at a stage of a recipe, or at a command.

    Attributes:
        scratch: a folder that is deleted after the attempt.
        report_progress: takes the stage's progress; call it often.
        should_stop: returns True once the stage is asked to stop (TERM).
    """

    run_id: str
    stage: str
    attempt: int
    store: Store
    meter: Meter
    clock: Clock
    scratch: Path
    report_progress: Callable[[StageProgress], None]
    should_stop: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWork(AttemptTools):
    """One attempt at a command."""

    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(AttemptTools):
    """One attempt at a stage of a recipe, as its code sees it.

    Attributes:
        inputs: keys in the store, by name.
        device: cuda, where the stage was placed on a GPU, else cpu: as PyTorch names it.
        format: the format to write a data set in; None: the stage writes none.
        settings: the pipeline's settings of an author's own stage; the built-in stages follow the recipe.
        storage_class: the storage class to write a data set to.
        pool: the pool that it was placed on; None: unknown.
        planned_samples: the samples that an elastic stage is expected to process; None: unknown.
        sudden_ends_per_hour: how often its pod is expected to end without notice.
        remote: reads the recipe's sources that have a URL.
    """

    seed: int
    inputs: Mapping[str, str]
    recipe: Recipe
    format: Format | None
    cores: int
    device: str = "cpu"
    policy: Policy = DEFAULT_POLICY
    settings: Mapping[str, JsonValue] = field(default_factory=dict)
    storage_class: str = STANDARD_CLASS
    pool: Pool | None = None
    planned_samples: int | None = None
    sudden_ends_per_hour: float = 0.0
    remote: RemoteSources = NO_REMOTE_SOURCES
