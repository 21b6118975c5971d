"""Argo Workflows from outside the cluster: start a run, and look at it as the API shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoestring.backends.kubernetes.api import Item, Kube, connect
from shoestring.core.errors import UnknownName, UsageError

TEMPLATE = "shoestring-train"
OVER = ("Succeeded", "Failed", "Error")
# What Argo's executor writes after what our command said.
EXECUTORS_OWN = ("time=", "Error: exit status")


@dataclass(frozen=True, slots=True)
class Step:
    """A pod of a run, or a person's yes that it waits for. `attempt` counts from 1; `node` is empty until one takes it."""

    name: str
    attempt: int
    phase: str
    message: str
    node: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A run as its Workflow shows it. `summary` is JSON; empty until the exit step has left it."""

    workflow: str
    phase: str
    message: str
    steps: tuple[Step, ...]
    summary: str

    @property
    def is_over(self) -> bool:
        return self.phase in OVER


class Argo:
    """The runs of one namespace."""

    def __init__(self, kube: Kube, context: str, namespace: str) -> None:
        self._kube, self._context, self._namespace = kube, context, namespace
        self._path = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}"

    def start(self, run_id: str, template: str, parameters: Mapping[str, str]) -> None:
        """Make the Workflow of a run, which bears its id. Raises UsageError where the WorkflowTemplate is missing, ClusterError."""
        if self._kube.get(f"{self._path}/workflowtemplates/{template}", "get workflowtemplates") is None:
            apply = f"kubectl --context {self._context} --namespace {self._namespace} apply --filename argo/{template}.yaml"
            own = "" if template == TEMPLATE else " --pipeline MODULE:NAME"
            raise UsageError(
                f"there is no WorkflowTemplate {template} in namespace {self._namespace} of {self._context}; where Argo Workflows is "
                f"installed: shoestring compile --target argo --out argo{own} && {apply}"
            )
        given = [{"name": name, "value": value} for name, value in {"run_id": run_id, **parameters}.items()]
        workflow = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": run_id},
            "spec": {"workflowTemplateRef": {"name": template}, "arguments": {"parameters": given}},
        }
        self._kube.create(f"{self._path}/workflows", workflow, "create workflows")

    def look(self, run: str) -> Progress:
        """A run by its Workflow's name, or by its id. Raises UnknownName, ClusterError."""
        found = self._kube.get(f"{self._path}/workflows/{run}", "get workflows")
        if found is None:
            there = list(self._kube.list(f"{self._path}/workflows", "list workflows"))
            found = workflow_of(run, there)
            if found is None:
                raise UnknownName(
                    f"Workflow in namespace {self._namespace}",
                    run,
                    [workflow["metadata"]["name"] for workflow in there],
                )
        return as_progress(found)


def open_argo(context: str, namespace: str) -> Argo:
    """Raises UsageError for a context that the kubeconfig lacks."""
    return Argo(connect(context), context, namespace)


def workflow_of(run_id: str, there: Iterable[Item]) -> Item | None:
    """The newest Workflow of a run: its id is what it was given, or else the Workflow's uid."""

    def given(workflow: Item) -> str:
        arguments: list[dict[str, Any]] = ((workflow.get("spec") or {}).get("arguments") or {}).get(
            "parameters"
        ) or []
        return next((str(each.get("value", "")) for each in arguments if each["name"] == "run_id"), "")

    its = [workflow for workflow in there if run_id in (workflow["metadata"]["uid"], given(workflow))]
    return max(its, key=lambda workflow: str(workflow["metadata"]["creationTimestamp"]), default=None)


def as_progress(workflow: Item) -> Progress:
    status = workflow.get("status") or {}
    nodes: dict[str, Item] = status.get("nodes") or {}
    pods = sorted(
        (node for node in nodes.values() if node["type"] in ("Pod", "Suspend")),
        key=lambda node: (node["startedAt"], node["name"]),
    )
    summaries = [output(node, "summary") for node in pods if node.get("templateName") == "settle"]
    return Progress(
        workflow=workflow["metadata"]["name"],
        phase=status.get("phase") or "Pending",
        message=status.get("message") or "",
        steps=tuple(as_step(node, nodes) for node in pods),
        summary=next(filter(None, summaries), ""),
    )


def as_step(node: Item, nodes: Mapping[str, Item]) -> Step:
    """Argo calls the attempts at a pair `STAGE(0)`, `STAGE(1)`, and a retried pod likewise."""
    template = node.get("templateName", "")
    tried = (
        nodes.get(node.get("boundaryID", ""), node)["displayName"]
        if template != "settle"
        else node["displayName"]
    )
    number = tried.rpartition("(")[2].removesuffix(")")
    said = [line for line in (node.get("message") or "").splitlines() if not line.startswith(EXECUTORS_OWN)]
    if node["type"] == "Suspend" and node["phase"] == "Running":
        said.append("the run waits until somebody resumes its Workflow")
    return Step(
        name=f"route {value(node, 'stage')}" if template == "route" else template,
        attempt=int(number) + 1 if number.isdigit() else 1,
        phase=node["phase"],
        message=" ".join(said),
        node=node.get("hostNodeName") or "",
    )


def value(node: Item, name: str, where: str = "inputs") -> str:
    """A parameter of a node, empty where it has none."""
    parameters: list[dict[str, Any]] = (node.get(where) or {}).get("parameters") or []
    return next(
        (str(parameter.get("value", "")) for parameter in parameters if parameter["name"] == name), ""
    )


def output(node: Item, name: str) -> str:
    return value(node, name, "outputs")
