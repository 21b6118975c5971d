"""When the tasks of KFP's local runner ran and how they ended, for the steps of Shoestring beside them.

On a cluster a step reads that of a pod. Here it reads a file, which the runner's process writes.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from shoestring.backends.local_tasks import LOCAL_TASKS_VARIABLE, LocalTask, LocalTasks, task_name
from shoestring.core.pod_ref import NODE_VARIABLE, item_of_node
from shoestring.core.record import record_bytes
from shoestring.data.scratch.scratch_files import write_whole
from shoestring.pipelines.local_loops import current_node, replaced
from shoestring.routing.placement import STAGE_LABEL
from shoestring.spending.ends import exit_text

TRACEBACK = "Traceback (most recent call last):"
STAGE_VARIABLE = "SHOESTRING_STAGE"
"""Names the stage of a task to the function that runs its command, which alone sees it."""
INPUTS = re.compile(r"Got executor_input:\n(?P<indent> *)\{\n(?:(?P=indent) .*\n)*(?P=indent)\}\n")
"""The inputs of a component, as JSON, which KFP's executor prints before it calls the component."""
LOGGED = re.compile(r"\[KFP Executor [^]]*\]: ")
"""What KFP's executor puts before each line that a component logs."""
MAX_LINE_CHARS = 500


def name_stages(pipeline: Any) -> None:
    """Give each task of a loaded pipeline a variable with the stage that the label of its pod names."""
    from google.protobuf.json_format import MessageToDict

    executors = pipeline.component_spec.implementation.graph.deployment_spec["executors"]
    for name, settings in pipeline.platform_spec.platforms["kubernetes"].deployment_spec.executors.items():
        if stage := MessageToDict(settings).get("podMetadata", {}).get("labels", {}).get(STAGE_LABEL):
            variables = executors[name]["container"].get_or_create_list("env")
            variables.add_struct().update({"name": STAGE_VARIABLE, "value": stage})


class StepLog(io.TextIOBase):
    """The log of a run. It also keeps what each thread prints, of which each runs one task at a time."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._own = file, threading.local()

    def write(self, text: str) -> int:
        self._own.__dict__.setdefault("printed", []).append(text)
        return self._file.write(text)

    def flush(self) -> None:
        self._file.flush()

    def begin_task(self) -> None:
        """Forget what this thread has printed."""
        self._own.printed = []

    def printed(self) -> str:
        """Return what this thread has printed since its task began."""
        return "".join(self._own.__dict__.get("printed", []))


@contextmanager
def reported_tasks(log: StepLog, folder: Path) -> Iterator[None]:
    """While the block runs, write when the tasks of stages ran and how they ended to a file in `folder`, and
    name it to each step. `log`: what the steps print.
    """
    from kfp.local import subprocess_task_handler as handler

    run_step, file, lock = handler.run_local_subprocess, folder / "tasks.json", threading.Lock()
    found = LocalTasks(tasks={})

    def report(name: str, task: LocalTask) -> None:
        with lock:
            found.tasks[name] = task
            write_whole(file, record_bytes(found))

    def run(full_command: Sequence[str], env_vars: Mapping[str, str]) -> int:
        node = current_node()
        variables = {LOCAL_TASKS_VARIABLE: str(file), NODE_VARIABLE: node, **env_vars}
        stage, began = variables.pop(STAGE_VARIABLE, ""), datetime.now(UTC)
        name = task_name(f"{STAGE_LABEL}={stage}", item_of_node(node))
        if stage:
            report(name, LocalTask(started_at=began))
        log.begin_task()
        code: int = run_step(full_command, variables)
        if stage:
            reason = failure_text(code, log.printed()) if code else ""
            report(name, LocalTask(started_at=began, finished_at=datetime.now(UTC), reason=reason))
        return code

    write_whole(file, record_bytes(found))
    with replaced(handler, run_local_subprocess=run):
        yield


def failure_text(code: int, printed: str) -> str:
    """Return how a task's process ended, with the last line of its last traceback, or else of what the
    component printed, if there is one.

    `printed`: all of the task's lines in the log. Prints without a flush come after a traceback.
    """
    own = INPUTS.split(printed, maxsplit=1)[-1]
    lines = [line for line in own.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.strip() == TRACEBACK]
    last = error_lines(lines, begins[-1])[-1] if begins else lines[-1] if lines else ""
    return ": ".join(filter(None, (exit_text(code), LOGGED.sub("", last).strip()[:MAX_LINE_CHARS])))


def error_lines(lines: Sequence[str], begin: int) -> list[str]:
    """Return a traceback, without what it is indented by. `begin`: the number of its first line."""
    depth = len(lines[begin]) - len(lines[begin].lstrip())
    end = next(
        (number for number in range(begin + 1, len(lines)) if not lines[number][depth : depth + 1].isspace()),
        len(lines) - 1,
    )
    return [line[depth:] for line in lines[begin : end + 1]]
