"""The parts of a question that it holds several of, or none."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from shoestring.config.preferences import Arm
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format, Market, Need, StorageClassName
from shoestring.pricing.learned.calibration import LearnedSpeed


class CachedOutcome(Record):
    """The cached result of a later stage. It was made from the result of the stage before it."""

    outcome: str
    format: Format | None = Field(None, description="None: the result is not a data set")
    storage_class: StorageClassName = STANDARD_CLASS


class AppliedPolicy(Record):
    """The policy that a choice was made by, and the probability that its run was assigned to it."""

    name: str
    version: int
    sha256: str
    arm: Arm = "live"
    propensity: float = 1.0


class ExistingPod(Record):
    """The pod that asks: its engine created it again for an earlier decision, so it cannot be placed."""

    decision_key: str = Field(description="the decision of the router that placed it")
    pool: str
    market: Market
    began_at: AwareDatetime | None = Field(
        None,
        exclude_if=lambda moment: moment is None,
        description="when a node accepted the pod of an external component; null: a supervisor asks from it",
    )


class FamilyOption(Record):
    """A family of models that a training may choose, with its need."""

    name: str
    need: Need
    enough_samples: int = Field(
        ge=0, description="with fewer samples, a family further back in the order is expected to be better"
    )
    learned: tuple[LearnedSpeed, ...] = Field((), description="of this training")
    cache_key: str = Field("", description="the key of its result; empty: not known")
    cached_outcome: str | None = None
    cached_later_stages: tuple[CachedOutcome, ...] = ()


class FamilyChoice(Record):
    """The chosen family, and the reason."""

    name: str
    reason: str
