"""Loops in KFP's local runner, which runs two items at a time and gives their tasks no number."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

ITERATION = re.compile(r"-iteration-(\d+)(?:\.|$)")
OWN = threading.local()
"""`item`: what the items are called whose tasks a thread runs, one for each loop, joined by dots."""


def current_node() -> str:
    """Return the node of the tasks that this thread runs, named as both engines of a cluster name items."""
    numbers = ITERATION.findall(getattr(OWN, "item", ""))
    return ".".join(f"iteration({number}:{number})" for number in numbers)


@contextmanager
def numbered_items() -> Iterator[None]:
    """While the block runs, `current_node` names the item of a loop in KFP's local runner.

    For a task, the runner would replace `print`, to indent, and the handlers of the log. Both are shared by
    all threads, so that an item would undo what another one uses: there is one handler, and no indent.
    """
    from kfp.local import logging_utils
    from kfp.local.orchestrator import enhanced_dag_orchestrator as orchestrator

    executor, items = orchestrator.ParallelExecutor, set[str]()
    execute, run_loop = orchestrator.execute_task, orchestrator._run_parallel_for_task
    run_all = executor.execute_parallel_tasks

    def execute_numbered(task_name: str, **settings: Any) -> Any:
        around = getattr(OWN, "item", "")
        OWN.item = task_name if task_name in items else around
        try:
            return execute(task_name=task_name, **settings)
        finally:
            OWN.item = around

    def run_numbered(executor: Any, tasks: Sequence[tuple[str, Any]], **settings: Any) -> Any:
        # An item runs in a thread of its own, which only its name reaches. KFP finds what it returns by the
        # number at the end of the name.
        around = getattr(OWN, "item", "")
        named = [(f"{around}.{name}" if around else name, spec) for name, spec in tasks]
        items.update(name for name, _ in named)
        return run_all(executor, tasks=named, **settings)

    def run_with_inputs(task_spec: Any, io_store: Any, **settings: Any) -> Any:
        return run_loop(task_spec=with_inputs(task_spec, io_store), io_store=io_store, **settings)

    with (
        logging_utils.local_logger_context(),
        replaced(logging_utils, indented_print=nullcontext, local_logger_context=nullcontext),
        replaced(orchestrator, execute_task=execute_numbered, _run_parallel_for_task=run_with_inputs),
        replaced(executor, execute_parallel_tasks=run_numbered),
    ):
        yield


@contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """While the block runs, give a module or a class other attributes."""
    before = {name: getattr(owner, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def with_inputs(loop: Any, values: Any) -> Any:
    """Return the task of a loop with the values of what it reads: the runner would give its tasks the item in
    place of what other tasks return and of the items of loops around it, and finds no list in an output that
    is not called `Output`.
    """
    from kfp.compiler.pipeline_spec_builder import to_protobuf_value

    found = type(loop)()
    found.CopyFrom(loop)
    for name, given in found.inputs.parameters.items():
        source, read = given.task_output_parameter, given.component_input_parameter
        if given.parameter_expression_selector or not (source.producer_task or read):
            continue
        value = (
            values.get_parent_input(read)
            if read
            else values.get_task_output(source.producer_task, source.output_parameter_key)
        )
        given.runtime_value.constant.CopyFrom(to_protobuf_value(value))
        values.put_parent_input(name, value)
    return found
