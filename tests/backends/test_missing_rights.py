"""`--on CONTEXT` without a right: the message names the right, its namespace and the role that grants it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from remote_lab import NAMESPACE, RemoteLab
from s3_server import ADMIN, environment

MANIFESTS = Path(__file__).parents[2] / "manifests" / "base"
WORKFLOWS = f"list /apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/workflows"
MISSING = re.compile(
    r"does not allow you to (\w+) (\S+) in namespace (\S+) \(.*\): "
    r"ask its administrator for the Role (\S+) of manifests/base/(\w+\.yaml)"
)


def missing_right(text: str) -> tuple[str, str, str, str]:
    """Return the verb, the resource, the namespace and the role that a message names; the role grants it."""
    found = MISSING.search(text)
    assert found, text
    verb, resource, namespace, role, file = found.groups()
    documents = yaml.safe_load_all((MANIFESTS / file).read_text())
    (rules,) = [each["rules"] for each in documents if each["metadata"]["name"] == role and "rules" in each]
    assert any(verb in rule["verbs"] and resource in rule["resources"] for rule in rules)
    return verb, resource, namespace, role


def test_configmaps(lab: RemoteLab) -> None:
    lab.kube.denied.append("/configmaps/")
    ran = lab.on("runs")
    assert ran.code == 1
    assert missing_right(ran.err) == ("get", "configmaps", NAMESPACE, "shoestring-reader")


@pytest.mark.parametrize(
    ("verb", "resource", "denied"),
    [
        ("get", "services", "get /api/v1/namespaces/team/services/"),
        ("list", "pods", "list /api/v1/namespaces/team/pods"),
        ("get", "pods", "get /api/v1/namespaces/team/pods/"),
        ("create", "pods/portforward", "/portforward"),
    ],
)
def test_the_port_of_a_store_that_is_a_service(
    lab: RemoteLab, relay: dict[str, str], verb: str, resource: str, denied: str
) -> None:
    lab.install(endpoint="s3.team.svc:8333")
    lab.kube.denied.append(denied)
    ran = lab.on("runs", **relay)
    assert ran.code == 1
    assert missing_right(ran.err) == (verb, resource, "team", "shoestring-store-reader")


def test_a_store_whose_host_is_unknown_may_be_a_service(lab: RemoteLab) -> None:
    lab.install(endpoint="s3.invalid:8333")
    lab.kube.denied.append("/services/")
    ran = lab.on("runs")
    assert ran.code == 1
    assert "the store's host s3.invalid is not known on this machine, and may be a service" in ran.err
    assert missing_right(ran.err) == ("get", "services", "invalid", "shoestring-store-reader")


def test_a_store_whose_host_is_known_needs_no_right_to_read_services(lab: RemoteLab) -> None:
    # 127.1 is 127.0.0.1, in two parts as the name of a service.
    lab.install(endpoint=lab.s3.endpoint.replace("127.0.0.1", "127.1"))
    lab.kube.denied.append("/services/")
    ran = lab.on("runs", "--json")
    assert [each["run_id"] for each in ran.json] == [lab.run_id], ran.err


def test_workflows_of_a_run_that_is_resumed(lab: RemoteLab) -> None:
    lab.kube.denied.append(WORKFLOWS)
    ran = lab.on("run", "--resume", lab.run_id)
    assert ran.code == 1
    assert missing_right(ran.err) == ("list", "workflows", NAMESPACE, "shoestring-reader")


def test_workflows_of_a_run_that_is_watched_in_its_store_alone(lab: RemoteLab) -> None:
    lab.kube.denied.append(WORKFLOWS)
    ran = lab.on("watch", lab.run_id)
    assert ran.code == 0, ran.err
    assert missing_right(ran.err) == ("list", "workflows", NAMESPACE, "shoestring-reader")
    assert "until then its store alone is read" in ran.err


def test_pods_of_the_namespace_that_is_reaped(lab: RemoteLab) -> None:
    lab.kube.denied.append("list /api/v1/namespaces/shoestring/pods")
    ran = lab.on("reap", **environment(ADMIN))
    assert ran.code == 1
    assert missing_right(ran.err) == ("list", "pods", NAMESPACE, "shoestring-reaper")


def test_credentials_that_the_cluster_does_not_accept_are_not_a_missing_right(lab: RemoteLab) -> None:
    lab.kube.signed_in = False
    ran = lab.on("runs")
    assert (ran.code, "does not accept the credentials (Unauthorized): renew them" in ran.err) == (1, True)
