"""The columns of FOCUS 1.2: which are mandatory, their types, nulls and allowed values."""

from __future__ import annotations

from typing import NamedTuple


def names(text: str) -> set[str]:
    """Return the names in a text that separates them by commas."""
    return {" ".join(name.split()) for name in text.split(",")}


CHARGE_CATEGORIES = {"Usage", "Purchase", "Tax", "Credit", "Adjustment"}
FREQUENCIES = {"One-Time", "Recurring", "Usage-Based"}
PRICING_CATEGORIES = {"Standard", "Dynamic", "Committed", "Other"}
SERVICE_CATEGORIES = names(
    """
    AI and Machine Learning, Analytics, Business Applications, Compute, Databases, Developer Tools,
    Multicloud, Identity, Integration, Internet of Things, Management and Governance, Media,
    Migration, Mobile, Networking, Security, Storage, Web, Other
    """
)
COMPUTE = names(
    """
    Containers, End User Computing, Quantum Compute, Serverless Compute, Virtual Machines, Other
    (Compute)
    """
)
NETWORKING = names(
    """
    Application Networking, Content Delivery, Network Connectivity, Network Infrastructure, Network
    Routing, Network Security, Other (Networking)
    """
)
STORAGE = names(
    """
    Backup Storage, Block Storage, File Storage, Object Storage, Storage Platform, Other (Storage)
    """
)
SKU_PROPERTIES = {
    **dict.fromkeys(
        (
            "CoreCount",
            "DiskMaxIops",
            "DiskSpace",
            "GpuCount",
            "MemorySize",
            "NetworkMaxIops",
            "NetworkMaxThroughput",
        ),
        float,
    ),
    **dict.fromkeys(
        ("DiskType", "InstanceType", "InstanceSeries", "OperatingSystem", "Redundancy", "StorageClass"), str
    ),
}


class Column(NamedTuple):
    kind: str
    nullable: bool = True
    allowed: frozenset[str] = frozenset()


def text(*, nullable: bool = True, allowed: set[str] | None = None) -> Column:
    return Column("string", nullable, frozenset(allowed or ()))


# "Mandatory" columns.
MANDATORY = {
    **dict.fromkeys(
        ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), Column("decimal", nullable=False)
    ),
    **dict.fromkeys(
        ("BillingAccountId", "InvoiceIssuerName", "ProviderName", "PublisherName", "ServiceName"),
        text(nullable=False),
    ),
    **dict.fromkeys(
        ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"),
        Column("moment", nullable=False),
    ),
    "BillingAccountName": text(),
    "BillingCurrency": text(nullable=False, allowed={"USD"}),
    "ChargeCategory": text(nullable=False, allowed=CHARGE_CATEGORIES),
    "ChargeClass": text(allowed={"Correction"}),
    "ChargeDescription": text(),
    "PricingQuantity": Column("decimal"),
    "PricingUnit": text(),
    "ServiceCategory": text(nullable=False, allowed=SERVICE_CATEGORIES),
}
# "Recommended" columns, and "Conditional" ones that apply here: unit prices, regions, resources, commitments,
# several pricing categories, tags.
OTHER = {
    "ChargeFrequency": text(nullable=False, allowed=FREQUENCIES),
    "InvoiceId": text(),
    "ServiceSubcategory": text(nullable=False, allowed=COMPUTE | NETWORKING | STORAGE),
    "PricingCategory": text(allowed=PRICING_CATEGORIES),
    **dict.fromkeys(
        ("ContractedUnitPrice", "ListUnitPrice", "ConsumedQuantity", "CommitmentDiscountQuantity"),
        Column("decimal"),
    ),
    "CommitmentDiscountCategory": text(allowed={"Spend", "Usage"}),
    "CommitmentDiscountStatus": text(allowed={"Used", "Unused"}),
    **dict.fromkeys(
        (
            "CommitmentDiscountId",
            "CommitmentDiscountName",
            "CommitmentDiscountType",
            "CommitmentDiscountUnit",
        ),
        text(),
    ),
    **dict.fromkeys(
        ("ConsumedUnit", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType"), text()
    ),
    **dict.fromkeys(("SkuId", "SkuMeter", "SkuPriceId", "SubAccountId", "SubAccountName"), text()),
    **dict.fromkeys(("SkuPriceDetails", "Tags"), Column("object")),
}
COLUMNS = MANDATORY | OTHER
