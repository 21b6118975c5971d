"""Opening a cluster's world from its files, on a real S3 server and without a cluster."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from s3_server import S3Server
from store_locations import StoreLocation
from world_folder import write

from shoestring.config.world import IMAGES, World
from shoestring.core.interfaces import PodLifetime
from shoestring.core.money import usd
from shoestring.core.pod_ref import ClusterPod, PodRef
from shoestring.core.record import record_bytes
from shoestring.core.types import Market, Placement, Pool, Quote
from shoestring.runtime.open_world import open_world


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "lab")


@pytest.fixture
def world(
    folder: Path,
    s3_server: S3Server,
    s3_location: StoreLocation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """A cluster's world on a real S3 server; the cluster itself is not read."""
    assert s3_location.s3
    store = s3_location.s3.model_dump(mode="json")
    write(
        folder,
        world=yaml.safe_dump(
            {"name": "lab", "store": store, "images": {"train": "registry.example/train:2"}}
        ),
    )
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "not-this"))
    monkeypatch.setenv("SHOESTRING_POD_NAMESPACE", "ml")
    monkeypatch.setenv("SHOESTRING_POD_UID", UID)
    monkeypatch.setenv("SHOESTRING_POD_NAME", "train-1.x")
    return open_world(str(folder))


UID = "0b5a4f6e-8a0c-4c67-9c3f-1d2e3f4a5b6c"


def test_a_folder_opens_as_a_clusters_world_with_its_store_on_s3(world: World) -> None:
    assert (world.name, world.policy.queue_delay_s, world.budgets.stages) == (
        "lab",
        60.0,
        {"train": Decimal("2.000000")},
    )
    assert world.images == IMAGES | {"train": "registry.example/train:2"}
    assert world.pod == ClusterPod("ml", UID, "train-1.x")
    assert world.store.put("runs/a/run.json", b"1", if_absent=True)
    assert list(world.store.list("runs/")) == ["runs/a/run.json"]


def test_a_pod_gets_the_thread_variables_of_its_cpu_limit(world: World) -> None:
    placement = Placement(
        node_selector={},
        tolerations=(),
        affinity={},
        cpu="3",
        memory="1M",
        accelerator="",
        accelerator_count="",
        image="i",
    )
    given = world.cluster.apply_placement(placement)
    assert {given["OMP_NUM_THREADS"], given["MKL_NUM_THREADS"]} == {"3"}


def test_a_process_on_another_machine_counts_as_alive(world: World) -> None:
    assert world.cluster.lifetime(PodRef.parse("some.host.name.1234.1700000000000")) == PodLifetime(
        alive=True
    )


def test_a_missing_cluster_is_reported_in_one_sentence(tmp_path: Path) -> None:
    """Runs in separate processes, because the kubeconfig's path is read once for each process."""
    missing = run_python(
        "from shoestring.backends.kubernetes.api import connect; connect('nowhere')",
        KUBECONFIG=str(tmp_path / "none"),
    )
    assert "UsageError: no kubeconfig with a context 'nowhere'" in missing.stderr
    in_pod = run_python(
        "from shoestring.backends.kubernetes.api import connect; connect()",
        KUBERNETES_SERVICE_HOST="10.96.0.1",
    )
    assert (
        "this pod has no /var/run/secrets/kubernetes.io/serviceaccount/token: give it a service account"
        in in_pod.stderr
    )
    away = (
        "import urllib3; from shoestring.backends.kubernetes.api import KubeApi; "
        "KubeApi('http://127.0.0.1:1', urllib3.PoolManager(), dict).get('/', 'x')"
    )
    assert "ClusterError: the cluster at http://127.0.0.1:1 does not answer" in run_python(away).stderr


def test_a_laptop_imports_no_cluster_library_and_a_pod_no_kubernetes_package() -> None:
    assert not {"kubernetes", "minio", "urllib3"} & packages_of("shoestring.runtime")
    assert {"kubernetes", "minio", "urllib3"} & packages_of("shoestring.backends.kubernetes.cluster") == {
        "minio",
        "urllib3",
    }


def packages_of(module: str) -> set[str]:
    """Return the packages that importing a module imports."""
    return set(
        run_python(
            f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
        ).stdout.split()
    )


def run_python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60
    )


DAY = date(2026, 7, 30)
SPOT_ROW = "{pool: cpu-spot, market: spot, usd_per_hour: %s, as_of: 2026-07-30, source: list}"


def test_a_running_pod_survives_a_price_list_that_cannot_be_read(world: World, folder: Path) -> None:
    pool = Pool(name="cpu-spot", cores=4, memory_gb=16)
    quote = Quote(
        pool="cpu-spot", market=Market.SPOT, usd_per_hour=usd("0.04"), as_of=date(2026, 7, 30), source="l"
    )
    lists = folder / "prices" / "list.csv"
    lists.write_text("machine,market\n")
    write(folder, prices=f"catalogues: [list.csv]\nprices: [{SPOT_ROW % '0.05'}]\n")
    assert world.prices.charged_usd_per_hour(quote, pool) == Decimal("0.05")
    lists.write_text("machine,machine\n")
    assert world.prices.charged_usd_per_hour(quote, pool) is None
    lists.write_text("machine,market\n\n")
    assert world.prices.charged_usd_per_hour(quote, pool) == Decimal("0.05")


SHARE = Pool(name="cpu-spot/2", node_pool="cpu-spot", cores=2, memory_gb=8)
HALF_A_NODE = Quote(
    pool="cpu-spot/2",
    market=Market.SPOT,
    usd_per_hour=usd("0.02"),
    node_usd_per_hour=usd("0.04"),
    as_of=date(2026, 7, 30),
    source="l",
)


def write_prices(folder: Path, text: str) -> None:
    (folder / "prices" / "prices.yaml").write_text(text)


def test_a_price_that_changed_between_the_decision_and_the_pods_start_is_seen(
    world: World, folder: Path
) -> None:
    write_prices(folder, f"prices: [{SPOT_ROW % '0.06'}]\n")
    opened = open_world(str(folder)).prices
    assert opened.charged_usd_per_hour(HALF_A_NODE, SHARE) == Decimal("0.03")
    assert opened.current_usd_per_hour(HALF_A_NODE, SHARE) == Decimal("0.03")


def test_a_price_that_is_missing_at_the_pods_start_counts_once_it_is_read(world: World, folder: Path) -> None:
    write_prices(folder, "prices: []\n")
    opened = open_world(str(folder)).prices
    assert opened.charged_usd_per_hour(HALF_A_NODE, SHARE) is None
    write_prices(folder, f"prices: [{SPOT_ROW % '0.05'}]\n")
    assert opened.charged_usd_per_hour(HALF_A_NODE, SHARE) == Decimal("0.025")


def test_a_good_copy_of_a_price_file_is_no_current_price(world: World, folder: Path) -> None:
    write_prices(folder, f"prices: [{SPOT_ROW % '0.04'}]\n")
    assert open_world(str(folder)).prices.charged_usd_per_hour(HALF_A_NODE, SHARE) == Decimal("0.02")
    write_prices(folder, "prices: [half a ro")
    opened = open_world(str(folder))
    assert "the last good copy is used" in opened.notes[0]
    assert opened.prices.charged_usd_per_hour(HALF_A_NODE, SHARE) is None


def test_a_quote_of_a_whole_machine_has_the_bytes_of_earlier_versions() -> None:
    whole = HALF_A_NODE.model_copy(update={"node_usd_per_hour": None})
    assert b"node_usd_per_hour" not in record_bytes(whole)
    assert Quote.model_validate_json(record_bytes(whole)) == whole
