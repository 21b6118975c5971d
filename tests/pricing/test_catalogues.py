"""Price lists of other projects are read by column name; only impossible rows are rejected."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from price_book_laws import BookLaws, listed, pools_of

from shoestring.config.tariffs import Tariffs
from shoestring.core.errors import WorldError
from shoestring.core.types import Market, Pool
from shoestring.pricing.catalogues import PriceListing, default_catalogue, open_catalogue
from shoestring.pricing.gpus import GPUS, find_gpu
from shoestring.pricing.price_book import validated_book
from shoestring.pricing.price_list import CatalogueFile, PriceList
from shoestring.pricing.rows import parse_rows

TARIFFS = Tariffs(default_usd_per_gb=Decimal("0.02"))
TODAY = date(2026, 11, 1)
SKYPILOT_AWS = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,\
Region,AvailabilityZone,Arch
p5.48xlarge,H100,8.0,192.0,2048.0,"{'Gpus': [{'Name': 'H100'}]}",55.04,26.4,us-east-1,use1-az6,x86_64
p5.48xlarge,H100,8.0,192.0,2048.0,,55.04,31.0,us-east-1,use1-az2,x86_64
m6i.xlarge,,,4.0,16.0,,0.192,0.08,us-east-1,use1-az6,x86_64
m6i.xlarge,,,4.0,16.0,,0.192,0.192,us-east-1,use1-az2,x86_64
"""
SKYPILOT_GCP = """InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,\
AvailabilityZone,Price,SpotPrice
n2-standard-4,4.0,16.0,,,,us-central1,us-central1-a,0.194236,0.05552
n2-standard-2,2.0,8.0,,,,us-central1,us-central1-a,0.0,
,,,tpu-v6e-1,1.0,,us-central1,us-central1-a,2.70,700.0
n2-standard-4,4.0,16.0,,,,us-central1,us-central1-a,0.194236,0.05552
"""
GPUHUNT = """instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,\
disk_size,provider,gpu_vendor,flags
g2-standard-4,us-central1,0.707,4,16.0,1,L4,24.0,False,,gcp,nvidia,
g2-standard-4,us-central1,0.397,4,16.0,1,L4,24.0,True,,gcp,nvidia,
g2-standard-4,europe-west4,nan,4,16.0,1,L4,24.0,False,,gcp,nvidia,
g2-standard-4,europe-west1,inf,4,16.0,1,L4,24.0,False,,gcp,nvidia,
"""
DATED = {"as_of": TODAY, "provider": "aws"}


class TestDefaultCatalogue(BookLaws):
    def listing(self) -> PriceListing:
        return PriceListing((), PriceList(), (default_catalogue(),))


class TestLaptop(BookLaws):
    def listing(self) -> PriceListing:
        rows = [
            {
                "pool": f"cpu-{n}",
                "market": "on-demand",
                "usd_per_hour": f"{n * 4}e-2",
                "as_of": "2026-07-30",
                "source": "own",
            }
            for n in (1, 2)
        ]
        return PriceListing(parse_rows(rows), PriceList())

    def pools(self) -> tuple[Pool, ...]:
        return (Pool(name="cpu-1", cores=1, memory_gb=8), Pool(name="cpu-2", cores=2, memory_gb=8))


class TestSkyPilotListOfAWS(BookLaws):
    def listing(self) -> PriceListing:
        return listed(SKYPILOT_AWS, **DATED)


class TestSkyPilotListOfGCP(BookLaws):
    def listing(self) -> PriceListing:
        return listed(SKYPILOT_GCP, **DATED)


class TestGpuhuntList(BookLaws):
    def listing(self) -> PriceListing:
        return listed(GPUHUNT, **DATED)


class TestDiscountedList(BookLaws):
    def listing(self) -> PriceListing:
        price_list = PriceList.model_validate(
            {"discounts": [{"share": "0.4", "market": "on-demand"}, {"share": "0.1", "provider": "g*"}]}
        )
        return PriceListing((), price_list, (default_catalogue(),))


def quotes_of(listing: PriceListing, *pools: Pool) -> dict[tuple[str, Market], str]:
    book = validated_book(listing, pools or pools_of(listing.catalogues[0].read({})[0]), TARIFFS, TODAY)
    return {(quote.pool, quote.market): format(quote.usd_per_hour.normalize(), "f") for quote in book.quotes}


