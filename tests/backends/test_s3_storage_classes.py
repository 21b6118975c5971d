"""Objects are stored on the requested storage class, and the next router reads it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from s3_server import BUCKET, S3Server
from store_locations import StoreLocation

from shoestring.backends.kubernetes.world_files import file_path
from shoestring.backends.local import LocalCluster
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook, World
from shoestring.core.datasets import Manifest
from shoestring.core.errors import StageFailed, UsageError
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market, Pool, Quote
from shoestring.data.recipe_files import read_recipe
from shoestring.data.storage.blobs import load_manifest, put_blob
from shoestring.reporting.hindsight_report import build_hindsight_report
from shoestring.reporting.html.page import page
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import summarise_run
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import RunRequest, recipe_request
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.open_world import open_world
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.supervisor.run_stage import run_stage
from shoestring.stages import ingest, preprocess

pytestmark = pytest.mark.usefixtures("credentials")

LARGE_BYTES = 5 << 20
DAY = date(2026, 11, 1)
NEEDS = (ingest.NEED, preprocess.NEED)
STAGES = [need.stage for need in NEEDS]
POOL = Pool(name="cpu-1", cores=1, memory_gb=4)
# Stored for a year, the first class is cheapest for data that is read once more, the second for unread data.
STORAGE_CLASSES = {
    "STANDARD_IA": {"usd_per_gb_month": "0.5", "retrieval_usd_per_gb": "0.001", "min_days": 30},
    "GLACIER_IR": {"usd_per_gb_month": "0.1", "retrieval_usd_per_gb": "100", "min_days": 90},
}
TARIFFS: dict[str, Any] = {
    "storage_usd_per_gb_month": "1",
    "storage_held_hours": 8760,
    "storage_classes": STORAGE_CLASSES,
}


def class_of(server: S3Server, location: StoreLocation, key: str) -> str:
    """Return the storage class in the server's response to HEAD, which omits the standard one."""
    assert location.s3 is not None
    found = server.minio().stat_object(BUCKET, location.s3.root + key).metadata or {}
    return str(found.get("x-amz-storage-class", "STANDARD"))


@pytest.mark.parametrize("size_bytes", [10, LARGE_BYTES])
def test_an_object_has_the_storage_class_of_its_last_write(
    s3_server: S3Server, s3_location: StoreLocation, tmp_path: Path, size_bytes: int
) -> None:
    store, bytes_ = s3_location.open(), os.urandom(size_bytes)
    (tmp_path / "part").write_bytes(bytes_)
    for data in (bytes_, tmp_path / "part"):
        for storage_class in ("STANDARD_IA", "ONEZONE_IA"):
            sha256 = put_blob(store, data, storage_class)
            assert class_of(s3_server, s3_location, f"blobs/{sha256}") == storage_class
            assert store.objects(f"blobs/{sha256}")[f"blobs/{sha256}"].storage_class == storage_class
    assert store.fetch(f"blobs/{sha256}").read_bytes() == bytes_
    assert class_of(s3_server, s3_location, f"blobs/{put_blob(store, b'standard')}") == "STANDARD"


def test_an_unknown_storage_class_is_reported_with_the_setting_to_correct(s3_location: StoreLocation) -> None:
    store = s3_location.open()
    with pytest.raises(
        UsageError,
        match=r"has no storage class STANDARD-IA \(400 .*\): "
        r"correct its name in storage_classes of world\.yaml",
    ):
        put_blob(store, b"data", "STANDARD-IA")
    assert list(store.list("blobs/")) == []


@dataclass(frozen=True)
class DatedPrices:
    tariffs: Tariffs

    def book(self) -> PriceBook:
        quote = Quote(
            pool="cpu-1", market=Market.ON_DEMAND, usd_per_hour=Decimal("0.04"), as_of=DAY, source="x"
        )
        return PriceBook((quote,), (), self.tariffs)

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        return None

    def charged_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        return quote.usd_per_hour


@pytest.fixture
def folder(s3_location: StoreLocation, tmp_path: Path) -> Path:
    """A cluster's world on a real S3 server."""
    assert s3_location.s3 is not None
    files = {
        "world": {"store": s3_location.s3.model_dump(), "tariffs": TARIFFS},
        "pools": {},
        "prices": {},
        "policy": {},
        "budgets": {},
    }
    for name, content in files.items():
        file_path(tmp_path / "lab", name).parent.mkdir(parents=True)
        file_path(tmp_path / "lab", name).write_text(yaml.safe_dump(content))
    return tmp_path / "lab"


@pytest.fixture
def world(folder: Path) -> World:
    """A world as a pod opens it, except that this machine is the only node."""
    return replace(
        open_world(str(folder)),
        cluster=LocalCluster((POOL,)),
        prices=DatedPrices(Tariffs.model_validate(TARIFFS)),
    )


