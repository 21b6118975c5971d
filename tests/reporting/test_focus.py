"""The FOCUS export follows the specification's rules and sums to the ledger, to the micro-dollar."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from focus_columns import COLUMNS as KNOWN
from focus_columns import MANDATORY
from focus_rules import violations
from recorded_run import Recording
from run_stories import HOSTILE, STORIES, Story, done, far, resumed

from shoestring.core.money import from_microusd, usd
from shoestring.core.types import Market, MarketTerms, Pool
from shoestring.reporting.charges import read_charges
from shoestring.reporting.exports.focus import (
    COLUMNS,
    EXTENSION_COLUMNS,
    focus_csv,
    focus_rows,
    total_microusd,
)
from shoestring.routing.offers.egress import stage_transfers

GPU = Pool(
    name="a2-highgpu-1g",
    cores=12,
    memory_gb=85,
    gpu="A100",
    gpu_count=1,
    gpu_memory_gb=40,
    gpu_tflops=312,
    region="us-central1",
    markets={Market.RESERVED: MarketTerms()},
)


def reserved(folder: Path) -> Recording:
    """Record a run on a reserved machine."""
    run = Recording(folder, "4", (GPU,))
    run.start()
    run.route("ingest")
    run.end(6.1, rows=1)
    run.close()
    return run


def adjusted(folder: Path) -> Recording:
    """Record a run with three adjustments: one up, one down, and one after the end of its month."""
    run = Recording(folder)
    run.start()
    for stage in ("ingest", "preprocess"):
        run.route(stage)
        run.end(2.0, rows=1)
    run.ledger.adjust(
        run.account, "ingest-1", usd("0.000040"), "its pod's own times come to $0.000065", id="true-times"
    )
    run.ledger.adjust(
        run.account,
        "preprocess-1",
        usd("-0.000003"),
        "its pod's own times come to $0.000022",
        id="true-times",
    )
    run.clock.at = datetime(2026, 12, 1, tzinfo=UTC)
    run.ledger.adjust(run.account, "ingest-1", usd("0.000001"), "the node's bill", id="bill")
    return run


def without_records(folder: Path) -> Recording:
    run = done(folder)
    run.ledger.open("stray", usd("1"))
    run.ledger.reserve("stray", "ingest-1", "ingest", 1, usd("0.2"))
    run.ledger.settle("stray", "ingest-1", usd("0.15"))
    return run


def in_a_campaign(folder: Path) -> Recording:
    run = Recording(folder)
    run.ledger.open("spring.campaign", usd("1"))
    run.ledger.open("stray", usd("0.5"), campaign="spring.campaign")
    run.ledger.reserve("stray", "ingest-1", "ingest", 1, usd("0.2"))
    run.ledger.settle("stray", "ingest-1", usd("0.15"))
    return run


ALL = {
    **STORIES,
    **{story.__name__: story for story in (reserved, adjusted, far, without_records, in_a_campaign)},
}
EVERY = pytest.mark.parametrize("story", ALL.values(), ids=ALL)


def exported(run: Recording) -> str:
    return focus_csv(focus_rows(read_charges(run.store)[0], "laptop"))


def csv_rows(file: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file)))


@EVERY
def test_every_rule_of_the_specification_holds(story: Story, tmp_path: Path) -> None:
    assert violations(exported(story(tmp_path))) == []


@EVERY
def test_costs_sum_to_the_ledger_to_the_micro_dollar(story: Story, tmp_path: Path) -> None:
    run = story(tmp_path)
    charges, _ = read_charges(run.store)
    names = {charge.entry.account for charge in charges}
    rows = csv_rows(exported(run))
    for column in ("EffectiveCost", "ListCost", "ContractedCost"):
        assert sum((Decimal(row[column]) for row in rows), Decimal(0)) == sum(
            (run.ledger.state(name).spent_usd for name in names), Decimal(0)
        )
    billed = sum(
        (Decimal(row["BilledCost"]) for row in rows if row["PricingCategory"] != "Committed"), Decimal(0)
    )
    assert billed == sum(
        (Decimal(row["EffectiveCost"]) for row in rows if row["PricingCategory"] != "Committed"), Decimal(0)
    )


def test_a_closed_month_is_what_the_month_account_took(tmp_path: Path) -> None:
    run = resumed(tmp_path)
    charges, _ = read_charges(run.store, ["2026-11"])
    assert from_microusd(total_microusd(charges)) == run.ledger.state("2026-11").spent_usd > 0


def test_all_columns_are_in_the_specification_or_marked_as_extensions() -> None:
    assert set(COLUMNS) == set(KNOWN)
    assert list(COLUMNS) == sorted(COLUMNS)
    assert all(name.startswith("x_") for name in EXTENSION_COLUMNS)


def test_each_part_of_a_charge_has_its_own_row(tmp_path: Path) -> None:
    run = done(tmp_path)
    charge = next(charge for charge in read_charges(run.store)[0] if charge.entry.reservation == "train-1")
    assert charge.receipt is not None
    half = type(charge)(
        **(
            vars(charge)
            | {"receipt": charge.receipt.model_copy(update={"cpu_s": charge.receipt.seconds / 2})}
        )
    )
    rows = list(focus_rows([half], "laptop"))
    assert [row["x_Kind"] for row in rows] == ["compute", "idle_cores"]
    # An estimate is of the attempt, so that sums over rows are right.
    assert ["x_EstimatedCost" in row for row in rows] == [True, False]
    assert [row["x_Kind"] for row in csv_rows(exported(run))].count("overhead") == 1


def test_data_is_charged_by_volume(tmp_path: Path) -> None:
    run = far(tmp_path)
    rows = {(row["x_Stage"], row["x_Attempt"], row["x_Kind"]): row for row in csv_rows(exported(run))}
    transfer, storage = rows["preprocess", "2", "transfer"], rows["preprocess", "2", "storage"]
    assert ("preprocess", "1", "storage") not in rows
    (charge,) = [
        charge for charge in read_charges(run.store)[0] if charge.entry.reservation == "preprocess-2"
    ]
    assert charge.decision
    taken, left = stage_transfers(charge.decision.question, run.choice)
    assert (transfer["ServiceCategory"], transfer["PricingUnit"]) == ("Networking", "GB")
    assert Decimal(transfer["PricingQuantity"]) == pytest.approx(Decimal(str(taken[0].gb + left.gb)))
    assert Decimal(transfer["BilledCost"]) == pytest.approx(
        Decimal(str(taken[0].gb * 0.02 + left.gb * 0.09)), abs=Decimal("0.000002")
    )
    assert (storage["ServiceCategory"], storage["PricingUnit"]) == ("Storage", "GB-Months")
    assert Decimal(storage["BilledCost"]) == pytest.approx(
        Decimal(str(left.gb * 0.023 * 720 / 730)), abs=Decimal("0.000002")
    )


def test_an_adjustment_is_a_correction_once_its_month_is_over(tmp_path: Path) -> None:
    rows = [row for row in csv_rows(exported(adjusted(tmp_path))) if row["x_Kind"] == "adjustment"]
    assert [(row["EffectiveCost"], row["ChargeClass"]) for row in rows] == [
        ("0.000040", ""),
        ("0.000001", "Correction"),
        ("-0.000003", ""),
    ]
    assert rows[0]["ChargeDescription"].endswith("adjustment; its pod's own times come to $0.000065")
    assert {row["BillingPeriodStart"] for row in rows} == {"2026-11-01T00:00:00Z"}


def test_a_reserved_machine_is_committed_and_billed_at_purchase(tmp_path: Path) -> None:
    row = csv_rows(exported(reserved(tmp_path)))[0]
    assert (row["PricingCategory"], row["CommitmentDiscountStatus"], row["BilledCost"]) == (
        "Committed",
        "Used",
        "0",
    )
    assert Decimal(row["EffectiveCost"]) > 0
    assert (row["RegionId"], row["SkuPriceId"]) == ("us-central1", "a2-highgpu-1g/reserved")
    assert '"GpuCount": 1' in row["SkuPriceDetails"]


@EVERY
def test_the_provider_issues_the_invoices_whose_numbers_are_unknown(story: Story, tmp_path: Path) -> None:
    file = exported(story(tmp_path))
    assert "InvoiceId" in file.split("\n", 1)[0].split(",")
    for row in csv_rows(file):
        assert (row["InvoiceIssuerName"], row["ProviderName"], row["InvoiceId"]) == ("laptop", "laptop", "")


def test_spot_charges_have_the_dynamic_pricing_category(tmp_path: Path) -> None:
    spot = Pool(
        name="n2", cores=4, memory_gb=16, markets={Market.SPOT: MarketTerms(preemptions_per_hour=0.1)}
    )
    run = Recording(tmp_path, "4", (spot,))
    run.start()
    run.route("ingest")
    run.end(6.1, rows=1)
    assert csv_rows(exported(run))[0]["PricingCategory"] == "Dynamic"


def test_a_charge_without_records_is_an_adjustment_without_a_price(tmp_path: Path) -> None:
    row = csv_rows(exported(without_records(tmp_path)))[-1]
    assert (row["ChargeCategory"], row["ListUnitPrice"], row["PricingQuantity"]) == ("Adjustment", "", "")
    assert row["EffectiveCost"] == "0.150000"


def test_a_campaign_is_a_sub_account(tmp_path: Path) -> None:
    row = csv_rows(exported(in_a_campaign(tmp_path)))[0]
    assert (row["SubAccountId"], row["SubAccountName"]) == ("spring", "spring")
    assert '"shoestring.dev/campaign": "spring"' in row["Tags"]


def test_names_with_csv_special_characters_survive_a_round_trip(tmp_path: Path) -> None:
    assert csv_rows(exported(STORIES["hostile"](tmp_path)))[0]["SkuId"] == HOSTILE


@pytest.mark.parametrize("name", ["=1+1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "＝1"])
def test_no_cell_begins_a_formula(name: str, tmp_path: Path) -> None:
    (row,) = list(focus_rows(read_charges(done(tmp_path).store)[0], "laptop"))[:1]
    (found,) = csv_rows(focus_csv([row | {"SkuId": name, "ProviderName": name}]))
    assert (found["SkuId"], found["ProviderName"]) == (f"'{name}", f"'{name}")


@pytest.mark.parametrize("number", ["-0.010000", "+1", "-5", "0.5"])
def test_numbers_stay_numbers(number: str, tmp_path: Path) -> None:
    (row,) = list(focus_rows(read_charges(done(tmp_path).store)[0], "laptop"))[:1]
    (found,) = csv_rows(focus_csv([row | {"EffectiveCost": number}]))
    assert found["EffectiveCost"] == number


WRONG = {
    "BillingCurrency": "dollars",
    "ChargeCategory": "Fun",
    "ChargePeriodEnd": "2026-11-21 12:00:00",
    "ChargePeriodStart": "2027-01-01T00:00:00Z",
    "BillingPeriodEnd": "2026-11-01T00:00:00Z",
    "EffectiveCost": "$1",
    "ListCost": "+1",
    "ContractedCost": "0.5",
    "ListUnitPrice": "-0.04",
    "PricingQuantity": "1,5",
    "PricingUnit": "",
    "PricingCategory": "",
    "ConsumedQuantity": "",
    "ConsumedUnit": "",
    "SkuId": "",
    "SkuPriceId": "",
    "SkuPriceDetails": '{"CoreCount": "four"}',
    "Tags": '{"a": [1]}',
    "RegionName": "",
    "ResourceType": "",
    "ResourceName": "host.1.1",
    "SubAccountName": "spring",
    "CommitmentDiscountId": "x",
    "ProviderName": "",
    "InvoiceIssuerName": "Shoestring",
    "PublisherName": "N/A",
    "ChargeClass": "Mistake",
    "ServiceSubcategory": "Virtual Things",
}


@pytest.mark.parametrize("column", sorted(WRONG))
def test_the_rules_find_violations(column: str, tmp_path: Path) -> None:
    rows = list(focus_rows(read_charges(done(tmp_path).store)[0], "laptop"))
    assert violations(focus_csv(rows)) == []
    rows[0] = rows[0] | {column: WRONG[column]}
    assert violations(focus_csv(rows))


def test_the_rules_miss_no_mandatory_column(tmp_path: Path) -> None:
    header, rest = exported(done(tmp_path)).split("\n", 1)
    for name in MANDATORY:
        changed = re.sub(rf"(?<=,){name}(?=,)|^{name}(?=,)", f"x_{name}", header)
        assert any(f"{name}: is mandatory" in violation for violation in violations(f"{changed}\n{rest}"))
