"""How long the data of ended runs is kept, and for how long its storage is charged."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from shoestring.config.tariffs import Tariffs
from shoestring.core.record import Record


class RetentionPolicy(Record):
    """The windows of `shoestring gc`: a run inside one of them keeps its data. Without a window, all runs do.

    A run that is running, or wrote a record within `grace_hours`, always keeps it. The records of a run stay
    in any case.
    """

    keep_runs: int | None = Field(
        None, ge=1, description="the newest runs of each recipe, this many, keep their data; null: no window"
    )
    keep_days: float | None = Field(
        None,
        gt=0,
        description="runs that wrote a record in the last days, this many, keep their data; null: no window. "
        "It is also the time for which storage is charged, unless tariffs.storage_held_hours is set",
    )
    grace_hours: float = Field(
        48.0,
        gt=0,
        description="objects that were written in the last hours, this many, are never deleted. Set it above "
        "the longest stage: what a stage writes is named by a record when the stage ends",
    )

    @property
    def keeps_all(self) -> bool:
        return self.keep_runs is None and self.keep_days is None

    @property
    def grace(self) -> timedelta:
        return timedelta(hours=self.grace_hours)


def held_tariffs(tariffs: Tariffs, retention: RetentionPolicy) -> Tariffs:
    """Return the tariffs with the hours for which a data set will be stored: those of the world's file, else
    those of the window in days, else the default.
    """
    if retention.keep_days is None or "storage_held_hours" in tariffs.model_fields_set:
        return tariffs
    return tariffs.model_copy(update={"storage_held_hours": retention.keep_days * 24})
