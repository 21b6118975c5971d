"""Argo Workflows from outside the cluster: start a run, and read its progress from the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoestring.backends.kubernetes.api import Item, KubeApi, connect
from shoestring.core.errors import UnknownName, UsageError

TEMPLATE = "shoestring-train"
FINISHED_PHASES = ("Succeeded", "Failed", "Error")
EXECUTOR_PREFIXES = ("time=", "Error: exit status")
"""Prefixes of the lines that Argo's executor adds to a pod's message."""


@dataclass(frozen=True, slots=True)
class ArgoStep:
    """A pod of a run, or a manual approval step that the run waits at.

    `attempt` counts from 1. `node` is empty until a node takes the pod.
    """

    name: str
    attempt: int
    phase: str
    message: str
    node: str


@dataclass(frozen=True, slots=True)
class ArgoProgress:
    """A run as its Workflow shows it. `summary` is JSON; empty until the exit step has written it."""

    workflow: str
    phase: str
    message: str
    steps: tuple[ArgoStep, ...]
    summary: str

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED_PHASES


class Argo:
    """The runs of one namespace."""

    def __init__(self, api: KubeApi, context: str, namespace: str) -> None:
        self._api, self._context, self._namespace = api, context, namespace
        self._path = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}"

    def start(self, run_id: str, template: str, parameters: Mapping[str, str]) -> None:
        """Create the Workflow of a run, named by its id.

        Raises UsageError if the WorkflowTemplate is missing; ClusterError.
        """
        if self._api.get(f"{self._path}/workflowtemplates/{template}", "get workflowtemplates") is None:
            raise UsageError(self._missing_template(template))
        values = {"run_id": run_id, **parameters}
        arguments = {"parameters": [{"name": name, "value": value} for name, value in values.items()]}
        workflow = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": run_id},
            "spec": {"workflowTemplateRef": {"name": template}, "arguments": arguments},
        }
        self._api.create(f"{self._path}/workflows", workflow, "create workflows")

    def _missing_template(self, template: str) -> str:
        pipeline = "" if template == TEMPLATE else " --pipeline MODULE:NAME"
        kubectl = f"kubectl --context {self._context} --namespace {self._namespace}"
        return (
            f"there is no WorkflowTemplate {template} in namespace {self._namespace} of {self._context}; "
            f"where Argo Workflows is installed: shoestring compile --target argo --out argo{pipeline} "
            f"&& {kubectl} apply --filename argo/{template}.yaml"
        )

    def read(self, run: str) -> ArgoProgress:
        """Return the progress of a run, by its Workflow's name or its id.

        Raises UnknownName, ClusterError.
        """
        workflow = self._api.get(f"{self._path}/workflows/{run}", "get workflows")
        if workflow is None:
            workflows = list(self._api.list(f"{self._path}/workflows", "list workflows"))
            workflow = find_workflow(run, workflows)
            if workflow is None:
                names = [each["metadata"]["name"] for each in workflows]
                raise UnknownName(f"Workflow in namespace {self._namespace}", run, names)
        return parse_progress(workflow)


def open_argo(context: str, namespace: str) -> Argo:
    """Connect to a kubeconfig's context. Raises UsageError if the kubeconfig lacks it."""
    return Argo(connect(context), context, namespace)


def find_workflow(run_id: str, workflows: Iterable[Item]) -> Item | None:
    """Return the newest Workflow of a run: its parameter `run_id`, or its uid, is the run's id."""

    def run_id_parameter(workflow: Item) -> str:
        arguments = (workflow.get("spec") or {}).get("arguments") or {}
        parameters: list[dict[str, Any]] = arguments.get("parameters") or []
        return next((str(each.get("value", "")) for each in parameters if each["name"] == "run_id"), "")

    matching = [each for each in workflows if run_id in (each["metadata"]["uid"], run_id_parameter(each))]
    return max(matching, key=lambda workflow: str(workflow["metadata"]["creationTimestamp"]), default=None)


def parse_progress(workflow: Item) -> ArgoProgress:
    status = workflow.get("status") or {}
    nodes: dict[str, Item] = status.get("nodes") or {}
    pods = sorted(
        (node for node in nodes.values() if node["type"] in ("Pod", "Suspend")),
        key=lambda node: (node["startedAt"], node["name"]),
    )
    summaries = [
        parameter_value(node, "summary", "outputs") for node in pods if node.get("templateName") == "settle"
    ]
    return ArgoProgress(
        workflow=workflow["metadata"]["name"],
        phase=status.get("phase") or "Pending",
        message=status.get("message") or "",
        steps=tuple(parse_step(node, nodes) for node in pods),
        summary=next(filter(None, summaries), ""),
    )


def parse_step(node: Item, nodes: Mapping[str, Item]) -> ArgoStep:
    """Return a node of a Workflow's status as a step.

    Argo names the attempts of a retried template `STAGE(0)`, `STAGE(1)`: of the settle step the pod itself is
    retried, of a stage the pair of route and stage, which is the node that encloses the pod.
    """
    template = node.get("templateName", "")
    retried = node if template == "settle" else nodes.get(node.get("boundaryID", ""), node)
    number = retried["displayName"].rpartition("(")[2].removesuffix(")")
    lines = [
        line for line in (node.get("message") or "").splitlines() if not line.startswith(EXECUTOR_PREFIXES)
    ]
    if node["type"] == "Suspend" and node["phase"] == "Running":
        lines.append("the run waits until its Workflow is resumed")
    return ArgoStep(
        name=f"route {parameter_value(node, 'stage')}" if template == "route" else template,
        attempt=int(number) + 1 if number.isdigit() else 1,
        phase=node["phase"],
        message=" ".join(lines),
        node=node.get("hostNodeName") or "",
    )


def parameter_value(node: Item, name: str, where: str = "inputs") -> str:
    """Return a parameter of a node's inputs or outputs; empty if it has none of that name."""
    parameters: list[dict[str, Any]] = (node.get(where) or {}).get("parameters") or []
    return next(
        (str(parameter.get("value", "")) for parameter in parameters if parameter["name"] == name), ""
    )