def rejection_reasons(listing: PriceListing) -> list[str]:
    """Return the reasons of all rejected rows: malformed ones and impossible ones."""
    rows, malformed = listing.catalogues[0].read({})
    parsed = PriceListing(tuple(rows), PriceList())
    return [
        f"{each.row}: {each.reason}"
        for each in (*malformed, *validated_book(parsed, pools_of(rows), TARIFFS, TODAY).rejected)
    ]


def test_a_skypilot_line_gives_an_on_demand_and_a_spot_price() -> None:
    assert quotes_of(listed(SKYPILOT_AWS, **DATED)) == {
        ("aws/us-east-1/use1-az2/m6i.xlarge", Market.ON_DEMAND): "0.192",
        ("aws/us-east-1/use1-az2/p5.48xlarge", Market.ON_DEMAND): "55.04",
        ("aws/us-east-1/use1-az2/p5.48xlarge", Market.SPOT): "31",
        ("aws/us-east-1/use1-az6/m6i.xlarge", Market.ON_DEMAND): "0.192",
        ("aws/us-east-1/use1-az6/m6i.xlarge", Market.SPOT): "0.08",
        ("aws/us-east-1/use1-az6/p5.48xlarge", Market.ON_DEMAND): "55.04",
        ("aws/us-east-1/use1-az6/p5.48xlarge", Market.SPOT): "26.4",
    }


def test_impossible_rows_are_rejected_with_their_numbers() -> None:
    (reason,) = rejection_reasons(listed(SKYPILOT_AWS, **DATED))
    assert reason.endswith("spot at $0.192000 an hour is not below on-demand at $0.192000")
    reasons = "\n".join(rejection_reasons(listed(SKYPILOT_GCP, as_of=TODAY)))
    assert "$0.000000 an hour is not a price: us-central1-a n2-standard-2 is not free" in reasons
    assert reasons.count("it repeats another row") == 2
    assert (
        reasons.count("row 4: us-central1 on-demand: missing pool")
        == reasons.count("row 4: us-central1 spot: missing pool")
        == 1
    )
    assert [
        reason.partition(": usd_per_hour: ")[2] for reason in rejection_reasons(listed(GPUHUNT, as_of=TODAY))
    ] == [
        "'nan' is not an amount of dollars: write it like '0.003'",
        "'inf' is not an amount of dollars: write it like '0.003'",
    ]


HEAD = "provider,region,machine,cores,gpu,gpu_count,market,usd_per_hour,as_of,source\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("aws,r,m,96,,0,on-demand,,2026-07-30,list", "missing usd_per_hour; a row has pool"),
        ("aws,r,m,96,,0,sopt,1,2026-07-30,list", "'sopt' is not a market"),
        ("aws,r,m,96,,0,on-demand,cheap,2026-07-30,list", "'cheap' is not an amount of dollars"),
        ("aws,r,m,96,,0,on-demand,1,30 July,list", "'30 July' is not a date"),
        ("aws,r,m,96,,0,on-demand,1,,list", "missing as_of"),
        ("aws,r,m,many,,0,on-demand,1,2026-07-30,list", "cores: 'many' is not a number"),
        ("aws,r,m,96,T4,half,on-demand,1,2026-07-30,list", "gpu_count: 'half' is not a whole number"),
        ("aws,r,m,96,,0,on-demand,1,2026-07-30,list,and,more", "unknown field more"),
        ("aws,r,m,96,H100,0,on-demand,1,2026-07-30,list", "it names a GPU, H100, but counts none"),
        (
            "aws,r,m,96,H100,,on-demand,1,2026-07-30,list",
            "it names a GPU, H100, without a count: write how many the machine has as `gpu_count`",
        ),
        ("aws,r,m,96,,8,on-demand,1,2026-07-30,list", "it counts 8 GPUs but names none"),
        (
            "aws,r,m,96,H100,8,on-demand,0.05,2026-07-30,list",
            "too low for a price: 96 cores and 8 GPUs cost more than $0.2080",
        ),
        ("aws,r,m,4,,0,on-demand,11,2026-07-30,list", "4 cores and 0 GPUs cost less than $10.00"),
        ("aws,r,m,4,,0,on-demand,0.2,2027-07-30,list", "it is dated 2027-07-30, and today is 2026-11-01"),
        (
            "aws,r,m,4,,0,on-demand,0.2,2025-07-30,list",
            "it is 459 days old, and on-demand prices are accepted for 366",
        ),
        ("aws,r,m,4,,0,spot,0.2,2026-04-30,list", "it is 185 days old, and spot prices are accepted for"),
    ],
)
def test_an_impossible_row_of_a_list_is_rejected_by_line_with_the_reason(line: str, reason: str) -> None:
    (reasons,) = rejection_reasons(listed(HEAD + line))
    assert reason in reasons
    assert validated_book(listed(HEAD + line), [], TARIFFS, TODAY).quotes == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "",
            "list.csv is not a price list: "
            "its first line must name the columns machine, market; or instance_name",
        ),
        ("a,b\n1,2\n", "is not a price list"),
        (GPUHUNT, r"list.csv has no dates: write \{file: list.csv, as_of: 2026-07-30\} in `catalogues`"),
        (HEAD + '"' + "x" * 200_000, "list.csv is not CSV: line"),
    ],
)
def test_a_file_that_is_not_a_price_list_is_refused_with_the_fix(text: str, what: str) -> None:
    with pytest.raises(WorldError, match=what):
        listed(text).catalogues[0].read({})


