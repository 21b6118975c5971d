"""`shoestring approve`: a named person approves the budget of a run."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated

import typer

from shoestring.cli.local_world import open_world_at
from shoestring.cli.options import JsonOption, StoreOption, WorldOption, budget_from_option
from shoestring.cli.times import parse_expiry
from shoestring.core.errors import UsageError
from shoestring.data.run_records import Run, open_run
from shoestring.runtime.admission.approvals import current_budget, give_approval
from shoestring.spending.approvals import DEFAULT_VALIDITY, Approval, read_approval_request

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


def approve(
    run: RunArgument,
    by: Annotated[str, typer.Option(help="name of the person who approves")],
    usd: AmountOption = None,
    until: ExpiryOption = None,
    reason: Annotated[str, typer.Option(help="reason, for the record")] = "",
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve the budget of a run, or more of it.

    The store of the ledger records who approved how much, and until when.
    """
    opened = open_world_at(world, store)
    found, request = open_run(opened.store, run), read_approval_request(opened.store, run)
    now = opened.clock.now()
    if usd is None and request is None:
        raise UsageError(f"{run} has not requested an approval: give the amount with --usd")
    default_usd = request.budget_usd if request else found.record.recipe.budget_usd
    approval = Approval(
        run_id=run,
        approved_by=by,
        approved_at=now,
        amount_usd=budget_from_option(usd, "--usd") or default_usd,
        expires_at=parse_expiry(until) if until else now + DEFAULT_VALIDITY,
        reason=reason,
        pod=opened.pod,
    )
    total_usd, account = current_budget(opened, found) if found.starts else (approval.amount_usd, None)
    raised = give_approval(opened, approval, account, total_usd)
    if as_json:
        typer.echo(json.dumps(approval.model_dump(mode="json"), indent=1))
    else:
        print_approval(approval, found, total_usd if raised else None)


def print_approval(approval: Approval, run: Run, raised_from_usd: Decimal | None) -> None:
    """Print the approval and the next step. `raised_from_usd`: the earlier budget of a running run."""
    until = f"{approval.expires_at:%Y-%m-%d %H:%M} UTC"
    typer.echo(f"{approval.approved_by} approved ${approval.amount_usd} for {approval.run_id}, until {until}")
    if raised_from_usd is not None:
        typer.echo(
            f"{run.start.account} is running and had ${raised_from_usd}: "
            "stages not routed yet may use the additional amount"
        )
    elif not run.starts:
        typer.echo(
            f"start it: shoestring run --resume {approval.run_id}     (on a cluster: retry the run in its "
            "engine)"
        )
