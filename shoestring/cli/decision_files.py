"""Decisions that a command line names: in a file, or of a run in the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from shoestring.cli.named_runs import named_run_id
from shoestring.core import store_layout
from shoestring.core.attempt_id import declared_stage
from shoestring.core.errors import NotInStore, UnknownName, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.record import validation_message
from shoestring.data.run_records import open_run, read_record
from shoestring.routing.decision import Decision
from shoestring.routing.policy.migration import MigrationCheck


@dataclass(frozen=True, slots=True)
class NamedDecision:
    """A decision, and the last migration check of the attempt that it placed; None if there was none."""

    decision: Decision
    check: MigrationCheck | None


def is_decision_file(target: str) -> bool:
    """Return whether a text names a file. Anything else names a run."""
    return Path(target).is_file() or target.endswith(".json")


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


def decision_of_file(path: Path) -> NamedDecision:
    """Return the decision in a file of a run's folder. Raises UsageError if the file is none."""
    return NamedDecision(Decision.model_validate_json(read_decision_file(path)), migration_check_for(path))


def migration_check_for(file: Path) -> MigrationCheck | None:
    """Return the migration check beside a decision's file, or None.

    Raises:
        UsageError: the file is not a migration check.
    """
    path = file.parent.parent / "migration-checks" / file.name
    try:
        return MigrationCheck.model_validate_json(path.read_bytes())
    except OSError:
        return None
    except ValidationError as error:
        raise UsageError(f"{path} is not a migration check: {validation_message(error)}") from None


def decisions_of_run(store: Store, run: str, stage: str | None = None) -> list[NamedDecision]:
    """Return the decisions of a run in the order in which they were made; with a stage, those for it.

    `run`: its id, or Kubeflow's id of it.

    Raises:
        UnknownName: there is no such run, or it has no decision for the stage.
        UsageError: the run has no decision yet.
    """
    run_id = open_run(store, named_run_id(store, run)).run_id
    decisions = [read_record(store, key, Decision) for key in store.list(store_layout.decisions(run_id))]
    decisions.sort(key=lambda each: each.question.asked_at)
    stages = list(dict.fromkeys(declared_stage(each.question.stage) for each in decisions))
    if not decisions:
        raise UsageError(
            f"{run_id} has no decision: it was refused before one, or its first stage is not routed"
        )
    found = [
        each
        for each in decisions
        if stage in (None, each.question.stage, declared_stage(each.question.stage))
    ]
    if not found:
        raise UnknownName(f"stage with a decision in {run_id}", stage or "", stages)
    return [NamedDecision(each, stored_check(store, each)) for each in found]


def stored_check(store: Store, decision: Decision) -> MigrationCheck | None:
    question = decision.question
    try:
        key = store_layout.migration_check(question.run_id, question.attempt_id)
        return read_record(store, key, MigrationCheck)
    except NotInStore:
        return None