def request(recipe: Path, run_id: str, stage: int = 0) -> RunRequest:
    return recipe_request(run_id, read_recipe(recipe), NEEDS[stage:], Decimal(1), None, 7)


def run_to_manifest(world: World, folder: Path, run_id: str, key: str, **inputs: str) -> tuple[str, Manifest]:
    """Run the stage of a decision; return the key of its data set, and its manifest."""
    outcome = run_stage(world, str(folder), run_id, key, inputs)
    return outcome.key, load_manifest(world.store, outcome.key)


def check_records(world: World, first: Decision, then: Decision, format_name: str) -> None:
    """Check that receipts, the summary, the report and hindsight name the storage classes."""
    receipts = [
        Receipt.model_validate_json(world.store.fetch(f"runs/first/receipts/{stage}-1.json").read_bytes())
        for stage in STAGES
    ]
    assert [(each.storage_class, each.fees_usd) for each in receipts] == [
        (each.choice.storage_class, each.choice.fees_usd) for each in (first, then) if each.choice
    ]
    story = read_run_story(world.store, "first")
    assert [stage.storage_class for stage in summarise_run(story).stages] == ["STANDARD_IA", "GLACIER_IR"]
    for text in ("on-demand, {}</small>", "writing {}<", "writes {}<"):
        assert text.format(f"{format_name} on STANDARD_IA") in page(story)
    (hindsight, _) = build_hindsight_report(story.charges, {}).choices
    assert [offer.storage_class for offer in hindsight.offers if offer.selected] == ["STANDARD_IA"]


def test_data_sets_get_the_planned_storage_class_and_the_next_router_reads_it(
    s3_server: S3Server, s3_location: StoreLocation, folder: Path, world: World, flights_slice: Path
) -> None:
    def routed(run_id: str, stage: int, reads: StageInputs) -> tuple[Decision, str]:
        return decide_and_reserve(world, runs[run_id], request(flights_slice, run_id, stage), reads)

    runs = {name: admit(world, request(flights_slice, name)) for name in ("first", "second")}
    first, key = routed("first", 0, StageInputs())
    raw_key, raw = run_to_manifest(world, folder, "first", key)
    then, key = routed("first", 1, StageInputs(raw_key))
    _, encoded = run_to_manifest(world, folder, "first", key, data=raw_key)
    assert first.choice and then.choice and first.plan[0].storage_class == then.choice.storage_class
    assert first.choice.storage_class == raw.storage_class == "STANDARD_IA"
    assert then.question.reads_storage_class == "STANDARD_IA"
    assert then.choice.storage_class == encoded.storage_class == "GLACIER_IR"
    for manifest in (raw, encoded):
        parts = [part for split in manifest.splits.values() for part in split]
        classes = {class_of(s3_server, s3_location, part.key) for part in parts}
        assert classes == {manifest.storage_class}
    assert then.choice.transfer_in_usd > 0, "in the store's region: only for reading it off its class"
    check_records(world, first, then, raw.format)
    again, _ = routed("second", 0, StageInputs())
    assert again.choice and again.choice.cached
    assert again.choice.storage_class == again.question.cached_storage_class == "STANDARD_IA"
    assert [cached.storage_class for cached in again.question.cached_later_stages] == ["GLACIER_IR"]
    plain = replace(world, prices=DatedPrices(Tariffs()))
    second = request(flights_slice, "second", 1)
    without, _ = decide_and_reserve(plain, runs["second"], second, StageInputs(raw_key))
    assert without.candidates.storage_classes == ()
    assert any(note.startswith("its data is on STANDARD_IA, which") for note in without.question.notes)


def test_a_stage_with_an_unknown_storage_class_fails_with_the_name_to_correct(
    world: World, folder: Path, flights_slice: Path
) -> None:
    misspelt = Tariffs.model_validate(
        TARIFFS | {"storage_classes": {"GLACEIR_IR": {"usd_per_gb_month": "0.1"}}}
    )
    wrong, request = (
        replace(world, prices=DatedPrices(misspelt)),
        recipe_request("wrong", read_recipe(flights_slice), NEEDS[:1], Decimal(1), None, 7),
    )
    run = admit(wrong, request)
    decision, key = decide_and_reserve(wrong, run, request, StageInputs())
    assert decision.choice and decision.choice.storage_class == "GLACEIR_IR"
    with pytest.raises(
        StageFailed,
        match=r"no storage class GLACEIR_IR \(400 .*\): correct its name in storage_classes of world\.yaml",
    ):
        run_stage(wrong, str(folder), "wrong", key, {})
    assert list(world.store.list("datasets/")) == []
