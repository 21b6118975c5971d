"""Argo Workflows from outside the cluster: start a run, and read its progress from the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoestring.backends.kubernetes.api import Item, KubeApi, connect
from shoestring.backends.kubernetes.pod_lifetime import workflow_nodes
from shoestring.backends.kubernetes.rights import READER, Right
from shoestring.core.attempt_id import item_stage
from shoestring.core.errors import UnknownName, UsageError
from shoestring.core.pod_ref import item_of_node
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL

TEMPLATE, PREDICT_TEMPLATE = "shoestring-train", "shoestring-predict"
RUN_ID_PARAMETER = "run_id"
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
    """A run as its Workflow shows it. `summary` is JSON; empty until the exit step has written it. `errors`:
    Argo's own, each with the task that it could not begin.
    """

    workflow: str
    phase: str
    message: str
    steps: tuple[ArgoStep, ...]
    summary: str
    errors: tuple[str, ...] = ()

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED_PHASES


@dataclass(frozen=True, slots=True)
class RunWorkflow:
    """A Workflow, and the run that it belongs to.

    `is_kubeflow`: its steps are Kubeflow's. `template` is its WorkflowTemplate; empty: it has none.
    """

    name: str
    run_id: str
    is_kubeflow: bool
    template: str
    parameters: Mapping[str, str]


class Argo:
    """The runs of one namespace."""

    def __init__(self, api: KubeApi, context: str, namespace: str) -> None:
        self._api, self._context, self._namespace = api, context, namespace
        self._path = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}"

    def start(self, name: str, template: str, parameters: Mapping[str, str]) -> None:
        """Create a Workflow of this name from a WorkflowTemplate; its parameter `run_id` is the run's id.

        Raises UsageError if the WorkflowTemplate is missing; ClusterError.
        """
        right = Right("get", "workflowtemplates", self._namespace)
        if self._api.get(f"{self._path}/workflowtemplates/{template}", right) is None:
            raise UsageError(self._missing_template(template))
        arguments = {"parameters": [{"name": key, "value": value} for key, value in parameters.items()]}
        workflow = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": name},
            "spec": {"workflowTemplateRef": {"name": template}, "arguments": arguments},
        }
        self._api.create(f"{self._path}/workflows", workflow, Right("create", "workflows", self._namespace))

    def _missing_template(self, template: str) -> str:
        pipeline = "" if template == TEMPLATE else " --pipeline MODULE:NAME"
        kubectl = f"kubectl --context {self._context} --namespace {self._namespace}"
        return (
            f"there is no WorkflowTemplate {template} in namespace {self._namespace} of {self._context}; "
            f"where Argo Workflows is installed: shoestring compile --target argo --out argo{pipeline} "
            f"&& {kubectl} apply --filename argo/{template}.yaml"
        )

    def find(self, run: str) -> RunWorkflow:
        """Return the newest Workflow of a run, by its Workflow's name, its id, or Kubeflow's id of it.

        Raises UnknownName, ClusterError.
        """
        named = self._api.get(f"{self._path}/workflows/{run}", self._right("get"))
        if named is not None and run_of_workflow(named).run_id != run:
            return run_of_workflow(named)
        workflows = list(self._api.list(f"{self._path}/workflows", self._right("list")))
        found = find_workflow(run, workflows) or named
        if found is None:
            names = [each["metadata"]["name"] for each in workflows]
            raise UnknownName(f"Workflow in namespace {self._namespace}", run, names)
        return run_of_workflow(found)

    def read(self, name: str) -> ArgoProgress:
        """Return the progress of a Workflow. Raises UnknownName, ClusterError."""
        workflow = self._api.get(f"{self._path}/workflows/{name}", self._right("get"))
        if workflow is None:
            raise UnknownName(f"Workflow in namespace {self._namespace}", name, [])
        return parse_progress(workflow)

    def _right(self, verb: str) -> Right:
        return Right(verb, "workflows", self._namespace, READER)


def open_argo(context: str, namespace: str) -> Argo:
    """Connect to a kubeconfig's context. Raises UsageError if the kubeconfig lacks it."""
    return Argo(connect(context), context, namespace)


def find_workflow(run: str, workflows: Iterable[Item]) -> Item | None:
    """Return the newest Workflow of a run, by the run's id or the Workflow's uid."""
    matching = [each for each in workflows if run in (each["metadata"]["uid"], run_of_workflow(each).run_id)]
    return max(matching, key=lambda workflow: str(workflow["metadata"]["creationTimestamp"]), default=None)


def run_of_workflow(workflow: Item) -> RunWorkflow:
    """Return a Workflow as the run that it belongs to.

    The id is its parameter `run_id`, else its uid; of Kubeflow's, the id that Kubeflow gave the run.
    """
    meta, spec = workflow["metadata"], workflow.get("spec") or {}
    listed: list[dict[str, Any]] = (spec.get("arguments") or {}).get("parameters") or []
    parameters = {str(each["name"]): str(each.get("value", "")) for each in listed}
    of_kubeflow = (meta.get("labels") or {}).get(KUBEFLOW_RUN_LABEL, "")
    return RunWorkflow(
        name=meta["name"],
        run_id=of_kubeflow or parameters.get(RUN_ID_PARAMETER) or meta.get("uid", ""),
        is_kubeflow=bool(of_kubeflow),
        template=(spec.get("workflowTemplateRef") or {}).get("name") or "",
        parameters=parameters,
    )


def parse_progress(workflow: Item) -> ArgoProgress:
    status = workflow.get("status") or {}
    nodes = workflow_nodes(status) or {}
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
        errors=tuple(
            f"{node['name'].partition('.')[2]}: {node['message']}"
            for node in sorted(nodes.values(), key=lambda node: str(node["name"]))
            if node["type"] == "Skipped" and node.get("phase") == "Error" and node.get("message")
        ),
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
    name = f"route {parameter_value(node, 'stage')}" if template == "route" else template
    return ArgoStep(
        name=item_stage(name, item_of_node(node["name"])),
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
