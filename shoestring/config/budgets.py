"""Caps in dollars that whoever pays has set."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import Field, model_validator

from shoestring.core.money import Usd
from shoestring.core.record import Record

CAMPAIGN_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
CampaignName = Annotated[str, Field(pattern=f"^{CAMPAIGN_NAME}$")]


class Campaign(Record):
    """Many runs that share a budget, however many months they take. Days are whole, in UTC; None: no first or last one."""

    cap_usd: Usd = Field(
        gt=0, description="all runs of the campaign together, beside what their months allow"
    )
    first_day: date | None = Field(None, description="before it no run of the campaign begins")
    last_day: date | None = Field(
        None, description="after it no run of the campaign begins; one that is under way goes on"
    )

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Campaign:
        if self.first_day and self.last_day and self.first_day > self.last_day:
            raise ValueError(f"its last day, {self.last_day}, is before its first, {self.first_day}")
        return self


class Budgets(Record):
    """Caps that whoever pays has set (`budgets.yaml`), beside those of a recipe or a command line. None: no cap."""

    month_usd: Usd | None = Field(None, description="all runs of a calendar month (UTC) together")
    run_usd: Usd | None = Field(None, description="the most that one run may be given")
    stages: dict[str, Usd] = Field({}, description="the most that one stage of a run may take")
    campaigns: dict[CampaignName, Campaign] = Field(
        {}, description="by name; a recipe, or `run --campaign NAME`, puts a run into one"
    )
    approve_above_usd: Usd | None = Field(
        None,
        ge=0,
        description="a run with a budget above this begins only after `shoestring approve RUN --by NAME`",
    )
