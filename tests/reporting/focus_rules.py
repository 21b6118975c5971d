"""The rules of FOCUS 1.2 that a file alone can show: columns, types, nulls, values, and relations between
columns.

Source: the specification's repository (FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec, tag v1.2:
specification/columns and /attributes). Not checked, because a file does not show them: agreement with an
issued invoice or a published price list, and identity across months.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal

from focus_columns import COLUMNS, MANDATORY, SKU_PROPERTIES

Row = dict[str, str]

NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)(E-?\d+)?")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
OWN = re.compile(r"x_[A-Z][A-Za-z0-9]{0,47}")
HALF_A_MICRO = Decimal("0.0000005")


def violations(file: str) -> list[str]:
    """Return each violation as `row: column: rule`; the header is row 0."""
    reader = csv.DictReader(io.StringIO(file))
    found = [f"0: {message}" for message in _header(list(reader.fieldnames or ()))]
    rows = list(reader)
    for number, row in enumerate(rows, 1):
        found += [f"{number}: {message}" for message in _cells(row)]
        if not found:
            found += [f"{number}: {message}" for message in _owed(row)]
    return found or list(_across(rows))


def _header(names: list[str]) -> Iterator[str]:
    yield from (f"{name}: is mandatory" for name in MANDATORY if name not in names)
    yield from (
        f"{name}: is neither of FOCUS nor x_"
        for name in names
        if name not in COLUMNS and not OWN.fullmatch(name)
    )
    yield from (f"{name}: is there twice" for name in {name for name in names if names.count(name) > 1})
    own = [name.startswith("x_") for name in names]
    if own != sorted(own):
        yield "own columns stand after those of FOCUS"


def _cells(row: Row) -> Iterator[str]:
    for name, column in COLUMNS.items():
        value = row.get(name, "")
        if not value:
            if not column.nullable:
                yield f"{name}: is null"
            continue
        if value != value.strip() or value.lower() in ("null", "none", "n/a", "not applicable"):
            yield f"{name}: {value!r} stands in for null"
        if column.allowed and value not in column.allowed:
            yield f"{name}: {value!r} is not an allowed value"
        if column.kind == "decimal" and not NUMBER.fullmatch(value):
            yield f"{name}: {value!r} is not a number"
        if column.kind == "moment" and not MOMENT.fullmatch(value):
            yield f"{name}: {value!r} is not a moment in UTC"
        if column.kind == "object":
            yield from (f"{name}: {message}" for message in _object(value))


def _object(value: str) -> Iterator[str]:
    twice: list[str] = []

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        twice.extend(name for name in names if names.count(name) > 1)
        return dict(pairs)

    try:
        content = json.loads(value, object_pairs_hook=unique)
    except json.JSONDecodeError:
        content = None
    if not isinstance(content, dict):
        yield "is not an object in JSON"
        return
    yield from (f"{name} is there twice" for name in set(twice))
    yield from (
        f"{name} holds an object or an array"
        for name, held in content.items()
        if isinstance(held, dict | list)
    )


def _owed(row: Row) -> Iterator[str]:
    """Yield the violated relations between the columns of one row."""
    for name, (rule, holds) in ROW_RULES.items():
        if not holds(row):
            yield f"{name}: {rule}"


def _priced(row: Row) -> bool:
    return row["ChargeCategory"] in ("Usage", "Purchase") and row["ChargeClass"] != "Correction"


def _together(*names: str) -> Callable[[Row], bool]:
    return lambda row: len({bool(row[name]) for name in names}) == 1


def _is_there_when_priced(name: str) -> Callable[[Row], bool]:
    return lambda row: bool(row[name]) or not _priced(row)


def _product(price: str, cost: str) -> Callable[[Row], bool]:
    def holds(row: Row) -> bool:
        if not row[price] or not row["PricingQuantity"] or row["ChargeClass"] == "Correction":
            return True
        return abs(Decimal(row[price]) * Decimal(row["PricingQuantity"]) - Decimal(row[cost])) < HALF_A_MICRO

    return holds


def _properties(row: Row) -> bool:
    details = json.loads(row["SkuPriceDetails"] or "{}")
    return all(
        (isinstance(value, str) if SKU_PROPERTIES[name] is str else isinstance(value, int | float))
        if name in SKU_PROPERTIES
        else name.startswith("x_")
        for name, value in details.items()
    )


def _billed(row: Row) -> bool:
    return row["CommitmentDiscountStatus"] != "Used" or Decimal(row["BilledCost"]) == 0


ROW_RULES: dict[str, tuple[str, Callable[[Row], bool]]] = {
    **{
        name: ("is null though its charge is priced", _is_there_when_priced(name))
        for name in (
            "ListUnitPrice",
            "ContractedUnitPrice",
            "PricingCategory",
            "PricingQuantity",
            "SkuId",
            "SkuPriceId",
        )
    },
    "ConsumedQuantity": (
        "is there for usage, and for nothing else",
        lambda row: (
            bool(row["ConsumedQuantity"])
            == (row["ChargeCategory"] == "Usage" and row["CommitmentDiscountStatus"] != "Unused")
            or (row["ChargeClass"] == "Correction" and not row["ConsumedQuantity"])
        ),
    ),
    "ConsumedUnit": ("comes with ConsumedQuantity", _together("ConsumedUnit", "ConsumedQuantity")),
    "PricingUnit": ("comes with PricingQuantity", _together("PricingUnit", "PricingQuantity")),
    "RegionName": ("comes with RegionId", _together("RegionName", "RegionId")),
    "ResourceType": ("comes with ResourceId", _together("ResourceType", "ResourceId")),
    "ResourceName": (
        "needs a ResourceId, and is not the same",
        lambda row: not row["ResourceName"] or row["ResourceName"] != row["ResourceId"] != "",
    ),
    "SkuMeter": ("comes with SkuId", _together("SkuMeter", "SkuId")),
    "SkuPriceDetails": (
        "needs a SkuPriceId",
        lambda row: bool(row["SkuPriceId"]) or not row["SkuPriceDetails"],
    ),
    "SkuPriceDetails.": ("holds FOCUS's properties by its types, and others as x_", _properties),
    "SubAccountName": ("comes with SubAccountId", _together("SubAccountName", "SubAccountId")),
    "CommitmentDiscountCategory": (
        "and the other columns of a commitment come together, when the pricing is Committed",
        lambda row: (
            _together(
                *(
                    f"CommitmentDiscount{part}"
                    for part in ("Id", "Name", "Category", "Type", "Status", "Quantity", "Unit")
                )
            )(row)
            and bool(row["CommitmentDiscountId"]) == (row["PricingCategory"] == "Committed")
        ),
    ),
    "BilledCost": ("is 0 where a commitment covers it", _billed),
    "BilledCost.": (
        "is 0 where the provider does not issue the invoice",
        lambda row: row["ProviderName"] == row["InvoiceIssuerName"] or Decimal(row["BilledCost"]) == 0,
    ),
    "ListCost": ("is ListUnitPrice x PricingQuantity", _product("ListUnitPrice", "ListCost")),
    "ContractedCost": (
        "is ContractedUnitPrice x PricingQuantity",
        _product("ContractedUnitPrice", "ContractedCost"),
    ),
    "EffectiveCost": (
        "is BilledCost, of a charge that stands alone",
        lambda row: row["ChargeCategory"] in ("Usage", "Tax") or row["EffectiveCost"] == row["BilledCost"],
    ),
    "ListUnitPrice.": ("is not negative", lambda row: not row["ListUnitPrice"].startswith("-")),
    "ContractedUnitPrice.": ("is not negative", lambda row: not row["ContractedUnitPrice"].startswith("-")),
    "ChargeFrequency": (
        "is not Usage-Based for a purchase",
        lambda row: (row["ChargeCategory"], row["ChargeFrequency"]) != ("Purchase", "Usage-Based"),
    ),
    "ChargePeriodEnd": ("is after its start", lambda row: row["ChargePeriodStart"] < row["ChargePeriodEnd"]),
    "BillingPeriodEnd": (
        "is after its start",
        lambda row: row["BillingPeriodStart"] < row["BillingPeriodEnd"],
    ),
}


def _across(rows: list[Row]) -> Iterator[str]:
    """Yield violations across rows: each service has one category and subcategory, each price one SKU, unit
    price and details.
    """
    for child, parents in (
        ("ServiceName", ("ServiceCategory", "ServiceSubcategory")),
        ("SkuPriceId", ("SkuId", "SkuPriceDetails", "PricingCategory", "RegionId")),
        ("SkuId", ("SkuMeter",)),
    ):
        seen: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for row in rows:
            if row[child]:
                seen[row[child]].add(tuple(row[parent] for parent in parents))
        yield from (
            f"all: {child}: {name} has more than one {' and '.join(parents)}"
            for name, of in seen.items()
            if len(of) > 1
        )
