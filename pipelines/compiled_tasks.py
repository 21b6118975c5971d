"""The tasks of a compiled pipeline, and what neither `routed()` nor KFP's compiler can check of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from google.protobuf.json_format import MessageToDict

from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines.external_containers import INPUT_PLACEHOLDER, Yaml
from shoestring.routing.branches import branches_of, excludes
from shoestring.routing.placement import STAGE_LABEL

ROUTER_INPUTS = {"needs", "upstream", "side_input", "job_id"}
EXIT_STEP_INPUTS = {"world", "run_id", "job_id"}
BRANCHES = "condition-branches"
"""How KFP names the group of an If with its Elif and Else."""
AT_THE_END = "ALL_UPSTREAM_TASKS_COMPLETED"
"""KFP's strategy for a task that runs however the tasks before it ended."""
DECIDED = {
    "nodeSelector": "kubernetes.add_node_selector()",
    "tolerations": "kubernetes.add_toleration()",
    "nodeAffinity": "kubernetes.add_node_affinity()",
}
"""What a route step decides of a pod's configuration, with what changes it."""


Path = tuple[str, ...]
"""The name of a task, after those of the groups and nested pipelines around it."""


@dataclass(frozen=True)
class CompiledTask:
    """A task in a compiled pipeline.

    `inputs`: its input parameters. `component`: the name of its component. `after`: the tasks of its DAG that
    it waits for. `settles`: what it settles, for an exit step. `condition`: its own, as KFP writes it.
    `iterator`: of a loop over values, its list and the name of an item. `at_once`: items that it works on at
    the same time; 0: all. `conditions` and `loops`: those around it, the innermost last.
    """

    path: Path
    inputs: Yaml
    component: str = ""
    after: frozenset[str] = frozenset()
    settles: frozenset[Path] = frozenset()
    condition: str = ""
    iterator: Yaml = field(default_factory=dict)
    at_once: int = 0
    conditions: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def is_router(self) -> bool:
        return self.inputs.keys() >= ROUTER_INPUTS

    @property
    def is_group(self) -> bool:
        """Whether a run may go without what is in it, takes one branch of it, or repeats it."""
        return bool(self.condition or self.iterator) or self.name.startswith(BRANCHES)


def compiled_tasks(spec: Yaml) -> list[CompiledTask]:
    """Return the tasks of a pipeline, those within groups and nested pipelines included."""
    found, dags = list[CompiledTask](), [(spec["root"]["dag"], CompiledTask((), {}))]
    for dag, around in dags:
        for name, task in dag["tasks"].items():
            inputs = task.get("inputs", {}).get("parameters", {})
            before = frozenset(task.get("dependentTasks", []))
            condition = task.get("triggerPolicy", {}).get("condition", "")
            inner = CompiledTask(
                (*around.path, name),
                inputs=inputs,
                component=task["componentRef"]["name"],
                after=before,
                settles=frozenset((*around.path, each) for each in before if is_exit_step(task, inputs)),
                condition=condition,
                iterator=task.get("parameterIterator", {}),
                at_once=int(task.get("iteratorPolicy", {}).get("parallelismLimit", 0)),
                conditions=(*around.conditions, *([name] if condition else [])),
                loops=(*around.loops, *([name] if _is_loop(task) else [])),
            )
            found.append(inner)
            component = spec["components"][inner.component]
            if "dag" in component:
                dags.append((component["dag"], inner))
    return found


def is_exit_step(task: Yaml, inputs: Yaml) -> bool:
    """Return whether a task, with these inputs, is what `settle_step` makes."""
    return task.get("triggerPolicy", {}).get("strategy") == AT_THE_END and inputs.keys() == EXIT_STEP_INPUTS


def _is_loop(task: Yaml) -> bool:
    return not {"parameterIterator", "artifactIterator"}.isdisjoint(task)


def constant(value: Yaml) -> str:
    """Return the text of a constant input; empty for any other."""
    return str(value.get("runtimeValue", {}).get("constant", ""))


def routers_of(tasks: Iterable[CompiledTask]) -> dict[Path, CompiledTask]:
    """Return the router of each task that has one, by the path of the task."""
    dags: dict[Path, dict[str, CompiledTask]] = defaultdict(dict)
    for task in tasks:
        dags[task.path[:-1]][task.name] = task
    return {
        (*path, name): dag[router]
        for path, dag in dags.items()
        for name, task in dag.items()
        if (router := _router_name(task)) in dag and (dag[router].is_router or "decision_key" in task.inputs)
    }


