"""Decisions in files."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from shoestring.core.errors import UsageError
from shoestring.core.record import validation_message
from shoestring.routing.decision import Decision


def read_decision_file(path: Path) -> bytes:
    """Return a decision's JSON as it was written. Raises UsageError if it is not a decision."""
    try:
        data = path.read_bytes()
        Decision.model_validate_json(data)
    except OSError as error:
        raise UsageError(f"cannot read the decision {path}: {error.strerror}") from None
    except ValidationError as error:
        raise UsageError(f"{path} is not a decision: {validation_message(error)}") from None
    return data
