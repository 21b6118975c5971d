"""`shoestring approve`: a named person approves the budget of a run."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated

import typer

from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import JsonOption, budget_from_option
from shoestring.cli.times import parse_expiry
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.errors import UsageError
from shoestring.data.run_records import Run, open_run
from shoestring.runtime.admission.approvals import (
    check_not_ended,
    current_budget,
    give_approval,
    open_request,
)
from shoestring.spending.approvals import DEFAULT_VALIDITY, Approval

RunArgument = Annotated[
    str,
    typer.Argument(help="id of the run: one that waits for approval, or a running one that needs more"),
]
AmountOption = Annotated[
    str | None, typer.Option("--usd", help="dollars for the whole run; default: the amount it requested")
]
ExpiryOption = Annotated[
    str | None,
    typer.Option(help="date or time (UTC) at which the approval expires; default: in 7 days"),
]


@takes_world
def approve(
    run: RunArgument,
    by: Annotated[str, typer.Option(help="name of the person who approves")],
    usd: AmountOption = None,
    until: ExpiryOption = None,
    reason: Annotated[str, typer.Option(help="reason, for the record")] = "",
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Approve the budget of a run, or more of it.

    The store of the ledger records who approved how much, and until when.
    """
    opened = source.open(writes=True)
    found, now = open_run(opened.store, named_run_id(opened.store, run)), opened.clock.now()
    request = open_request(opened, found.run_id)
    budget_usd, account = current_budget(opened, found) if found.starts else (None, None)
    check_not_ended(found, account, request)
    if usd is None and request is None:
        raise UsageError(f"{found.run_id} has not requested an approval: give the amount with --usd")
    default_usd = request.budget_usd if request else found.record.job.budget_usd
    approval = Approval(
        run_id=found.run_id,
        approved_by=by,
        approved_at=now,
        amount_usd=budget_from_option(usd, "--usd") or default_usd,
        expires_at=parse_expiry(until) if until else now + DEFAULT_VALIDITY,
        reason=reason,
        pod=opened.pod,
    )
    total_usd = approval.amount_usd if budget_usd is None else budget_usd
    raised = give_approval(opened, approval, account, total_usd)
    where = "".join(f" {argument}" for argument in source.arguments)
    if as_json:
        typer.echo(json.dumps(approval.model_dump(mode="json"), indent=1))
    else:
        print_approval(approval, found, total_usd if raised else None, where)


def print_approval(approval: Approval, run: Run, raised_from_usd: Decimal | None, where: str) -> None:
    """Print the approval and the next step. `raised_from_usd`: the earlier budget of a running run.

    `where`: the options that name the world.
    """
    until = f"{approval.expires_at:%Y-%m-%d %H:%M} UTC"
    typer.echo(f"{approval.approved_by} approved ${approval.amount_usd} for {approval.run_id}, until {until}")
    if raised_from_usd is not None:
        typer.echo(
            f"{run.start.account} is running and had ${raised_from_usd}: "
            "stages not routed yet may use the additional amount"
        )
    elif not run.starts:
        typer.echo(
            f"start it: {run.record.resume_text}{where}     (on Kubeflow: shoestring upload "
            f"--run --run-id {approval.run_id})"
        )
