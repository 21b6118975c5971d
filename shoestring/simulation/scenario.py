"""Scenarios: the pools, the pipelines, the market and the faults of a simulation, as a YAML file."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Self

from pydantic import AwareDatetime, Field, field_validator, model_validator

from shoestring.backends.local import WorldFile, read_world_file
from shoestring.config.budgets import Budgets
from shoestring.config.engines import DeadlineKind, Engine
from shoestring.config.policy import Policy, PriceWindow, Priority
from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import WorldError
from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import Need
from shoestring.pricing.format_speeds import FormatSpeed
from shoestring.pricing.templates import cloud_world
from shoestring.routing.dag import build_dag

DEFAULT = "default.yaml"


class TrainingModel(Record):
    """How an elastic stage trains, as far as its guardrails and its adaptation to the spend depend on it."""

    batch_rows: int = Field(1024, ge=1, description="rows of a batch")
    validation_share: float = Field(
        0.1, ge=0, lt=1, description="share of a training's time that validations take, on all of their rows"
    )
    batch_gain: float = Field(
        0.1, ge=0, lt=1, description="share of the time of a row that a batch of twice the size saves"
    )
    skill: float = Field(
        0.5, gt=0, lt=1, description="median skill at the end; it is approached exponentially"
    )
    skill_log_sd: float = Field(0.2, ge=0, description="standard deviation of log(skill)")
    collapse_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of trainings whose skill falls to 0 at some moment",
    )


class PipelineKind(Record):
    """A kind of pipeline.

    Rows and budgets are log-normal, given by median and standard deviation of the logarithm.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    campaign: str = Field(
        "", description="campaign of these pipelines, one of the scenario's budgets; empty: none"
    )
    priority: Priority = Field("normal", description="the priority of these pipelines, as in a recipe")
    weight: float = Field(1.0, gt=0, description="relative frequency of this kind")
    needs: tuple[Need, ...] = Field(min_length=1)
    median_rows: float = Field(ge=1, description="median number of source rows")
    rows_log_sd: float = Field(0.0, ge=0, description="standard deviation of log(rows)")
    row_bytes: int = Field(100, ge=0, description="bytes of a source row")
    budget_factor: float = Field(
        4.0, gt=0, description="median budget, divided by the router's estimate for the whole pipeline"
    )
    budget_log_sd: float = Field(0.0, ge=0, description="standard deviation of log(budget)")
    training: TrainingModel = TrainingModel()
    deadline_factor: float | None = Field(
        None, gt=0, description="deadline, divided by the router's estimated duration; null: no deadline"
    )
    deadline_kind: DeadlineKind = Field("soft", description="as in a recipe")

    @field_validator("needs")
    @classmethod
    def _check_chain(cls, needs: tuple[Need, ...]) -> tuple[Need, ...]:
        if not build_dag(needs).is_chain:
            raise ValueError(
                "the stages branch: in a simulated pipeline, each stage follows the previous one"
            )
        return needs


class DurationModel(Record):
    """Actual durations of stages: prior seconds x bias x random factor.

    The bias belongs to the stage on the pool, so it can be learned from receipts. The random factor is
    log-normal with mean 1; for the share `tail_share` of stages it is also multiplied by a Pareto variable
    with index `tail_index` (at 1.5 the variance is infinite).
    """

    bias_log_sd: float = Field(0.3, ge=0, description="standard deviation of log(bias)")
    log_sd: float = Field(0.2, ge=0, description="standard deviation of log(random factor)")
    tail_share: float = Field(0.02, ge=0, le=1, description="share of stages with a Pareto factor")
    tail_index: float = Field(1.5, gt=1, description="index of the Pareto distribution")
    recorded_file: Path | None = Field(
        None, description="a CSV of stage, prior_s, seconds: random factors are drawn from it instead"
    )


class MarketModel(Record):
    """The model of a spot market: how prices change, and how often machines are preempted."""

    log_sd_per_day: float = Field(
        0.0,
        ge=0,
        description="daily standard deviation of a random walk of each log(spot price); 0: constant prices",
    )
    step_s: float = Field(
        3600.0, gt=0, description="seconds between price changes, and between reads of the provider's prices"
    )
    preemption_factor: float = Field(
        1.0, ge=0, description="actual preemption rate, divided by the rate that the pool declares"
    )
    windows: tuple[PriceWindow, ...] = Field(
        (), description="hours of the week in which the actual spot prices differ by a factor"
    )
    notice_share: float = Field(
        0.8, ge=0, le=1, description="share of preemptions with a notice of some seconds"
    )
    trace: Path | None = Field(
        None,
        description="a folder with availability.csv and prices.csv (.gz too), or a file of price changes",
    )
    tick_s: float = Field(600.0, gt=0, description="seconds between the rows of availability.csv")
    zones: dict[str, str] = Field({}, description="pool -> zone of the trace in which its spot machines run")


