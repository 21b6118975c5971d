"""The templates of a WorkflowTemplate: route, stage, the pair of them, and the exit step."""

from __future__ import annotations

import json

from shoestring.backends.local import WORLD_MOUNT_PATH
from shoestring.backends.s3.location import CREDENTIAL_VARIABLES, CREDENTIALS_SECRET
from shoestring.backends.sources.data_variables import DATA_SECRET, DATA_VARIABLES
from shoestring.config.world import IMAGES, WORLD_FILES
from shoestring.pipelines.compiled_values import ITEM, KEY, Made
from shoestring.pipelines.external_containers import OUTPUTS, Yaml
from shoestring.pipelines.pods import IDENTITY_FIELDS
from shoestring.pipelines.stage_graph import ExternalStage, RoutedStage, Stage
from shoestring.routing.placement import ROUTE, RUN_LABEL, SETTLE, STAGE_LABEL, STEP_REQUESTS

# Always: also when the pod was deleted, as pods on preempted spot machines are.
RETRY = {"limit": "2", "retryPolicy": "Always"}
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
SCRATCH = "/tmp"
COMPLETE = "complete"
"""The output of a route step that is `yes` where it has returned the results of all stages."""


REFUSED = "refused-"
"""Prefix of the output of the workflow that is `yes` where the route step of a stage, or of one item of it,
has refused.
"""

ITEM_NUMBER = "join(map(sprig.regexFindAll('[0-9]+:', node.name, -1), '-' + trimSuffix(#, ':')))"
"""An expression for the number of an item in each loop around it, as `-2-0`: of the names of nodes, of which
those of items have `(2:2)`.
"""


def parameter_values(values: dict[str, str]) -> list[Yaml]:
    return [{"name": name, "value": value} for name, value in values.items()]


def declare_parameters(*names: str) -> Yaml:
    return {"parameters": [{"name": name} for name in names]}


def file_outputs(**paths: str) -> Yaml:
    """Return output parameters whose values are read from files."""
    return {"parameters": [{"name": name, "valueFrom": {"path": path}} for name, path in paths.items()]}


def input_text(name: str) -> str:
    """Return the reference to an input of a template."""
    return f"{{{{inputs.parameters.{name}}}}}"


def forward_inputs(*names: str) -> dict[str, str]:
    """Return inputs of a template, to be passed on under the same names."""
    return {name: input_text(name) for name in names}


def pod_template(
    name: str, label: str, account: str, command: list[str], inputs: list[str], outputs: Yaml
) -> Yaml:
    """Return a template of one container, which `container_defaults()` completes."""
    return {
        "name": name,
        "inputs": declare_parameters(*inputs),
        "outputs": outputs,
        "metadata": pod_labels(label),
        "serviceAccountName": account,
        "container": {"args": [*command, "--run-id", "{{workflow.parameters.run_id}}"]},
    }


def step_template(
    name: str, label: str, account: str, command: list[str], inputs: list[str], outputs: Yaml
) -> Yaml:
    """Return the template of a route or exit step, with what its pod requests. It may run on spot: it is made
    again where it is lost.
    """
    template = pod_template(name, label, account, command, inputs, outputs)
    # A copy, or YAML would write the second one as a reference to the first.
    resources = {"requests": dict(STEP_REQUESTS)}
    return template | {"container": template["container"] | {"resources": resources}}


def pod_labels(label: str) -> Yaml:
    return {"labels": {STAGE_LABEL: label, RUN_LABEL: "{{workflow.parameters.run_id}}"}}


