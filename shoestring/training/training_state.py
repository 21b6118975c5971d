"""The state of a training, and its conversion to and from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial

from shoestring.core.receipt import AdaptationChange
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.changes import Snapshot
from shoestring.training.checkpoints import Checkpoint, TrainedMember
from shoestring.training.contracts import Deferred
from shoestring.training.control.controller import Controller
from shoestring.training.control.memory import recall
from shoestring.training.model_record import SampleRange
from shoestring.training.window_log import TrainingStart, WindowRecord

SNAPSHOTS: tuple[Snapshot, ...] = ("best", "plateau", "rollback")
LEARNER = "learner"
"""The parts of a checkpoint: the learner's state, and the snapshots that are kept."""


@dataclass(frozen=True, slots=True)
class EarlierMembers:
    """The members of a blend whose training has ended, their weights, and the log so far.

    `spent_usd`: by earlier starts of the stage.
    """

    members: tuple[TrainedMember, ...] = ()
    weights: tuple[bytes, ...] = ()
    starts: tuple[TrainingStart, ...] = ()
    windows: tuple[WindowRecord, ...] = ()
    spent_usd: Decimal = Decimal(0)

    @property
    def training_s(self) -> float:
        return sum(each.training_s for each in self.members)

    @property
    def spent_usd_at_end(self) -> Decimal:
        """The dollars that the stage had spent when the last of them ended."""
        return self.members[-1].spent_usd if self.members else Decimal(0)

    def parts(self) -> dict[str, bytes]:
        """Return the large parts of a checkpoint."""
        return {member_part(number): data for number, data in enumerate(self.weights)}


NO_MEMBERS = EarlierMembers()


def member_part(number: int) -> str:
    return f"member-{number}"


def saved_members(saved: Checkpoint, parts: Mapping[str, bytes]) -> EarlierMembers:
    """Return the members that a checkpoint holds. Its log is restored by the training that continues."""
    weights = tuple(parts[member_part(number)] for number in range(len(saved.members)))
    return EarlierMembers(saved.members, weights, spent_usd=saved.spent_usd)


@dataclass(slots=True)
class TrainingState:
    """Everything that changes during a training, except the learner.

    `training_s` and `spent_usd` are those of earlier starts. `snapshots` are the kept states, by name.
    `is_shaped_by_budget`: money or time changed a learning rate or left out a validation.
    """

    cursor: SampleCursor
    controller: Controller
    samples: int = 0
    training_s: float = 0.0
    spent_usd: Decimal = Decimal(0)
    sample_ranges: tuple[SampleRange, ...] = ()
    snapshots: dict[Snapshot, Deferred] = field(default_factory=dict)
    starts: list[TrainingStart] = field(default_factory=list)
    windows: list[WindowRecord] = field(default_factory=list)
    is_shaped_by_budget: bool = False

    @property
    def changes(self) -> list[AdaptationChange]:
        return [change for window in self.windows for change in window.changes]

    def parts(self, learner: Deferred) -> dict[str, bytes]:
        """Return the large parts of a checkpoint."""
        found: dict[str, bytes] = {name: kept.data for name, kept in self.snapshots.items()}
        return found | {LEARNER: learner.data}


def restored_state(saved: Checkpoint, parts: Mapping[str, bytes], controller: Controller) -> TrainingState:
    """Return the state that a checkpoint holds. `controller`: the controller of a new training."""
    return TrainingState(
        cursor=saved.cursor,
        controller=recall(controller, saved.memory),
        samples=saved.samples,
        training_s=saved.training_s,
        spent_usd=saved.spent_usd,
        sample_ranges=saved.sample_ranges,
        snapshots={name: Deferred(partial(bytes, parts[name])) for name in SNAPSHOTS if name in parts},
        starts=[*saved.starts],
        windows=[*saved.windows],
        is_shaped_by_budget=saved.is_shaped_by_budget,
    )


def depends_on_limits(state: TrainingState) -> bool:
    """Return True if more money or time, or no guardrail, would have let the training learn longer or faster.

    Levers that only save time (a larger batch inside its flat range, validation on a share of the rows) do
    not count: the training ended by itself all the same.
    """
    is_cut_short = state.samples < state.controller.schedule.end_samples
    is_guarded = any(change.lever == "guardrail" for change in state.changes)
    return is_cut_short or is_guarded or state.is_shaped_by_budget


def stop_reason(state: TrainingState) -> str:
    setup, schedule = state.controller.setup, state.controller.schedule
    if schedule.decaying and state.samples >= schedule.end_samples:
        return "the validation loss stopped improving; the rest of the budget is not used"
    if state.samples >= schedule.end_samples:
        epochs = "rounds" if setup.by_rounds else "epochs"
        return f"all {setup.max_samples // setup.epoch_rows} {epochs} are done"
    return (
        "the budget or the deadline was reached"
        if state.samples
        else "the budget or the deadline left no time for a first step"
    )