def _router_name(task: CompiledTask) -> str:
    """Return the task that places a task, or passes it a decision; empty: none does."""
    placed = INPUT_PLACEHOLDER.fullmatch(constant(task.inputs.get("cpu_request", {})))
    given = task.inputs.get("decision_key") or (task.inputs[placed[1]] if placed else {})
    return str(given.get("taskOutputParameter", {}).get("producerTask", ""))


def check_pipeline(pipeline: Any) -> None:
    """Check a pipeline of KFP as `check_compiled` does its file. A component alone passes."""
    if pipeline.component_spec.implementation.graph is None:
        return
    check_compiled(MessageToDict(pipeline.pipeline_spec), MessageToDict(pipeline.platform_spec))


def check_compiled(spec: Yaml, platform: Yaml) -> None:
    """Check a compiled pipeline. `platform`: what KFP's extension for Kubernetes has set.

    Raises UsageError: a stage in a loop, where `routed()` did not see it; a stage whose place was changed
    after `routed()`; or a stage that no exit step settles.
    """
    tasks = compiled_tasks(spec)
    settled = {path for task in tasks for path in task.settles}
    for task in tasks:
        if not task.is_router:
            continue
        if len(task.loops) != len(json.loads(constant(task.inputs["needs"])).get("loops", ())):
            raise UsageError(
                f"{task.name} is a router inside {task.loops[-1]}, and does not know of it: call routed() in "
                "the pipeline that has the loop, or take the nested pipeline out of dsl.ParallelFor"
            )
        if not any(task.path[:length] in settled for length in range(1, len(task.path))):
            raise UsageError(
                f"{task.name} reserves money, and no exit step settles it: put routed() inside `with "
                'dsl.ExitHandler(settle_step(run), name="spend"):`'
            )
    check_branches([task for task in tasks if task.is_router])
    check_places(spec, platform, tasks)


def check_branches(routers: list[CompiledTask]) -> None:
    """Raise UsageError where a need names a branch, and the conditions of the pipeline do not make it one."""
    # Sorted, as a compiled pipeline has its tasks in any order.
    found = sorted(((router, need_of(router)) for router in routers), key=lambda each: each[1].stage)
    for router, need in found:
        if need.branch and not router.conditions:
            raise UsageError(
                f"{need.stage} is in the branch {need.branch}, and in no dsl.If: leave out `branch`"
            )
    for (one, need), (other, others) in combinations(found, 2):
        if excludes(branches_of(need), others) and not are_exclusive(one.path, other.path):
            raise UsageError(
                f"{need.stage} is in the branch {need.branch} and {others.stage} in {others.branch}, and one "
                "run may take both: put them into dsl.If, Elif and Else of one group, or leave out `branch`"
            )


def need_of(router: CompiledTask) -> Need:
    return Need.model_validate(json.loads(constant(router.inputs["needs"]))["needs"][0])


def are_exclusive(one: Path, other: Path) -> bool:
    """Return whether two tasks, by their paths, are in different branches of an If with Elif or Else."""
    common = next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), 0)
    return common > 0 and one[common - 1].startswith(BRANCHES) and len(one) > common + 1 < len(other)


def check_places(spec: Yaml, platform: Yaml, tasks: list[CompiledTask]) -> None:
    """Raise UsageError for a routed task whose place was changed after `routed()`."""
    routers = routers_of(tasks)
    given = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    for task in tasks:
        if router := routers.get(task.path):
            label = spec["components"][task.component]["executorLabel"]
            for change in changes(given.get(label, {}), need_of(router).stage):
                raise UsageError(
                    f"{task.name}: {change} after routed() changes what its route step decides, or how its "
                    "pod is found: leave it out"
                )


def changes(config: Yaml, stage: str) -> Iterator[str]:
    """Yield the calls that changed the configuration of a stage's pod after `routed()`."""
    for key, call in DECIDED.items():
        found = config.get(key, {})
        each = found if isinstance(found, list) else [found]
        # `routed()` sets one of each, by an output of the route step.
        if len(each) != 1 or {*each[0]} != {f"{key.removesuffix('s')}Json"} or not _is_output(each[0]):
            yield call
    if config.get("podMetadata", {}).get("labels", {}).get(STAGE_LABEL) != stage:
        yield f'kubernetes.add_pod_label("{STAGE_LABEL}", ...)'


def _is_output(config: Yaml) -> bool:
    return all("taskOutputParameter" in value for value in config.values())