def container_defaults() -> Yaml:
    """Return what all containers have: the world's files, the credentials of the store and of the data, the
    pod's identity, no root.
    """
    secrets = (CREDENTIALS_SECRET, CREDENTIAL_VARIABLES), (DATA_SECRET, DATA_VARIABLES)
    credentials = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name, "optional": True}}}
        for secret, names in secrets
        for name in names
    ]
    identity = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in IDENTITY_FIELDS.items()
    ]
    files = [
        {"name": name, "mountPath": f"{WORLD_MOUNT_PATH}/{name}", "readOnly": True} for name in WORLD_FILES
    ]
    return {
        "image": IMAGES["base"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["shoestring"],
        "env": [*credentials, *identity],
        "volumeMounts": [*files, {"name": "scratch", "mountPath": SCRATCH}],
        # Argo then shows a router's refusal as the message of its pod.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": RESTRICTED,
    }


def executor_patch() -> str:
    """Return a patch that restricts Argo's own containers as well; their defaults are refused by a
    `restricted` namespace.
    """
    containers = {
        kind: [{"name": name, "securityContext": RESTRICTED}]
        for kind, name in (("initContainers", "init"), ("containers", "wait"))
    }
    return json.dumps(containers)


def router_template() -> Yaml:
    """Return the template of the router, which all stages share."""
    out = f"{SCRATCH}/routed"
    options = {
        "--needs": "{{inputs.parameters.needs}}",
        "--upstream": "{{inputs.parameters.upstream}}",
        "--side-input": "{{inputs.parameters.side_input}}",
        "--items": "{{inputs.parameters.items}}",
        "--recipe": "{{workflow.parameters.recipe}}",
        "--budget": "{{workflow.parameters.budget_usd}}",
        "--deadline": "{{workflow.parameters.deadline_s}}",
        "--seed": "{{workflow.parameters.seed}}",
        "--out": out,
    }
    command = ["route", *(word for option in options.items() for word in option)]
    # Outputs have defaults, because Argo drops all outputs of a pod if one file is missing, and a router that
    # refuses writes only the last of them.
    files = {
        "patch": ("patch", ""),
        "decision_key": ("decision_key", ""),
        "page": ("page.md", ""),
        COMPLETE: ("complete", "no"),
        "refused": ("refused", "no"),
    }
    outputs = [
        {"name": name, "valueFrom": {"path": f"{out}/{file}", "default": default}}
        for name, (file, default) in files.items()
    ]
    # An output of the whole workflow, of this stage: a retryStrategy cannot read any other output of a task
    # within its template.
    outputs[-1]["globalName"] = f"{REFUSED}{{{{inputs.parameters.stage}}}}{{{{inputs.parameters.{ITEM}}}}}"
    return step_template(
        "route",
        f"{ROUTE}{{{{inputs.parameters.stage}}}}",
        "shoestring-router",
        command,
        ["stage", "needs", "upstream", "side_input", ITEM, "items"],
        {"parameters": outputs},
    )


def stage_template(stage: Stage) -> Yaml:
    """Return the template of a stage, in the pod that its router's patch describes."""
    if isinstance(stage, ExternalStage):
        return external_template(stage)
    key = f"{SCRATCH}/key"
    inputs = [
        word
        for name, made in stage.inputs.items()
        for word in ("--input", f"{name}={{{{inputs.parameters.{made.name}}}}}")
    ]
    origin = ["--origin", stage.origin] if stage.origin else []
    decision = ["--decision-key", "{{inputs.parameters.decision_key}}"]
    command = ["stage", stage.name, *decision, "--key-to", key, *origin, *inputs]
    template = pod_template(
        stage.task,
        stage.name,
        "shoestring-stage",
        command,
        ["patch", "decision_key", *stage.values],
        file_outputs(key=key),
    )
    return stage.pod.apply(template, container_defaults()) | {"podSpecPatch": "{{inputs.parameters.patch}}"}


def external_template(stage: ExternalStage) -> Yaml:
    """Return the template of an external component: its own image, and no credentials of the store unless it
    has a meter. The restricted level, which Shoestring's own pods keep, leaves it a file system that it can
    write.
    """
    folder, container = {"name": "scratch", "mountPath": OUTPUTS}, stage.container
    mounts = [folder] if stage.outputs else []
    if stage.is_metered:
        common = container_defaults()
        mounts += common["volumeMounts"]
        container = common | container
    template = {
        "name": stage.task,
        "inputs": declare_parameters(*decided_for(stage), *stage.values),
        "outputs": file_outputs(**{name: f"{OUTPUTS}/{name}" for name in stage.outputs}),
        "metadata": pod_labels(stage.name),
        "serviceAccountName": "shoestring-stage",
        "container": container
        | {"securityContext": RESTRICTED | {"readOnlyRootFilesystem": False}}
        | ({"volumeMounts": mounts} if mounts else {}),
    }
    return stage.pod.apply(template, {}) | {"podSpecPatch": "{{inputs.parameters.patch}}"}


def has_meter(stage: Stage) -> bool:
    return isinstance(stage, RoutedStage) or stage.is_metered


def may_return_all(stage: Stage) -> bool:
    """Return whether the route step of a stage may return the results of all stages."""
    return bool(json.loads(stage.needs).get("may_return_all"))


def is_in_loop(stage: Stage) -> bool:
    return bool(json.loads(stage.needs).get("loops"))


def decided_for(stage: Stage) -> list[str]:
    """Return the outputs of its router that a stage's pod is given."""
    return ["patch", "decision_key"] if has_meter(stage) else ["patch"]


def routed_template(stage: Stage) -> Yaml:
    """Return the template of route and stage, which are retried together: a lost pod needs a placement for
    the current prices.

    It is not retried after a refusal, since the router would refuse again. A component without a meter is not
    retried at all: it would begin again, whatever the reason of its end was.
    """
    is_keyed = isinstance(stage, RoutedStage)
    outputs = [KEY] if isinstance(stage, RoutedStage) else stage.outputs
    routing = {
        name: input_text(made.name if is_keyed else name) if made else ""
        for name, made in (("upstream", stage.upstream), ("side_input", stage.side_input))
    }
    of_item = {
        ITEM: f"{{{{={ITEM_NUMBER}}}}}" if is_in_loop(stage) else "",
        "items": input_text(stage.items.name) if stage.items else "",
    }
    given = {name: Made("route", name).text for name in decided_for(stage)} | forward_inputs(*stage.values)
    tasks = [
        {"name": "route", "template": "route"}
        | arguments({"stage": stage.name, "needs": stage.needs} | routing | of_item),
        {"name": "stage", "template": stage.task, "depends": "route"} | arguments(given),
    ]
    made = [{"name": name, "valueFrom": {"parameter": Made("stage", name).text}} for name in outputs]
    if may_return_all(stage):
        complete = Made("route", COMPLETE).text
        tasks[-1]["when"] = f"{complete} != yes"
        # The stage has no outputs then, and Argo would fail the pair.
        made = [each | {"valueFrom": each["valueFrom"] | {"default": ""}} for each in made]
        made.append({"name": COMPLETE, "valueFrom": {"parameter": complete}})
    return {
        "name": f"{stage.task}-routed",
        "inputs": declare_parameters(*stage.arguments),
        "outputs": {"parameters": made},
        **({"retryStrategy": retry_strategy(stage)} if has_meter(stage) else {}),
        "dag": {"tasks": tasks},
    }


def retry_strategy(stage: Stage) -> Yaml:
    """Return that of a pair, which has no retry where its route step has refused."""
    # Where an expression reads the outputs of the workflow, it cannot read inputs of its template.
    item = f" + {ITEM_NUMBER}" if is_in_loop(stage) else ""
    refused = f"workflow.outputs?.parameters?.['{REFUSED}{stage.name}'{item}] ?? 'no'"
    return RETRY | {"expression": f"{{{{=({refused}) != 'yes'}}}}"}


def arguments(values: dict[str, str]) -> Yaml:
    return {"arguments": {"parameters": parameter_values(values)}}


def settle_template() -> Yaml:
    """Return the template of the exit step."""
    summary = f"{SCRATCH}/summary.json"
    command = ["settle", "--summary", summary]
    outputs = file_outputs(summary=summary)
    template = step_template("settle", SETTLE, "shoestring-settle", command, [], outputs)
    # Exit code 2: a file of the world is wrong, and a second pod would read the same one.
    return template | {"retryStrategy": RETRY | {"expression": "lastRetry.exitCode != '2'"}}
