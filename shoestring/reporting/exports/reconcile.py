"""The ledger beside what OpenCost allocated: by run and stage, with a line for what neither explains.

theirs = lines + idle + shared + unmounted + others' workloads                       to the micro-dollar, as it was read
a line: theirs - ours = idle, shared and beside (inside of theirs) - fees (inside of ours) + unexplained
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record, StoredRecord
from shoestring.reporting.charges import Charge
from shoestring.reporting.exports.opencost import Allocation


class Line(Record):
    """One stage of one run. `stage` is empty where only the run of a pod could be told."""

    run_id: str
    stage: str
    ledger_usd: Usd
    fees_usd: Usd = Field(
        description="for moving and holding data, by the declared tariffs: in ours, and in no pod's allocation"
    )
    theirs_usd: Usd
    idle_usd: Usd = Field(
        description="idle time of the cluster that theirs holds, where they were asked to share it out"
    )
    shared_usd: Usd = Field(description="others' costs that theirs holds")
    beside_usd: Usd = Field(
        description="volumes, network, load balancers, external: in theirs, and in no ledger of pods"
    )
    unexplained_usd: Usd = Field(description="theirs less ours, each without all of these")
    where: Literal["both", "ledger", "theirs"]


class Reconciliation(StoredRecord):
    """Ours and theirs over [since, until)."""

    since: AwareDatetime
    until: AwareDatetime
    lines: tuple[Line, ...]
    ledger_usd: Usd
    theirs_usd: Usd = Field(description="all that they allocated, others' workloads included")
    ours_of_theirs_usd: Usd = Field(description="the part of it that the lines hold")
    idle_usd: Usd = Field(description="their line of idle nodes")
    shared_usd: Usd = Field(description="their line of shared costs")
    unmounted_usd: Usd = Field(description="their line of volumes that no pod mounts")
    elsewhere_usd: Usd = Field(description="workloads that are none of ours")
    unexplained_usd: Usd = Field(description="of all lines")
    notes: tuple[str, ...] = ()


def reconcile(
    charges: Sequence[Charge],
    allocations: Sequence[Allocation],
    since: datetime,
    until: datetime,
    notes: tuple[str, ...] = (),
) -> Reconciliation:
    """Charges whose pods began in [since, until), and allocations that did."""
    ours = [charge for charge in charges if since <= began(charge) < until]
    theirs = [each for each in allocations if since <= each.start < until]
    late = sum(charge.entry.at > until for charge in ours)
    said = (
        (
            f"{late} of these charges ended after {until:%Y-%m-%d %H:%M} UTC: the ledger has all of them, OpenCost a part",
        )
        if late
        else ()
    )
    keys = sorted(
        {_key(charge) for charge in ours}
        | {(each.run, each.stage) for each in theirs if each.run is not None}
    )
    lines = [
        _line(
            key,
            [charge for charge in ours if _key(charge) == key],
            [each for each in theirs if (each.run, each.stage) == key],
        )
        for key in keys
    ]
    alone = {kind: [each for each in theirs if each.kind == kind] for kind in ("idle", "shared", "unmounted")}
    mine = [each for each in theirs if each.run is not None]
    return Reconciliation(
        since=since,
        until=until,
        lines=tuple(lines),
        ledger_usd=from_microusd(sum(charge.paid_microusd for charge in ours)),
        theirs_usd=_total(theirs),
        ours_of_theirs_usd=_total(mine),
        idle_usd=_total(alone["idle"]),
        shared_usd=_total(alone["shared"]),
        unmounted_usd=_total(alone["unmounted"]),
        elsewhere_usd=_total(each for each in theirs if each.kind == "pod" and each.run is None),
        unexplained_usd=sum((line.unexplained_usd for line in lines), from_microusd(0)),
        notes=said + notes,
    )


def began(charge: Charge) -> datetime:
    """When its pod did, or its start; of what was not written down, when it was settled."""
    if charge.receipt:
        return charge.receipt.started_at
    return charge.start.started_at if charge.start else charge.entry.at


def _key(charge: Charge) -> tuple[str, str]:
    return charge.run_id, charge.entry.stage


def _total(allocations: Iterable[Allocation]) -> Usd:
    return from_microusd(sum(each.total for each in allocations))


def _line(key: tuple[str, str], charges: Sequence[Charge], allocations: Sequence[Allocation]) -> Line:
    fees = sum(charge.parts.fees for charge in charges)
    ours, theirs = sum(charge.paid_microusd for charge in charges), sum(each.total for each in allocations)
    idle, shared, beside = (
        sum(getattr(each, name) for each in allocations) for name in ("idle", "shared", "beside")
    )
    return Line(
        run_id=key[0],
        stage=key[1],
        ledger_usd=from_microusd(ours),
        fees_usd=from_microusd(fees),
        theirs_usd=from_microusd(theirs),
        idle_usd=from_microusd(idle),
        shared_usd=from_microusd(shared),
        beside_usd=from_microusd(beside),
        unexplained_usd=from_microusd(theirs - (ours - fees) - idle - shared - beside),
        where="both" if charges and allocations else "ledger" if charges else "theirs",
    )
