"""Caps in dollars, set by the person who pays."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import Field, model_validator

from shoestring.core.money import Usd
from shoestring.core.record import Record

CAMPAIGN_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
CampaignName = Annotated[str, Field(pattern=f"^{CAMPAIGN_NAME}$")]


class Campaign(Record):
    """A budget that many runs share, over any number of months.

    Days are whole days in UTC; null: no limit.
    """

    cap_usd: Usd = Field(
        gt=0, description="cap of all runs of the campaign together; the monthly cap applies as well"
    )
    first_day: date | None = Field(None, description="no run of the campaign starts before this day")
    last_day: date | None = Field(
        None, description="no run of the campaign starts after this day; a running one continues"
    )

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Campaign:
        if self.first_day and self.last_day and self.first_day > self.last_day:
            raise ValueError(f"its last day, {self.last_day}, is before its first, {self.first_day}")
        return self


class Budgets(Record):
    """The caps of `budgets.yaml`. Those of a recipe or the command line apply as well. Null: no cap."""

    month_usd: Usd | None = Field(
        None, ge=0, description="cap of all runs of a calendar month (UTC) together"
    )
    run_usd: Usd | None = Field(None, ge=0, description="maximum budget of one run")
    stages: dict[str, Annotated[Usd, Field(ge=0)]] = Field(
        {}, description="maximum spend of one stage of a run, by the stage's name"
    )
    campaigns: dict[CampaignName, Campaign] = Field(
        {}, description="campaigns by name; a recipe or `run --campaign NAME` assigns a run to one"
    )
    approve_above_usd: Usd | None = Field(
        None,
        ge=0,
        description="a run with a larger budget starts only after `shoestring approve RUN --by NAME`",
    )
