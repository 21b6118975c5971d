"""Checks of the manifest files, without a cluster and kubectl."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoestring.backends.kubernetes.world_files import ClusterWorldFile, NodePool, PoolsFile, PricesFile
from shoestring.backends.local import WORLD_MOUNT_PATH
from shoestring.backends.s3.location import CREDENTIAL_VARIABLES, CREDENTIALS_SECRET
from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.world import IMAGES, WORLD_FILES
from shoestring.config.yaml_files import parse
from shoestring.core.errors import WorldError
from shoestring.core.pod_ref import NODE_VARIABLE, WORKFLOW_VARIABLE
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.kubeflow import PIPELINES
from shoestring.pipelines.pods import IDENTITY_FIELDS
from shoestring.pricing.rows import parse_rows

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
CLUSTER_PAGE = (ROOT / "docs" / "cluster.md").read_text()
BINDINGS = ("RoleBinding", "ClusterRoleBinding")
OVERLAYS = sorted(path.parent for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
DATA = {
    "world": ClusterWorldFile,
    "pools": PoolsFile,
    "prices": PricesFile,
    "policy": Policy,
    "budgets": Budgets,
}
OBJECTS = [
    (path, document)
    for path in sorted(MANIFESTS.rglob("*.yaml"))
    if path.stem not in DATA and path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text())
]
RULES = [(path, rule) for path, document in OBJECTS for rule in document.get("rules", [])]


def pods(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every pod spec inside a document."""
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for child in node.values():
            yield from pods(child)
    elif isinstance(node, list):
        for child in node:
            yield from pods(child)


PODS = [(path, pod) for path, document in OBJECTS for pod in pods(document)]


def kustomization(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return content


def below(folder: Path) -> list[Path]:
    """Return a folder and the folders that it builds on."""
    others = [(folder / name).resolve() for name in kustomization(folder)["resources"]]
    return [folder, *(found for other in others if other.is_dir() for found in below(other))]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for _, document in OBJECTS if document["kind"] == kind]


def written(folder: Path, name: str) -> Path:
    """Return the file of an overlay's ConfigMap: its own, else that of its base."""
    return next(path for place in below(folder) if (path := place / f"{name}.yaml").exists())


def test_only_overlays_name_image_tags() -> None:
    for path in MANIFESTS.rglob("*.yaml"):
        for image in re.findall(r"^[ -]*image: *(\S+)", path.read_text(), re.M):
            assert ":" not in image.rpartition("/")[2], f"{path}: {image}"
    for overlay in OVERLAYS:
        tags = {
            each["name"]: str(each["newTag"])
            for place in below(overlay)
            for each in kustomization(place).get("images", [])
        }
        used = {
            box["image"] for path, pod in PODS if path.parent in below(overlay) for box in pod["containers"]
        }
        assert used <= tags.keys()
        assert "latest" not in tags.values()
        own_images = {name for name in tags if "shoestring" in name}
        assert {f"{name}:{tags[name]}" for name in own_images} <= set(IMAGES.values())


