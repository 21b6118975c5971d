"""The ledger compared with OpenCost's allocations, by run and stage, with the unexplained difference.

OpenCost = lines + idle + shared + unmounted + other workloads              to the micro-dollar, as parsed
a line: OpenCost - ledger = idle + shared + other - fees + unexplained      fees are in the ledger only
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core.attempt_id import declared_stage
from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record, StoredRecord
from shoestring.reporting.charges import Charge
from shoestring.reporting.exports.opencost import Allocation


class ReconciliationLine(Record):
    """One stage of one run. `stage` is empty if only the run of a pod is known."""

    run_id: str
    stage: str
    ledger_usd: Usd
    fees_usd: Usd = Field(
        description="fees for transferring and storing data, by the declared tariffs: only in the ledger"
    )
    opencost_usd: Usd
    idle_usd: Usd = Field(
        description="idle time of the cluster in OpenCost's costs, if it was asked to share idle costs"
    )
    shared_usd: Usd = Field(description="shared costs of other workloads in OpenCost's costs")
    other_usd: Usd = Field(
        description="volumes, network, load balancers, external costs: only in OpenCost's costs"
    )
    unexplained_usd: Usd = Field(description="OpenCost minus ledger, each without the items above")
    found_in: Literal["both", "ledger", "opencost"]


class Reconciliation(StoredRecord):
    """Ledger and OpenCost over [since, until)."""

    since: AwareDatetime
    until: AwareDatetime
    lines: tuple[ReconciliationLine, ...]
    ledger_usd: Usd
    opencost_usd: Usd = Field(description="everything that OpenCost allocated, other workloads included")
    opencost_shoestring_usd: Usd = Field(description="the part of it in the lines")
    idle_usd: Usd = Field(description="OpenCost's line of idle nodes")
    shared_usd: Usd = Field(description="OpenCost's line of shared costs")
    unmounted_usd: Usd = Field(description="OpenCost's line of volumes that no pod mounts")
    other_workloads_usd: Usd = Field(description="workloads outside Shoestring")
    unexplained_usd: Usd = Field(description="sum over all lines")
    notes: tuple[str, ...] = ()


def reconcile(
    charges: Sequence[Charge],
    allocations: Sequence[Allocation],
    since: datetime,
    until: datetime,
    notes: tuple[str, ...] = (),
) -> Reconciliation:
    """Compare the charges and the allocations whose pods began in [since, until)."""
    own_charges = [charge for charge in charges if since <= charge_started_at(charge) < until]
    in_period = [each for each in allocations if since <= each.start < until]
    late = sum(charge.entry.at > until for charge in own_charges)
    if late:
        ended = f"{late} of these charges ended after {until:%Y-%m-%d %H:%M} UTC"
        notes = (f"{ended}: the ledger counts them fully, OpenCost in part", *notes)
    keys = sorted(
        {_key(charge) for charge in own_charges}
        | {(each.run_id, each.stage) for each in in_period if each.run_id is not None}
    )
    lines = [_reconcile_line(key, own_charges, in_period) for key in keys]
    totals = {
        kind: _total(each for each in in_period if each.kind == kind)
        for kind in ("idle", "shared", "unmounted")
    }
    return Reconciliation(
        since=since,
        until=until,
        lines=tuple(lines),
        ledger_usd=from_microusd(sum(charge.paid_microusd for charge in own_charges)),
        opencost_usd=_total(in_period),
        opencost_shoestring_usd=_total(each for each in in_period if each.run_id is not None),
        idle_usd=totals["idle"],
        shared_usd=totals["shared"],
        unmounted_usd=totals["unmounted"],
        other_workloads_usd=_total(each for each in in_period if each.kind == "pod" and each.run_id is None),
        unexplained_usd=sum((line.unexplained_usd for line in lines), from_microusd(0)),
        notes=notes,
    )


def charge_started_at(charge: Charge) -> datetime:
    """Return the start of the pod or of the run; if neither was recorded, the time of the settlement."""
    if charge.receipt:
        return charge.receipt.started_at
    return charge.start.started_at if charge.start else charge.entry.at


def _key(charge: Charge) -> tuple[str, str]:
    # The pods of all items of a loop have one label.
    return charge.run_id, declared_stage(charge.entry.stage)


def _total(allocations: Iterable[Allocation]) -> Usd:
    return from_microusd(sum(each.total_microusd for each in allocations))


def _reconcile_line(
    key: tuple[str, str], all_charges: Sequence[Charge], all_allocations: Sequence[Allocation]
) -> ReconciliationLine:
    charges = [charge for charge in all_charges if _key(charge) == key]
    allocations = [each for each in all_allocations if (each.run_id, each.stage) == key]
    fees = sum(charge.parts.fees_microusd for charge in charges)
    ledger = sum(charge.paid_microusd for charge in charges)
    opencost = sum(each.total_microusd for each in allocations)
    idle, shared, other = (
        sum(getattr(each, f"{name}_microusd") for each in allocations) for name in ("idle", "shared", "other")
    )
    return ReconciliationLine(
        run_id=key[0],
        stage=key[1],
        ledger_usd=from_microusd(ledger),
        fees_usd=from_microusd(fees),
        opencost_usd=from_microusd(opencost),
        idle_usd=from_microusd(idle),
        shared_usd=from_microusd(shared),
        other_usd=from_microusd(other),
        unexplained_usd=from_microusd(opencost - (ledger - fees) - idle - shared - other),
        found_in="both" if charges and allocations else "ledger" if charges else "opencost",
    )
