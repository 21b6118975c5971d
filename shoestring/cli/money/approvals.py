"""`shoestring approvals`."""

from __future__ import annotations

import json
from typing import Any

import typer

from shoestring.cli.options import JsonOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.runtime.admission.approvals import pending_approval
from shoestring.spending.approvals import read_approvals


def approval_states(world: World) -> list[dict[str, Any]]:
    """Return the runs that requested or received an approval, each with its approvals."""
    run_keys, ledger_keys = world.store.list(store_layout.RUNS), world.store.list(store_layout.LEDGER)
    requested = {key.split("/")[1] for key in run_keys if key.endswith("/approval-request.json")}
    approved = {key.split("/")[1] for key in ledger_keys if "/approvals/" in key}
    found = []
    for run in sorted(requested | approved):
        request, now = pending_approval(world, run), world.clock.now()
        given = sorted(read_approvals(world.store, run).items(), key=lambda pair: pair[1].approved_at)
        approvals = [
            each.model_dump(mode="json") | {"sha256": sha256, "expired": each.expires_at <= now}
            for sha256, each in given
        ]
        found.append(
            {
                "run_id": run,
                "pending_request": request and request.model_dump(mode="json"),
                "approvals": approvals,
            }
        )
    return found


@takes_world
def list_approvals(source: WorldSource = DEFAULT_WORLD, as_json: JsonOption = False) -> None:
    """List pending and given approvals."""
    found = approval_states(source.open())
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for run in found:
        if requested := run["pending_request"]:
            typer.echo(
                f"{run['run_id']} waits for approval of ${requested['budget_usd']}: "
                f"shoestring approve {run['run_id']} --by NAME"
            )
        for each in run["approvals"]:
            reason = f" ({each['reason']})" if each["reason"] else ""
            end = "expired" if each["expired"] else "until"
            typer.echo(
                f"{run['run_id']}: ${each['amount_usd']} approved by {each['approved_by']} "
                f"on {each['approved_at']}, {end} {each['expires_at']}{reason}"
            )
