"""The files of a cluster's world: a broken file is replaced by its last good copy, and the world says so."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from s3_server import S3Server
from store_locations import StoreLocation

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.kubernetes.world_files import (
    FILES,
    ClusterFiles,
    file_path,
    read_cluster_files,
    read_world,
)
from shoestring.cli.authoring.schema import record_type_named
from shoestring.config.world import IMAGES, World
from shoestring.core.errors import WorldError
from shoestring.core.interfaces import PodLifetime, Store
from shoestring.core.pod_ref import ClusterPod, PodRef
from shoestring.core.types import Market, Placement
from shoestring.runtime.open_world import open_world

FILE_TEXTS = {
    "world": """
name: lab
store: {endpoint: 127.0.0.1:1, bucket: shoestring, secure: false}
images: {train: registry.example/train:2}
""",
    "pools": """
pools:
  - name: cpu-spot
    labels: {shoestring.dev/pool: cpu-spot}
    market: spot
    machine: {cores: 4, memory_gb: 16}
    max_nodes: 3
  - name: gpu
    labels: {shoestring.dev/pool: gpu}
    taints: [{key: nvidia.com/gpu, value: present}]
    machine: {cores: 8, memory_gb: 32, gpu: NVIDIA L4, gpu_count: 1}
""",
    "prices": """
prices:
  - {pool: cpu-spot, market: spot, usd_per_hour: 0.04, as_of: 2026-07-30, source: list}
  - {pool: gpu, market: on-demand, usd_per_hour: 0.71, as_of: 2026-07-30, source: list}
