"""What is simulated, as data: what there is to run on, what wants to run, how prices move, what goes wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Self

from pydantic import AwareDatetime, Field, field_validator, model_validator

from shoestring.backends.local import WorldFile, read_world_file
from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import WorldError
from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import FormatSpeed, Need
from shoestring.pricing.templates import cloud_world
from shoestring.routing.dag import build_dag

DEFAULT = "default.yaml"


class PipelineKind(Record):
    """A kind of pipeline. Rows and budgets are log-normal: a median, and the standard deviation of the logarithm."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    campaign: str = Field(
        "", description="of the scenario's budgets, the campaign that they belong to; empty: none"
    )
    weight: float = Field(1.0, gt=0, description="of all pipelines, beside the shares of the other kinds")
    needs: tuple[Need, ...] = Field(min_length=1)
    median_rows: float = Field(ge=1, description="median")
    rows_log_sd: float = Field(0.0, ge=0)
    row_bytes: int = Field(100, ge=0, description="bytes of a row of the source")
    budget_factor: float = Field(
        4.0, gt=0, description="median of the budget over what the router expects the whole chain to cost"
    )
    budget_log_sd: float = Field(0.0, ge=0)
    deadline_factor: float | None = Field(
        None, gt=0, description="the deadline over the time that the router expects; null: none"
    )

    @field_validator("needs")
    @classmethod
    def _check_chain(cls, needs: tuple[Need, ...]) -> tuple[Need, ...]:
        if not build_dag(needs).is_chain:
            raise ValueError(
                "its stages branch: simulated pipelines are chains, each stage after the one before it"
            )
        return needs


class DurationModel(Record):
    """What stages really take: the prior's seconds times a bias of the stage on the pool, which receipts can teach, times luck.

    Luck is log-normal with mean 1; of one stage in `1 / tail_share` it is, besides, Pareto with index `tail_index` (1.5: no variance).
    """

    bias_log_sd: float = Field(0.3, ge=0)
    log_sd: float = Field(0.2, ge=0)
    tail_share: float = Field(0.02, ge=0, le=1)
    tail_index: float = Field(1.5, gt=1)
    recorded_file: Path | None = Field(
        None, description="a CSV of stage, prior_s, seconds: luck is drawn from what these say, not made"
    )


class MarketModel(Record):
    """How spot prices move, and how often spot machines are taken away."""

    log_sd_per_day: float = Field(
        0.0, ge=0, description="of a random walk of the logarithm of each spot price; 0: constant"
    )
    step_s: float = Field(
        3600.0, gt=0, description="seconds between moves, and between looks at the provider's prices"
    )
    preemption_factor: float = Field(
        1.0, ge=0, description="true preemptions over those that the pool declares"
    )
    notice_share: float = Field(
        0.8, ge=0, le=1, description="of preemptions, those that come with a notice of some seconds"
    )
    trace: Path | None = Field(
        None,
        description="a folder with availability.csv and prices.csv (.gz too), or a file of price changes",
    )
    tick_s: float = Field(600.0, gt=0, description="seconds between the rows of availability.csv")
    zones: dict[str, str] = Field(
        {}, description="pool -> the zone of the trace that its spot machines are in"
    )


class FaultModel(Record):
    """What goes wrong, by chance."""

    crash_per_write: float = Field(
        0.0, ge=0, le=1, description="a process dies just before or just after a write to the store"
    )
    error_per_write: float = Field(
        0.0, ge=0, le=1, description="the store fails a write: half of these it has taken all the same"
    )
    race_per_write: float = Field(
        0.0, ge=0, le=1, description="another writer comes first, between reading the books and writing"
    )
    pods_lost_per_hour: float = Field(0.0, ge=0, description="a pod is gone without a word, on any market")
    failed_share: float = Field(0.0, ge=0, le=1, description="a stage fails by its own code")
    abandoned_share: float = Field(
        0.0, ge=0, le=1, description="an engine is gone with its run, in the middle of it"
    )
    clock_skew_sd_s: float = Field(
        0.0, ge=0, description="standard deviation of how far each process's clock is off"
    )


class Scenario(StoredRecord):
    """One file. `world` is the cloud example that ships, or a world file of one's own, beside this one."""

    name: str
    starts_at: AwareDatetime = datetime(2026, 11, 1, tzinfo=UTC)
    world: str = "cloud"
    pools: tuple[str, ...] = Field((), description="of the world's pools, those to use; none: all")
    policy: Policy = Policy()
    budgets: Budgets = Budgets()
    pipelines_per_hour: float = Field(60.0, gt=0, description="pipelines that are begun in an hour (Poisson)")
    pipeline_kinds: tuple[PipelineKind, ...] = Field(min_length=1)
    durations: DurationModel = DurationModel()
    market: MarketModel = MarketModel()
    faults: FaultModel = FaultModel()
    speeds: tuple[FormatSpeed, ...] = Field(
        (), description="of the store's volume, by format; needed where a stage writes"
    )
    reap_every_s: float = Field(
        3600.0, gt=0, description="seconds between looks of the reaper; on a cluster it comes each minute"
    )

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        names = [kind.name for kind in self.pipeline_kinds]
        if len(set(names)) < len(names):
            raise ValueError("two chains have one name")
        if unknown := sorted({kind.campaign for kind in self.pipeline_kinds} - {"", *self.budgets.campaigns}):
            raise ValueError(f"there is no campaign called {', '.join(unknown)} in the budgets")
        if not self.speeds and any(
            need.writes_bytes_per_row for kind in self.pipeline_kinds for need in kind.needs
        ):
            raise ValueError("a stage writes a data set and there is no speed of any format")
        return self


def load_scenario(path: Path | None) -> Scenario:
    """The scenario in a file, its paths made absolute from the file's folder; None: the one that ships. Raises WorldError."""
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
    here = path.absolute().parent
    market = found.market.model_copy(
        update={"trace": found.market.trace and here / found.market.trace.expanduser()}
    )
    durations = found.durations.model_copy(
        update={
            "recorded_file": found.durations.recorded_file
            and here / found.durations.recorded_file.expanduser()
        }
    )
    world = found.world if found.world == "cloud" else str(here / Path(found.world).expanduser())
    return found.model_copy(update={"market": market, "durations": durations, "world": world})


def world_file(scenario: Scenario) -> WorldFile:
    """The pools and prices to simulate on. Raises WorldError."""
    file = (
        WorldFile.model_validate(cloud_world("store"))
        if scenario.world == "cloud"
        else read_world_file(Path(scenario.world))
    )
    names = [pool.name for pool in file.pools]
    if unknown := sorted({*scenario.pools, *scenario.market.zones} - set(names)):
        raise WorldError(
            f"{scenario.name}: there is no pool called {', '.join(unknown)}; there is: {', '.join(names)}"
        )
    wanted = scenario.pools or tuple(names)
    pools = tuple(pool for pool in file.pools if pool.name in wanted)
    return file.model_copy(
        update={"pools": pools, "prices": tuple(row for row in file.prices if row.get("pool") in wanted)}
    )
