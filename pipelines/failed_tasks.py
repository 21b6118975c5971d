"""How the tasks of KFP's local runner failed, for the steps of Shoestring that come after them.

On a cluster an exit step reads how a pod ended. Here each step is given it in a variable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoestring.core.pod_ref import FAILED_TASKS_VARIABLE
from shoestring.routing.placement import STAGE_LABEL
from shoestring.spending.ends import exit_text

TRACEBACK = "Traceback (most recent call last):"
STAGE_VARIABLE = "SHOESTRING_STAGE"
"""Names the stage of a task to the function that runs its command, which alone sees it."""
INDENT = "    "
"""KFP's local runner puts it before each line of a task."""
INPUTS, INPUTS_END = "Got executor_input:\n", "\n}\n"
"""Around the inputs of a component, as JSON, which KFP's executor prints before it calls the component."""
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


@contextmanager
def reported_failures(log: Path) -> Iterator[None]:
    """While the block runs, give each step the failures of the stages before it. `log`: what steps print."""
    from kfp.local import subprocess_task_handler as handler

    run_step, failures = handler.run_local_subprocess, dict[str, str]()

    def run(full_command: Sequence[str], env_vars: Mapping[str, str]) -> int:
        variables = {FAILED_TASKS_VARIABLE: json.dumps(failures), **env_vars}
        stage, begin_bytes = variables.pop(STAGE_VARIABLE, ""), log.stat().st_size
        code: int = run_step(full_command, variables)
        if code and stage:
            printed = log.read_bytes()[begin_bytes:].decode(errors="replace")
            failures[f"{STAGE_LABEL}={stage}"] = failure_text(code, printed)
        return code

    handler.run_local_subprocess = run
    try:
        yield
    finally:
        handler.run_local_subprocess = run_step


def failure_text(code: int, printed: str) -> str:
    """Return how a task's process ended, with the last line of its last traceback, or else of what the
    component printed, if there is one.

    `printed`: all of the task's lines in the log. Prints without a flush come after a traceback.
    """
    text = "\n".join(line.removeprefix(INDENT) for line in printed.splitlines())
    _, has_begun, rest = text.partition(INPUTS)
    own = rest.partition(INPUTS_END)[2] if has_begun else text
    lines = [line for line in own.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line == TRACEBACK]
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