""",
    "policy": "queue_delay_s: 60\n",
    "budgets": "month_usd: 12.50\nstages: {train: 2}\n",
}
SCHEMA_OF = {"world": "cluster-world"}
BROKEN = {
    "pools": ("pools: [{name: a/b, labels: {x: y}}]", "pools.0.name: String should match pattern"),
    "prices": (
        "prices: [{pool: gpu, market: sopt, usd_per_hour: 1, as_of: 2026-07-30, source: x}]",
        "price row 1 (gpu): 'sopt' is not a",
    ),
    "policy": ("queue_delay_s: soon", "queue_delay_s: Input should be a valid number"),
    "budgets": ("month_usd: [", "is not YAML"),
}


def write(folder: Path, **changed: str) -> Path:
    for name, text in (FILE_TEXTS | changed).items():
        file_path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        file_path(folder, name).write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "lab")


def read(folder: Path, store: Store) -> ClusterFiles:
    return read_cluster_files(folder, read_world(folder), store)


def test_valid_files_are_used_and_copied_to_the_store(folder: Path, location: StoreLocation) -> None:
    store = location.open()
    found = read(folder, store)
    assert [pool.name for pool in found.pools] == ["cpu-spot", "gpu"]
    assert [(quote.pool, quote.market, quote.usd_per_hour) for quote in found.listing.rows] == [
        ("cpu-spot", Market.SPOT, Decimal("0.040000")),
        ("gpu", Market.ON_DEMAND, Decimal("0.710000")),
    ]
    assert (found.policy.queue_delay_s, found.budgets.month_usd, found.notes) == (
        60.0,
        Decimal("12.500000"),
        (),
    )
    assert list(store.list("learned/world/")) == [
        f"learned/world/{name}.yaml" for name in sorted(set(FILES) - {"world"})
    ]
    assert store.fetch("learned/world/prices.yaml").read_text() == FILE_TEXTS["prices"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_replaced_by_its_last_good_copy_and_a_note_says_what_is_wrong(
    name: str, folder: Path, location: StoreLocation
) -> None:
    store = location.open()
    good = read(folder, store)
    text, what = BROKEN[name]
    again = read(write(folder, **{name: text}), location.open())
    assert (again.pools, again.listing, again.policy, again.budgets) == (
        good.pools,
        good.listing,
        good.policy,
        good.budgets,
    )
    assert again.digest == good.digest
    (note,) = again.notes
    assert what in note
    assert str(file_path(folder, name)) in note
    assert note.endswith(f"; the last good copy is used, learned/world/{name}.yaml in the store")
    assert store.fetch(f"learned/world/{name}.yaml").read_text() == FILE_TEXTS[name]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_without_a_good_copy_is_an_error_with_its_path(
    name: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorldError) as broken:
        read(write(folder, **{name: BROKEN[name][0]}), FolderStore(tmp_path / "store"))
    assert str(file_path(folder, name)) in str(broken.value)
    assert BROKEN[name][1] in str(broken.value)


def test_a_missing_file_is_reported_with_its_configmap(folder: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    file_path(folder, "prices").unlink()
    with pytest.raises(
        WorldError, match=r"there is no .*/prices/prices\.yaml: mount the ConfigMap shoestring-prices there"
    ):
        read(folder, store)
    read(write(folder), store)
    file_path(folder, "prices").unlink()
    assert "mount the ConfigMap shoestring-prices" in read(folder, store).notes[0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("store: {bucket: x}", "store.endpoint: Field required"),
        ("name: lab", "store: Field required"),
        ("{", "is not YAML"),
    ],
)
def test_the_file_that_names_the_store_must_be_valid(
    text: str, what: str, folder: Path, tmp_path: Path
) -> None:
    read(folder, FolderStore(tmp_path / "store"))
    with pytest.raises(WorldError, match=what):
        read_world(write(folder, world=text))
    file_path(folder, "world").unlink()
    with pytest.raises(
        WorldError, match=r"a cluster's world is a folder with world/world\.yaml, pools/pools\.yaml, prices"
    ):
        read_world(folder)


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(BROKEN)), text=st.text())
def test_any_text_is_used_or_replaced(name: str, text: str, folder: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    read(write(folder), store)
    found = read(write(folder, **{name: text}), store)
    kept = store.fetch(f"learned/world/{name}.yaml").read_text()
    assert kept == (FILE_TEXTS[name] if found.notes else text)


def test_a_good_copy_is_written_once_for_each_change(folder: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    read(folder, store)
    kept = store.fetch("learned/world/policy.yaml")
    first = kept.stat().st_ino
    read(folder, store)
    assert kept.stat().st_ino == first
    read(write(folder, policy="queue_delay_s: 90\n"), store)
    assert kept.read_text() == "queue_delay_s: 90\n"


def test_the_digest_of_a_world_changes_unless_only_the_store_moved(folder: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    before = read(folder, store).digest
    assert (
        read(write(folder, world=FILE_TEXTS["world"].replace("127.0.0.1:1", "elsewhere:9000")), store).digest
        == before
    )
    for name in BROKEN:
        changed = (
            FILE_TEXTS[name]
            .replace("60", "61")
            .replace("12.50", "12.51")
            .replace("0.71", "0.72")
            .replace("cores: 4", "cores: 5")
        )
        assert read(write(folder, **{name: changed}), store).digest != before


@pytest.mark.parametrize("name", FILES)
def test_the_schema_of_a_file_lists_its_fields(name: str) -> None:
    noun = record_type_named(SCHEMA_OF.get(name, name))
    schema, content = noun.model_json_schema(), yaml.safe_load(FILE_TEXTS[name])
    assert schema["additionalProperties"] is False
    assert set(schema.get("required", [])) <= set(content) <= set(schema["properties"])


@pytest.mark.parametrize(
    ("pool", "what"),
    [
        ("{name: a, labels: {}}", "at least 1 item"),
        ("{name: a, labels: {x: y}, max_nodes: 2}", "must describe its machine"),
        ("{name: a, labels: {x: y}}, {name: a, labels: {x: z}}", "pools named twice: a"),
        ("{name: a, labels: {x: y}, makret: spot}", "pools.0.makret: Extra inputs are not permitted"),
    ],
)
def test_an_impossible_pool_is_refused_with_the_reason(
    pool: str, what: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorldError, match=what):
        read(write(folder, pools=f"pools: [{pool}]"), FolderStore(tmp_path / "store"))


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
