"""Run a command on this machine inside a budget. Its launcher is its supervisor: no engine is in between."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from getpass import getuser
from typing import Any

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import (
    BudgetTooSmall,
    DeadlineTooShort,
    Refused,
    StageFailed,
    StageStopped,
    UnknownName,
    UsageError,
)
from shoestring.core.money import MICRO
from shoestring.core.receipt import Receipt
from shoestring.data.formats.volume_probe import time_requests
from shoestring.data.job import MIN_GRACE_S, Command, Job
from shoestring.data.run_records import Run, open_run, read_records
from shoestring.data.scratch.temporary_folders import remove_left_over
from shoestring.reporting.publish import publish
from shoestring.runtime.admission.admit import admission_decision
from shoestring.runtime.admission.approvals import previous_request
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.admission.stage_budgets import stage_budgets
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.launch.command_watcher import CommandWatcher
from shoestring.runtime.launch.local_run import (
    LaunchOptions,
    check_not_running,
    environment_of_run,
    start_run,
)
from shoestring.runtime.launch.run_request import new_run_id
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.settlement.settle import settle_abandoned, settle_run
from shoestring.runtime.supervisor.run_stage import run_stage
from shoestring.runtime.supervisor.spend_limits import WatchedCommand
from shoestring.stages.command import need_of

START_S = 4.0
"""Seconds in which a command begins, and does a little."""


def command_request(world: World, job: Job, command: Command) -> RunRequest:
    """Return the request for a new run of a command."""
    request = RunRequest(new_run_id(world, job.name), job, command, (need_of(command),))
    check_deadline(command, job.deadline_s)
    return request.with_terms(owner=getuser())


def check_deadline(command: Command, deadline_s: float | None) -> None:
    """Check that the grace of a command leaves time for it. Raises DeadlineTooShort."""
    least_s = need_of(command).checkpoint_s + START_S
    if deadline_s is not None and deadline_s < least_s:
        raise DeadlineTooShort(
            least_s,
            f"a deadline of {deadline_s:g} s is too short: {command.grace_s:g} s of it are kept back for the "
            f"grace; the smallest deadline is {least_s:g} s, or less with a shorter --grace",
        )


def resumed_command(
    world: World,
    run_id: str,
    changes: Mapping[str, Any],
    budget_usd: Decimal | None,
    deadline_s: float | None,
) -> RunRequest:
    """Return the request for another start of a run. `changes`: the fields of its command that are given
    again. What is not given, or is None, stays as it was at its last start.

    Raises UsageError: there is no such run, or it has a recipe.
    """
    try:
        run = open_run(world.store, run_id)
    except UnknownName as error:
        raise UsageError(
            f"{error}; a resumed run keeps its store: name the one in which it began (--world or --store)"
        ) from None
    command = run.record.command
    if command is None:
        raise UsageError(f"{run_id} is a run of a recipe: `shoestring run --resume {run_id}`")
    command = Command.model_validate(command.model_dump() | dict(changes))
    last_usd, last_deadline_s = previous_request(world, run)
    check_deadline(command, deadline_s or last_deadline_s)
    request = RunRequest(run_id, run.record.job, command, (need_of(command),))
    return request.with_terms(
        budget_usd=last_usd if budget_usd is None else budget_usd, deadline_s=deadline_s or last_deadline_s
    )


def exec_here(world: World, request: RunRequest, options: LaunchOptions, watcher: CommandWatcher) -> Receipt:
    """Run a command to its end, and return the receipt of this attempt.

    Raises:
        Refused: it was not started. Its records are published.
        UsageError: another process still drives the run.
    """
    remove_left_over()
    check_not_running(world, request.run_id)
    with environment_of_run(world, options, watcher.pod):
        for sentence in settle_abandoned(world):
            options.notify(sentence)
        request = with_own_end(world, request)
        is_new = not any(world.store.list(store_layout.run_record(request.run_id)))
        watcher.send(WatchedCommand(request.run_id))
        try:
            run = start_run(world, request, options)
            drive_command(world, run, request, options, watcher)
        except Refused as error:
            if any(world.store.list(store_layout.run_record(request.run_id))):
                publish(world.store, request.run_id)
            # A resumed run keeps its grace.
            if is_new and isinstance(error, BudgetTooSmall):
                raise with_grace(world, request, error) from None
            raise
    return last_receipt(world, request.run_id)


def with_own_end(world: World, request: RunRequest) -> RunRequest:
    """Return the request with the time in which this process ends, which waits for the store."""
    assert request.command is not None
    _, request_s = time_requests(world.store, world.clock)
    return replace(request, needs=(need_of(request.command, request_s),))


def with_grace(world: World, request: RunRequest, error: BudgetTooSmall) -> BudgetTooSmall:
    """Return the refusal of a new run. It names the grace where that is most of the smallest budget."""
    command = request.command
    assert command is not None
    shortest = with_own_end(world, replace(request, task=command.model_copy(update={"grace_s": MIN_GRACE_S})))
    # A decision names the smallest budget where its own is below that.
    shortest = shortest.with_terms(budget_usd=MICRO)
    decision = admission_decision(world, shortest, Decimal(0), stage_budgets(world, request.job))
    grace_usd = error.smallest_usd - (decision.smallest_budget_usd or error.smallest_usd)
    if grace_usd <= error.smallest_usd / 2:
        return error
    grace = f"the grace of {command.grace_s:g} s: a shorter --grace needs less"
    reasons = f"{error.reasons}\n  ${grace_usd} of it is kept back for {grace}"
    return BudgetTooSmall(error.budget_usd, error.smallest_usd, reasons)


def drive_command(
    world: World, run: Run, request: RunRequest, options: LaunchOptions, watcher: CommandWatcher
) -> None:
    """Reserve, supervise the command to its end, settle and publish. How it ended is in its receipt."""
    try:
        _, key = decide_and_reserve(world, run, request, StageInputs())
        with suppress(StageStopped, StageFailed):
            run_stage(
                world, str(options.world_path.absolute()), run.run_id, key, {}, notify_watcher=watcher.send
            )
    finally:
        settle_run(world, run.run_id)
        publish(world.store, run.run_id)


def last_receipt(world: World, run_id: str) -> Receipt:
    """Return the receipt of the last attempt. Raises StageFailed: it left none."""
    keys = list(world.store.list(store_layout.receipts(run_id)))
    found, notes = read_records(world.store, keys, Receipt)
    if not found:
        raise StageFailed(notes[0] if notes else f"{run_id} left no receipt")
    return max(found, key=lambda each: each.attempt)
