"""A month of the ledger as cost rows of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

Each row is one thing that the money bought: an attempt's computing, its start-up, its idle cores or GPUs, an
attempt without a result, transferring its data, storing what it wrote, the overhead of a start, or an
adjustment. Costs sum to the ledger, to the micro-dollar. An attempt whose records are lost becomes an
"Adjustment", which needs no price.

    EffectiveCost = ListCost = ContractedCost = price x hours    at the price of the decision, the only list
    BilledCost    = the same, or 0 for reserved machines, whose commitment was billed when it was bought

The provider of the machines issues the invoices, not Shoestring. The ledger does not know their numbers, so
`InvoiceId` is null.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from shoestring.core.attempt_id import declared_stage
from shoestring.core.money import from_microusd
from shoestring.core.types import Market
from shoestring.reporting.charges import OVERHEAD, Charge, split_charge
from shoestring.reporting.exports.csv_cells import plain_cell
from shoestring.routing.offers.egress import billed_gb
from shoestring.routing.placement import RUN_LABEL, STAGE_LABEL
from shoestring.spending.ledger.entry import Entry

COLUMN_NAMES = """
BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd BillingPeriodStart
ChargeCategory ChargeClass ChargeDescription ChargeFrequency ChargePeriodEnd ChargePeriodStart
CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountQuantity
CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit ConsumedQuantity ConsumedUnit
ContractedCost ContractedUnitPrice EffectiveCost InvoiceId InvoiceIssuerName ListCost ListUnitPrice
PricingCategory PricingQuantity PricingUnit ProviderName PublisherName RegionId RegionName ResourceId
ResourceName ResourceType ServiceCategory ServiceName ServiceSubcategory SkuId SkuMeter SkuPriceDetails
SkuPriceId SubAccountId SubAccountName Tags
"""
EXTENSION_COLUMN_NAMES = """
x_Attempt x_Command x_DecisionKey x_EstimatedCost x_GpuBusy x_GpuJoules x_GpuMemoryPeak x_Kind
x_LedgerAccount x_LedgerEntry x_P95Cost x_Recipe x_RunId x_Stage x_Status
"""
COLUMNS = tuple(COLUMN_NAMES.split())
EXTENSION_COLUMNS = tuple(EXTENSION_COLUMN_NAMES.split())
CAMPAIGN_TAG = "shoestring.dev/campaign"
HOURS = "Hours"
PRICING = {Market.ON_DEMAND: "Standard", Market.SPOT: "Dynamic", Market.RESERVED: "Committed"}
QUANTITY_QUANTUM = Decimal("1e-12")
"""The precision of hours, volumes and mean prices: the error of a product stays far below a micro-dollar."""

GB_PER_GIB = 1.073741824
FEES = {
    "transfer": {
        "ServiceCategory": "Networking",
        "ServiceSubcategory": "Other (Networking)",
        "ServiceName": "Data transfer",
    },
    "storage": {
        "ServiceCategory": "Storage",
        "ServiceSubcategory": "Object Storage",
        "ServiceName": "Stored data",
    },
}
"""The services that are paid by volume, not by time."""

UNITS = {"transfer": "GB", "storage": "GB-Months"}

KINDS = {
    "compute": "computing",
    "startup": "start-up: time outside the attempt's own seconds",
    "idle_cores": "idle cores",
    "idle_gpus": "GPUs on which no kernel ran",
    "lost": "an attempt without a result",
    "transfer": "transferring its data",
    "storage": "storing the data written",
    "overhead": "routing and settling",
    "adjustment": "adjustment",
}

Row = dict[str, str]


def focus_rows(charges: Iterable[Charge], provider: str) -> Iterator[Row]:
    """Yield the rows of these charges. `provider`: the provider name in the rows."""
    for charge in charges:
        common = _common(charge, provider)
        parts = split_charge(replace(charge, adjustments=()))
        names = [name for name in KINDS if name != "adjustment"]
        amounts = [(name, getattr(parts, f"{name}_microusd")) for name in names]
        paid = [(name, amount) for name, amount in amounts if amount] or [
            ("overhead" if charge.entry.stage == OVERHEAD else "compute", 0)
        ]
        for number, (kind, amount) in enumerate(paid):
            of_attempt = {**_estimates(charge), **_gpu_use(charge)} if number == 0 else {}
            yield common | of_attempt | _money(charge, charge.entry, charge.settlement.sha256, kind, amount)
        for sealed in charge.adjustments:
            yield common | _money(
                charge, sealed.entry, sealed.sha256, "adjustment", sealed.entry.amount_microusd
            )


def focus_csv(rows: Iterable[Row]) -> str:
    """Return the rows as CSV with a header; missing values are empty, and no cell begins a formula."""
    out = io.StringIO()
    writer = csv.DictWriter(out, (*COLUMNS, *EXTENSION_COLUMNS), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain_cell(cell) for name, cell in row.items()} for row in rows)
    return out.getvalue()


def total_microusd(charges: Sequence[Charge]) -> int:
    return sum(charge.paid_microusd for charge in charges)


def month_period(month: str) -> tuple[datetime, datetime]:
    """Return the start of a month like 2026-11, and the start of the next one."""
    start = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    return start, (start + timedelta(days=32)).replace(day=1)


def _common(charge: Charge, provider: str) -> Row:
    start, end = month_period(charge.month)
    started_at, ended_at = _charge_period(charge)
    return {
        "BillingAccountId": provider,
        "BillingCurrency": "USD",
        "BillingPeriodStart": _moment(start),
        "BillingPeriodEnd": _moment(end),
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _moment(started_at),
        "ChargePeriodEnd": _moment(ended_at),
        "InvoiceIssuerName": provider,
        "ProviderName": provider,
        "PublisherName": provider,
        "ServiceCategory": "Compute",
        "ServiceName": "Pipeline pods",
        "ServiceSubcategory": "Containers",
        "SubAccountId": charge.campaign,
        "SubAccountName": charge.campaign,
        "Tags": _json(_tags(charge)),
        **_resource(charge),
        "x_Attempt": str(charge.entry.attempt),
        "x_LedgerAccount": charge.entry.account,
        "x_RunId": charge.run_id,
        "x_Stage": charge.entry.stage,
        "x_Recipe": charge.run.recipe.name if charge.run and charge.run.recipe else "",
        "x_Command": charge.run.command.text if charge.run and charge.run.command else "",
        "x_DecisionKey": charge.receipt.decision_key if charge.receipt else "",
        "x_Status": charge.receipt.status if charge.receipt else "",
    }


def _money(charge: Charge, entry: Entry, sha256: str, kind: str, microusd: int) -> Row:
    """Return the cost columns. An adjustment after the end of its month corrects an invoice."""
    cost, fee = from_microusd(microusd), FEES.get(kind)
    late = kind == "adjustment" and entry.at >= month_period(charge.month)[1]
    bought = _volume(charge, kind, cost) if fee else _hours(charge, cost)
    row = {
        "ChargeClass": "Correction" if late else "",
        "ChargeDescription": _description(charge, entry, kind, None if fee else charge.usd_per_hour),
        "EffectiveCost": str(cost),
        "ListCost": str(cost),
        "ContractedCost": str(cost),
        "x_Kind": kind,
        "x_LedgerEntry": sha256,
    }
    if bought is None:
        return row | {"BilledCost": str(cost), "ChargeCategory": "Adjustment"}
    price, quantity = bought
    unit, pricing = (UNITS[kind], "Standard") if fee else (HOURS, PRICING[charge.market])
    row |= {
        "BilledCost": "0" if pricing == "Committed" else str(cost),
        "ChargeCategory": "Usage",
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "ContractedUnitPrice": str(price),
        "ListUnitPrice": str(price),
        "PricingCategory": pricing,
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        **({**fee, "SkuId": kind, "SkuMeter": UNITS[kind], "SkuPriceId": kind} if fee else _sku(charge)),
    }
    return row | (_commitment(charge, quantity) if pricing == "Committed" else {})


def _hours(charge: Charge, cost: Decimal) -> tuple[Decimal, str] | None:
    """Return the hourly price and the paid hours, or None if the price is unknown.

    For a machine without a price, the hours are those measured.
    """
    price = charge.usd_per_hour
    if price is None:
        return None
    measured_s = charge.receipt.seconds if charge.receipt else 0.0
    hours = cost / price if price else Decimal(str(measured_s)) / 3600
    return price, f"{hours.quantize(QUANTITY_QUANTUM).normalize():f}"


def _volume(charge: Charge, kind: str, cost: Decimal) -> tuple[Decimal, str] | None:
    """Return the mean price of a GB or GB-month, and the paid quantity; None without records."""
    decision, receipt = charge.decision, charge.receipt
    if decision is None or decision.choice is None or receipt is None:
        return None
    read_gb, written_gb, stored_gb_months = billed_gb(decision.question, decision.choice)
    volume = (
        stored_gb_months if kind == "storage" else read_gb + (written_gb if receipt.status == "done" else 0.0)
    )
    quantity = max(Decimal(str(volume)).quantize(QUANTITY_QUANTUM), QUANTITY_QUANTUM)
    return (cost / quantity).quantize(QUANTITY_QUANTUM), f"{quantity.normalize():f}"


def _charge_period(charge: Charge) -> tuple[datetime, datetime]:
    """Return the period in whole seconds, rounded outwards and never empty."""
    if charge.receipt:
        started_at, ended_at = charge.receipt.started_at, charge.receipt.finished_at
    else:
        started_at, ended_at = charge.start.started_at if charge.start else charge.entry.at, charge.entry.at
    started_at = started_at.replace(microsecond=0)
    return started_at, max(started_at, ended_at - timedelta(microseconds=1)).replace(
        microsecond=0
    ) + timedelta(seconds=1)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _description(charge: Charge, entry: Entry, kind: str, price: Decimal | None) -> str:
    at = f" at ${price.normalize():f} an hour" if price is not None else ""
    on = f" on {charge.pool.name} {charge.market}" if charge.pool else ""
    why = f"; {entry.reason}" if kind == "adjustment" and entry.reason else ""
    attempt = f"{charge.entry.stage}, attempt {charge.entry.attempt} of run {charge.run_id}"
    return f"{attempt}{on}{at}: {KINDS[kind]}{why}"


def _tags(charge: Charge) -> dict[str, str]:
    """Return the labels of the pod, and the campaign."""
    tags = {RUN_LABEL: charge.run_id, STAGE_LABEL: declared_stage(charge.entry.stage)}
    return tags | ({CAMPAIGN_TAG: charge.campaign} if charge.campaign else {})


def _resource(charge: Charge) -> Row:
    region = charge.pool.region if charge.pool else ""
    pod = str(charge.receipt.pod) if charge.receipt and charge.receipt.pod else ""
    return {"RegionId": region, "RegionName": region, "ResourceId": pod, "ResourceType": "Pod" if pod else ""}


def _sku(charge: Charge) -> Row:
    """Return the SKU columns: the SKU is a pool, and each market of it has its own price."""
    pool = charge.pool
    if pool is None:
        return {"SkuId": OVERHEAD, "SkuMeter": "Pod time", "SkuPriceId": f"{OVERHEAD}/{charge.market}"}
    details: dict[str, Any] = {
        "CoreCount": pool.cores,
        "MemorySize": round(pool.memory_gb / GB_PER_GIB, 3),
        "InstanceType": pool.node_pool or pool.name,
    }
    if pool.gpu_count:
        details |= {"GpuCount": pool.gpu_count} | ({"x_GpuType": pool.gpu} if pool.gpu else {})
    sku = {"SkuId": pool.name, "SkuMeter": "Pod time", "SkuPriceId": f"{pool.name}/{charge.market}"}
    return sku | {"SkuPriceDetails": _json(details)}


def _commitment(charge: Charge, hours: str) -> Row:
    name = f"{charge.pool.name if charge.pool else OVERHEAD}/{charge.market}"
    return {
        "CommitmentDiscountCategory": "Usage",
        "CommitmentDiscountId": name,
        "CommitmentDiscountName": name,
        "CommitmentDiscountQuantity": hours,
        "CommitmentDiscountStatus": "Used",
        "CommitmentDiscountType": "Reservation",
        "CommitmentDiscountUnit": HOURS,
    }


def _estimates(charge: Charge) -> Row:
    """Return the estimates of the whole attempt, for its first row only, so that they can be summed."""
    choice = charge.decision.choice if charge.decision else None
    return {"x_EstimatedCost": str(choice.est_usd), "x_P95Cost": str(choice.p95_usd)} if choice else {}


def _gpu_use(charge: Charge) -> Row:
    """Return what its GPUs reported of the whole attempt, for its first row only."""
    use = charge.receipt.gpu if charge.receipt else None
    if use is None:
        return {}
    memory = use.peak_memory_bytes or None
    found = {"x_GpuBusy": use.busy, "x_GpuJoules": use.joules, "x_GpuMemoryPeak": memory}
    return {name: str(value) for name, value in found.items() if value is not None}


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, ensure_ascii=False)
