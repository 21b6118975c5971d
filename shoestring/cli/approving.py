"""`shoestring approve` and `approvals`: a person's yes to more money than a run may have without one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from shoestring.cli.running import JsonOption, StoreOption, WorldOption, world_at
from shoestring.cli.wishes import budget_of
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.data.run_records import open_run
from shoestring.runtime.admission.approvals import budget_now, give_approval, waiting
from shoestring.spending.approvals import HOW_LONG, Approval, approvals, requested


def moment(text: str) -> datetime:
    """A day, meaning its end, or a moment; in UTC where no zone is given. Raises UsageError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--until {text!r}: write a day like 2026-12-24, or a moment like 2026-12-24T18:00"
        ) from None
    if len(text) == len("2026-12-24"):
        found = found.replace(hour=23, minute=59, second=59)
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)


def approve(
    run: Annotated[str, typer.Argument(help="the run that waits, or that is under way and is to have more")],
    by: Annotated[str, typer.Option(help="who says yes")],
    usd: Annotated[
        str | None, typer.Option("--usd", help="dollars for the run as a whole; default: what it asked for")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="day or moment (UTC) after which it no longer counts; default: in 7 days"),
    ] = None,
    why: Annotated[str, typer.Option(help="what for")] = "",
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Allow a run its budget, or more of it: who, how much and until when stand in the ledger's store from then on."""
    opened = world_at(world, store)
    found, request, now = open_run(opened.store, run), requested(opened.store, run), opened.clock.now()
    if usd is None and request is None:
        raise UsageError(f"{run} waits for no approval: say with --usd how much it may have")
    approval = Approval(
        run_id=run,
        by=by,
        at=now,
        amount_usd=budget_of(usd, request.budget_usd if request else found.record.recipe.budget_usd, "--usd"),
        expires_at=moment(until) if until else now + HOW_LONG,
        why=why,
        pod_uid=opened.pod_uid,
    )
    total_usd, account = budget_now(opened, found) if found.starts else (approval.amount_usd, None)
    raised = give_approval(opened, approval, account, total_usd)
    if as_json:
        typer.echo(json.dumps(approval.model_dump(mode="json"), indent=1))
        return
    typer.echo(
        f"{run} may spend ${approval.amount_usd}, says {by}, until {approval.expires_at:%Y-%m-%d %H:%M} UTC"
    )
    if raised:
        typer.echo(
            f"{found.start.account} is under way, and had ${total_usd}: what it has not routed yet may use the rest"
        )
    elif not found.starts:
        typer.echo(
            f"begin it: shoestring run --resume {run}     (on a cluster: let its engine try the run again)"
        )


def shown(world: World) -> list[dict[str, Any]]:
    """Runs that wait or were allowed something, each with what was given to it."""
    asked = {key.split("/")[1] for key in world.store.list("runs/") if key.endswith("/awaits.json")}
    given = {key.split("/")[1] for key in world.store.list("ledger/") if "/approvals/" in key}
    found = []
    for run in sorted(asked | given):
        request, now = waiting(world, run), world.clock.now()
        allowed = [
            each.model_dump(mode="json") | {"sha256": sha256, "expired": each.expires_at <= now}
            for sha256, each in sorted(approvals(world.store, run).items(), key=lambda pair: pair[1].at)
        ]
        found.append(
            {"run_id": run, "waits_for": request and request.model_dump(mode="json"), "approvals": allowed}
        )
    return found


def list_approvals(world: WorldOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show which runs wait for an approval, and which approvals were given."""
    found = shown(world_at(world, store))
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for run in found:
        if asked := run["waits_for"]:
            typer.echo(
                f"{run['run_id']} waits: it asks for ${asked['budget_usd']}: shoestring approve {run['run_id']} --by NAME"
            )
        for each in run["approvals"]:
            why, end = f" ({each['why']})" if each["why"] else "", "expired" if each["expired"] else "until"
            typer.echo(
                f"{run['run_id']}: ${each['amount_usd']} by {each['by']} on {each['at']}, {end} {each['expires_at']}{why}"
            )


def add_to(app: typer.Typer) -> None:
    app.command()(approve)
    app.command("approvals")(list_approvals)
