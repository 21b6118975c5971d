"""Run a compiled pipeline with KFP's local runner: the same file that a cluster runs, in processes of this
machine.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shoestring.core.errors import UsageError
from shoestring.data.scratch.temporary_folders import temporary_folder
from shoestring.pipelines.ended_tasks import (
    TRACEBACK,
    StepLog,
    error_lines,
    name_stages,
    reported_tasks,
)
from shoestring.pipelines.external_containers import PYTHON_COMPONENT
from shoestring.pipelines.kept_training import compiled_training
from shoestring.pipelines.local_loops import numbered_items
from shoestring.pipelines.step_server import forked_steps

SENTENCE = "shoestring: "
"""Begins the line with which a step of Shoestring ends in an error."""
END_LINES = 20


def run_locally(
    arguments: dict[str, Any],
    log: Path,
    pipeline: Any = None,
    started: Callable[[float], object] = lambda seconds: None,
) -> bool:
    """Run a pipeline, and append what its steps print to `log`. Return True if every step succeeded.

    The runner deletes its workspace, and its artifacts are in a temporary folder: all results are in
    Shoestring's store by then. No step runs twice: a pod of this machine is not lost without its launcher,
    which resumes the run by itself.

    Args:
        pipeline: one of KFP, or the path of a compiled one; None: a training.
        started: is given the seconds that the server of the steps took to start, where there is one.

    Raises:
        UsageError: a step is a container.
    """
    with (
        temporary_folder() as folder,
        log.open("a", encoding="utf-8", buffering=1) as file,
        redirect_output(out := StepLog(file)),
        forked_steps(started),
        reported_tasks(out, folder),
        numbered_items(),
    ):
        # Imported while the server of the steps starts.
        from kfp import components, local

        local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(folder / "artifacts"))
        run = components.load_component_from_file(str(compiled_in(folder, pipeline)))
        for change in (drop_retries, name_outputs, name_stages):
            change(run)
        try:
            run(**arguments)
        except RuntimeError as error:
            # The runner raises RuntimeError for a failed step. The receipts say what failed.
            print(error, file=out)
            return False
        return True


def compiled_in(folder: Path, pipeline: Any) -> Path:
    """Return the compiled file of a pipeline, in `folder` if it has to be compiled. Raises UsageError."""
    if pipeline is None:
        return compiled_training(folder)
    if isinstance(pipeline, Path):
        return pipeline
    from shoestring.pipelines.kubeflow import write

    check_no_containers(pipeline)
    return write(pipeline, folder / "pipeline.yaml")


def check_no_containers(pipeline: Any) -> None:
    """Raise UsageError if a step of a pipeline is a container, which the local runner cannot run."""
    from google.protobuf.json_format import MessageToDict

    executors = MessageToDict(pipeline.pipeline_spec)["deploymentSpec"]["executors"]
    for label, executor in executors.items():
        if not any(PYTHON_COMPONENT in word for word in executor.get("container", {}).get("args", [])):
            raise UsageError(
                f"{label.removeprefix('exec-')} is a container, and KFP's local runner runs none: run its "
                "command on this machine with `shoestring exec`, or the pipeline on a cluster"
            )


def drop_retries(pipeline: Any) -> None:
    """Remove the retry policies of a loaded pipeline's tasks, which the runner would follow."""
    spec = pipeline.component_spec.implementation.graph
    for component in (spec.root, *spec.components.values()):
        for task in component.dag.tasks.values():
            task.ClearField("retry_policy")


def name_outputs(pipeline: Any) -> None:
    """Let the conditions of a loaded pipeline name the outputs that they read as the runner finds them: it
    takes a condition on an output that is not called `Output` for false.
    """
    spec, value = pipeline.component_spec.implementation.graph, "inputs.parameter_values['{}']"
    for component in (spec.root, *spec.components.values()):
        for task in component.dag.tasks.values():
            for name, given in task.inputs.parameters.items():
                source = given.task_output_parameter
                if source.producer_task:
                    found = f"pipelinechannel--{source.producer_task}--{source.output_parameter_key}"
                    condition = task.trigger_policy.condition
                    task.trigger_policy.condition = condition.replace(value.format(name), value.format(found))


def first_error(log: Path) -> str:
    """Return the first error in a run's log: the error, where it was raised, and the log's path.

    A stage's own error comes before those of the steps around it. A log without a traceback gives the
    sentence of a step that ended in an error, if there is one, and its end.
    """
    lines = log.read_text(encoding="utf-8").splitlines()
    begin = next((number for number, line in enumerate(lines) if line.strip() == TRACEBACK), None)
    if begin is None:
        sentence = next((line.strip() for line in lines if line.lstrip().startswith(SENTENCE)), "")
        return "\n".join([*filter(None, [sentence]), *lines[-END_LINES:], f"the whole log: {log}"])
    frames = error_lines(lines, begin)
    return "\n".join([frames[-1], "", *frames, "", f"the whole log: {log}"])


@contextlib.contextmanager
def redirect_output(out: StepLog) -> Iterator[None]:
    """Send the runner's prints and logs to `out`, and drop its warnings about image names, which it does not
    use.

    What is logged meanwhile without a handler adds one to the root logger, which would keep `out`.
    """
    handlers = logging.getLogger().handlers
    before = handlers[:]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            handlers[:] = before