def test_a_list_may_be_yaml(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "prices:\n"
        "  - {machine: m6i.xlarge, region: us-east-1, cores: 4, market: spot, usd_per_hour: 0.08, "
        "as_of: 2026-10-01, source: own}\n"
        "  - {machine: m6i.xlarge, region: us-east-1, market: on-demand, usd_per_hour: .nan, "
        "as_of: 2026-10-01, source: own}\n"
    )
    rows, malformed = open_catalogue(CatalogueFile(file="mine.yaml", provider="aws"), tmp_path).read({})
    assert [(row.name, row.usd_per_hour) for row in rows] == [
        ("aws us-east-1 m6i.xlarge", Decimal("0.080000"))
    ]
    assert "must be a string or a Decimal, not nan" in malformed[0].reason
    with pytest.raises(WorldError, match=r"no price list at .*none.csv: fix `catalogues`"):
        open_catalogue(CatalogueFile(file="none.csv"), tmp_path)


def test_the_packages_list_covers_the_gpus_of_three_clouds_with_a_source_per_row() -> None:
    rows, malformed = default_catalogue().read({})
    assert not malformed and all(
        row.source and row.cores and row.memory_gb and row.gpu_count is not None for row in rows
    )
    named = {find_gpu(row.gpu).name for row in rows if row.gpu and find_gpu(row.gpu)}
    assert named >= {gpu.name for gpu in GPUS} - {"H100 PCIe"}
    assert {"A100-40GB", "A100-80GB"} <= {row.gpu for row in rows}
    for provider in ("aws", "gcp", "azure"):
        assert {bool(row.gpu) for row in rows if row.provider == provider} == {True, False}


def test_a_gpu_machine_at_the_price_of_its_cores_is_rejected_by_its_other_regions() -> None:
    prices = {"r1": "29.39", "r2": "32.00", "r3": "31.10", "r4": "44.00", "odd": "6.51"}
    lines = "".join(
        f"gcp,{region},a2,96,A100,8,on-demand,{usd},2026-10-01,list\n" for region, usd in prices.items()
    )
    listing = listed(
        HEAD
        + lines
        + "gcp,odd,a2,96,A100,8,spot,1.95,2026-10-01,list\ngcp,r1,a2,96,A100,8,spot,9,2026-10-01,list\n"
    )
    book = validated_book(listing, pools_of(listing.catalogues[0].read({})[0]), TARIFFS, TODAY)
    assert {quote.pool for quote in book.quotes} == {
        f"gcp/{region}/any/a2" for region in prices if region != "odd"
    }
    outlier = "$6.510000 an hour is less than half of the median $31.100000 of its regions"
    assert [each.reason.partition(" as if")[0] for each in book.rejected] == [
        f"{outlier},",
        f"its on-demand price was rejected: {outlier},",
    ]


def test_a_list_is_read_once_for_the_same_machines():
    catalogue = default_catalogue()
    machines = frozenset({"n2-standard-4"})
    found = catalogue.rows_of(machines, {})
    assert {row.machine for row in found[0]} == {"n2-standard-4"}
    assert catalogue.rows_of(machines, {}) is found