class FaultModel(Record):
    """Random faults. Rates are per write to the store, per hour, or shares of 1."""

    crash_per_write: float = Field(
        0.0,
        ge=0,
        le=1,
        description="probability that a process dies just before or after a write to the store",
    )
    error_per_write: float = Field(
        0.0,
        ge=0,
        le=1,
        description="probability that a write reports an error; half of these writes are stored",
    )
    race_per_write: float = Field(
        0.0,
        ge=0,
        le=1,
        description="probability that another process writes between reading the ledger and writing",
    )
    pods_lost_per_hour: float = Field(
        0.0, ge=0, description="rate at which a pod disappears without notice, on any market"
    )
    failed_share: float = Field(0.0, ge=0, le=1, description="share of stages that fail by their own code")
    abandoned_share: float = Field(
        0.0, ge=0, le=1, description="probability, for each attempt, that the engine abandons its run"
    )
    clock_skew_sd_s: float = Field(
        0.0, ge=0, description="standard deviation of the clock skew of each process"
    )


class Scenario(StoredRecord):
    """A scenario file.

    `world` is "cloud" for the example that ships, or the path of a world file, relative to this file.
    """

    name: str
    starts_at: AwareDatetime = datetime(2026, 11, 1, tzinfo=UTC)
    world: str = "cloud"
    pools: tuple[str, ...] = Field((), description="the pools of the world to use; empty: all")
    policy: Policy = Policy()
    budgets: Budgets = Budgets()
    engine: Engine = Field(
        "local", description="what runs the pipelines: it takes its assumed time between two stages"
    )
    pipelines_per_hour: float = Field(
        60.0, gt=0, description="mean number of pipelines started in an hour (Poisson)"
    )
    pipeline_kinds: tuple[PipelineKind, ...] = Field(min_length=1)
    durations: DurationModel = DurationModel()
    market: MarketModel = MarketModel()
    faults: FaultModel = FaultModel()
    speeds: tuple[FormatSpeed, ...] = Field(
        (), description="speeds of the store's volume, by format; required if a stage writes a data set"
    )
    reap_every_s: float = Field(
        3600.0, gt=0, description="seconds between runs of the reaper (on a cluster it runs each minute)"
    )

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        names = [kind.name for kind in self.pipeline_kinds]
        if len(set(names)) < len(names):
            raise ValueError("two pipeline kinds have the same name")
        if unknown := sorted({kind.campaign for kind in self.pipeline_kinds} - {"", *self.budgets.campaigns}):
            raise ValueError(f"there is no campaign called {', '.join(unknown)} in the budgets")
        if not self.speeds and any(
            need.writes_bytes_per_row for kind in self.pipeline_kinds for need in kind.needs
        ):
            raise ValueError("a stage writes a data set, but `speeds` has no format")
        return self


def load_scenario(path: Path | None) -> Scenario:
    """Read a scenario file, with paths resolved relative to its folder.

    None: the scenario that ships. Raises WorldError.
    """
    if path is None:
        return parse(
            resources.files("shoestring.simulation").joinpath(DEFAULT).read_text(),
            Scenario,
            DEFAULT,
            WorldError,
        )
    found = parse(
        read_text(path, f"there is no scenario file at {path}", WorldError), Scenario, str(path), WorldError
    )
    folder = path.absolute().parent
    market = found.market.model_copy(
        update={"trace": found.market.trace and folder / found.market.trace.expanduser()}
    )
    durations = found.durations.model_copy(
        update={
            "recorded_file": found.durations.recorded_file
            and folder / found.durations.recorded_file.expanduser()
        }
    )
    world = found.world if found.world == "cloud" else str(folder / Path(found.world).expanduser())
    return found.model_copy(update={"market": market, "durations": durations, "world": world})


def scenario_world_file(scenario: Scenario) -> WorldFile:
    """Return the pools and prices of a scenario. Raises WorldError."""
    file = (
        WorldFile.model_validate(cloud_world("store"))
        if scenario.world == "cloud"
        else read_world_file(Path(scenario.world))
    )
    names = [pool.name for pool in file.pools]
    if unknown := sorted({*scenario.pools, *scenario.market.zones} - set(names)):
        raise WorldError(
            f"{scenario.name}: there is no pool called {', '.join(unknown)}; "
            f"the world has: {', '.join(names)}"
        )
    selected = scenario.pools or tuple(names)
    pools = tuple(pool for pool in file.pools if pool.name in selected)
    prices = tuple(row for row in file.prices if row.get("pool") in selected)
    commitments = tuple(each for each in file.commitments if not each.pool or each.pool in selected)
    return file.model_copy(update={"pools": pools, "prices": prices, "commitments": commitments})
