"""The file in which a command that Shoestring meters reads what is left of its budget.

`$SHOESTRING_BUDGET` names it. The meter replaces it atomically about once a second.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime, Field, ValidationError

from shoestring.core.errors import DataError
from shoestring.core.money import Usd
from shoestring.core.record import Record, validation_message

BUDGET_VARIABLE = "SHOESTRING_BUDGET"
CHECKPOINTS_VARIABLE = "SHOESTRING_CHECKPOINTS"
PROGRESS_VARIABLE = "SHOESTRING_PROGRESS"
PROFILE_VARIABLE = "SHOESTRING_PROFILE"
"""Names the file to which a training loop writes its profile, where one is asked for."""


class BudgetFile(Record):
    """The budget of a command at one moment."""

    run_id: str
    attempt: int
    usd_left: Usd = Field(description="dollars that the command may still spend")
    usd_per_hour: Usd
    seconds_left: float = Field(
        ge=0,
        description="seconds until `should_stop` is true, by money or by its deadline, at the current price; "
        "SIGTERM follows 2 s later, or after a sixth of the grace if that is more",
    )
    share_gone: float = Field(
        ge=0,
        le=1,
        description="the share of the budget or of the time that is gone, the larger, over all attempts; "
        "1 where `should_stop` becomes true",
    )
    should_stop: bool = Field(
        description="the command has been asked to stop, or only the time of a clean end is left"
    )
    stop_reason: str
    grace_s: float = Field(ge=0, description="seconds from SIGTERM to SIGKILL")
    written_at: AwareDatetime


END_SUFFIX = ".end"
"""Of the second file of a reader, once it has seen the end of its budget."""


def readers_folder(budget_file: Path) -> Path:
    """Return the folder of the processes that read a budget file: a file each, named by its id."""
    return budget_file.with_name(f"{budget_file.name}.readers")


def read_budget_file(path: Path) -> BudgetFile:
    """Return the content of a budget file.

    Raises:
        DataError: the file cannot be read, or is damaged.
    """
    try:
        return BudgetFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"the budget file {path} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        raise DataError(f"the budget file {path} is damaged: {validation_message(error)}") from None