def test_every_pod_passes_the_restricted_level() -> None:
    assert PODS
    for path, pod in PODS:
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"], path
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, path
        assert not any(pod.get(shared) for shared in ("hostNetwork", "hostPID", "hostIPC")), path
        assert all(
            volume.keys() & {"configMap", "emptyDir", "projected", "secret"}
            for volume in pod.get("volumes", [])
        ), path
        for box in [*pod["containers"], *pod.get("initContainers", [])]:
            security = {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert box["securityContext"] == security, path
            assert (
                box["resources"]["requests"].keys() == {"cpu", "memory"}
                and "memory" in box["resources"]["limits"]
            ), path


def test_shoestrings_namespaces_enforce_the_restricted_level() -> None:
    assert of_kind("Namespace")
    for namespace in of_kind("Namespace"):
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_no_rule_grants_a_wildcard() -> None:
    for path, rule in RULES:
        granted = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not granted & {"*", "escalate", "bind", "impersonate"}, path


def test_one_role_alone_grants_a_secret_and_the_manifests_bind_it_to_nobody() -> None:
    (role,) = [
        (document["kind"], document["metadata"]["name"], rule["resourceNames"])
        for _, document in OBJECTS
        for rule in document.get("rules", [])
        if "secrets" in rule["resources"]
    ]
    assert role == ("Role", "shoestring-store-reader", [CREDENTIALS_SECRET])
    bound = {each["roleRef"]["name"] for kind in BINDINGS for each in of_kind(kind)}
    assert bound and not bound & {"shoestring-reader", "shoestring-store-reader"}


def test_the_roles_for_readers_are_the_rows_of_their_table() -> None:
    section = CLUSTER_PAGE.partition("## Reading from your own machine\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z, ]+) ([a-z/]+)(?:: (.*))? \| `(\S+)` \|", section, re.M)
    assert len(rows) == section.count("\n|") - 2, "a row of the table is malformed"
    documented = {
        (role, what, tuple(re.findall(r"`(\S+)`", names))): set(verbs.split(", "))
        for verbs, what, names, role in rows
    }
    assert documented == {
        (document["metadata"]["name"], what, tuple(rule.get("resourceNames", ()))): set(rule["verbs"])
        for path, document in OBJECTS
        if path.name == "readers.yaml"
        for rule in document["rules"]
        for what in rule["resources"]
    }
    world = tuple(f"shoestring-{name}" for name in WORLD_FILES)
    assert documented["shoestring-reader", "configmaps", world] == {"get"}


def test_the_documented_ports_are_those_that_the_network_policy_opens() -> None:
    (policy,) = (each for each in of_kind("NetworkPolicy") if each["metadata"]["name"] == "shoestring")
    opened = {(port["port"], port["protocol"]) for rule in policy["spec"]["egress"] for port in rule["ports"]}
    rows = re.findall(r"^\| (\d+) \| ([A-Z, ]+) \|", CLUSTER_PAGE, re.M)
    assert opened == {(int(port), each) for port, names in rows for each in names.split(", ")}


def test_every_rule_is_in_the_table_of_rights() -> None:
    rows = [line for line in CLUSTER_PAGE.splitlines() if line.startswith("|")]
    for path, rule in RULES:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                named = re.compile(rf"\b{verb}\b.*\b{resource}\b|\b{resource}\b.*\b{verb}\b")
                assert any(named.search(row) for row in rows), f"{path}: {verb} {resource}"


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_the_world_files_of_an_overlay_are_valid(overlay: Path) -> None:
    files = {
        name: parse(written(overlay, name).read_text(), record_type, name, WorldError)
        for name, record_type in DATA.items()
    }
    world, prices, pools = files["world"], files["prices"], files["pools"]
    assert (
        isinstance(world, ClusterWorldFile)
        and isinstance(prices, PricesFile)
        and isinstance(pools, PoolsFile)
    )
    assert set(world.images.values()) <= set(IMAGES.values())
    # On kind the pools are found by their nodes' labels.
    known = {pool.name: pool.market for pool in pools.pools} | (
        found_on_kind() if overlay.name == "kind" else {}
    )
    assert {(quote.pool, quote.market) for quote in parse_rows(prices.prices)} == set(known.items())


def found_on_kind() -> dict[str, str]:
    nodes = yaml.safe_load((ROOT / "tests" / "kind" / "cluster.yaml").read_text())["nodes"]
    labels = [node["labels"] for node in nodes if "labels" in node]
    return {each["shoestring.dev/pool"]: each["shoestring.dev/market"] for each in labels}


def test_the_pools_of_kind_match_the_labels_of_its_nodes() -> None:
    declared = parse(
        (MANIFESTS / "overlays/kind/pools.yaml").read_text(), PoolsFile, "pools", WorldError
    ).pools
    (gpu,) = [pool for pool in declared if isinstance(pool, NodePool) and pool.machine and pool.machine.gpu]
    assert f"value: {gpu.taints[0].value}" in (ROOT / "tests" / "kind" / "cluster.yaml").read_text()
    assert (
        f'"value": "{gpu.machine.gpu_count if gpu.machine else 0}"'
        in (ROOT / "tests" / "kind" / "create_cluster.sh").read_text()
    )


def test_the_objects_that_compiled_pipelines_name_are_in_the_manifests() -> None:
    templates = [
        template
        for pipeline in PIPELINES.values()
        for template in workflow_template(pipeline)["spec"]["templates"]
    ]
    accounts = {account["metadata"]["name"] for account in of_kind("ServiceAccount")}
    assert {
        template["serviceAccountName"] for template in templates if "serviceAccountName" in template
    } <= accounts
    for overlay in OVERLAYS:
        created = {
            each["name"]
            for place in below(overlay)
            for each in kustomization(place).get("configMapGenerator", [])
        }
        assert created == {f"shoestring-{name}" for name in WORLD_FILES}


def test_the_reaper_has_the_same_world_and_identity_as_a_stage() -> None:
    (reaper,) = [pod for _, pod in PODS if pod.get("serviceAccountName") == "shoestring-reaper"]
    (box,) = reaper["containers"]
    env = {each["name"]: each for each in box["env"]}
    own = {
        name: field
        for name, field in IDENTITY_FIELDS.items()
        if name not in (WORKFLOW_VARIABLE, NODE_VARIABLE)
    }
    assert env.keys() == {*CREDENTIAL_VARIABLES, *own}
    assert {name: env[name]["valueFrom"]["fieldRef"]["fieldPath"] for name in own} == own
    assert {mount["name"]: mount["mountPath"] for mount in box["volumeMounts"]}["world"] == str(
        WORLD_MOUNT_PATH
    )
    (world,) = [volume["projected"]["sources"] for volume in reaper["volumes"] if volume["name"] == "world"]
    paths = {source["configMap"]["name"]: source["configMap"]["items"][0]["path"] for source in world}
    assert paths == {f"shoestring-{name}": f"{name}/{name}.yaml" for name in WORLD_FILES}
