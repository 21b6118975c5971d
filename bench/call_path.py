"""Claim: one decide(question) enters at most 12 modules of routing/, none longer than 300 lines; one route at
most 25 of shoestring/.

python bench/call_path.py [--only decide|route]

The script runs decide(question) for a chain of four stages on a laptop world, and the route call of the first
stage of `flights` in a new local world, under sys.setprofile. It prints the modules in the order in which
their functions are first called, with the number of calls and the lines of the module. Then it prints the
totals, including the crossings: calls from a function of one module into a function of another.

Each call runs once before it is traced, for another run, so that imports, the volume probe and pydantic's
deferred validators do not count. Code that runs when a module is imported, and methods that dataclasses
generate, never count.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from decide import question
from machine import describe

from shoestring.core.record import SCHEMA_VERSION, record_bytes
from shoestring.data.recipe_files import find_recipe
from shoestring.pricing.templates import laptop_world
from shoestring.routing.decide import decide
from shoestring.runtime import route
from shoestring.runtime.admission.stage_request import RemainingStages
from shoestring.stages import evaluate, ingest, preprocess, train

PACKAGE = Path(inspect.getfile(sys.modules["shoestring"])).parent
MAX_LINES = 300
LIMITS = {"decide": ("routing/", 12), "route": ("", 25)}
"""By call: the part of shoestring/ whose modules are limited, and how many of them a call may enter."""


class CallTrace:
    """The calls into functions of shoestring/, by module, in the order of the first call."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.crossings = Counter[tuple[str, str]]()
        self._modules: dict[str, str] = {}

    def run(self, work: Callable[[], object]) -> None:
        """Run `work` and record its calls, also those of threads that it starts."""
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        try:
            work()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (module := self._module_of(frame)):
            return
        self.calls[module] += 1
        caller = frame.f_back
        while caller is not None and not (source := self._module_of(caller)):
            caller = caller.f_back
        if caller is not None and source != module:
            self.crossings[source, module] += 1

    def _module_of(self, frame: FrameType) -> str:
        """Return the path of a function's module below shoestring/; empty: another package, or not a
        function.
        """
        code = frame.f_code
        if not code.co_flags & inspect.CO_OPTIMIZED:
            return ""
        name = code.co_filename
        if name not in self._modules:
            path = Path(name)
            inside = path.is_relative_to(PACKAGE)
            self._modules[name] = path.relative_to(PACKAGE).as_posix() if inside else ""
        return self._modules[name]


def lines_of(module: str) -> int:
    """Return the number of lines of a module."""
    return len((PACKAGE / module).read_text().splitlines())


def traced_decide() -> CallTrace:
    """Return the trace of one decision about four stages on a laptop."""
    chain_question = question(laptop_world(2, 8.0, "store", date(2026, 11, 1)), None)
    decide(chain_question)
    trace = CallTrace()
    trace.run(lambda: decide(chain_question))
    return trace


def traced_route() -> CallTrace:
    """Return the trace of routing the first stage of a run of `flights` in a new local world."""
    needs = (ingest.NEED, preprocess.NEED, train.NEED, evaluate.NEED)
    remaining = RemainingStages(schema_version=SCHEMA_VERSION, needs=needs, engine="local")
    stages = record_bytes(remaining).decode()
    recipe = record_bytes(find_recipe("flights")).decode()
    trace = CallTrace()
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder, "world.yaml")
        content = laptop_world(2, 8.0, str(Path(folder, "store")), datetime.now(UTC).date())
        world.write_text(yaml.safe_dump(content))

        def route_first_stage(run_id: str) -> None:
            written = str(Path(folder, f"{run_id}.json")), str(Path(folder, f"{run_id}.md"))
            route(stages, str(world), run_id, recipe, "1", 0.0, -1, "", "", *written)

        route_first_stage("warm-up")
        trace.run(lambda: route_first_stage("traced"))
    return trace


def report(name: str, trace: CallTrace) -> None:
    """Print the modules of a trace and the totals."""
    print(f"\n{name}: module by module, in the order of the first call")
    print(f"{'':>3} {'module':<48} {'calls':>7} {'lines':>6}")
    for number, (module, calls) in enumerate(trace.calls.items(), 1):
        print(f"{number:>3} {module:<48} {calls:>7} {lines_of(module):>6}")
    routing = [module for module in trace.calls if module.startswith("routing/")]
    inside = sum(
        count for pair, count in trace.crossings.items() if all(each.startswith("routing/") for each in pair)
    )
    packages = Counter(module.split("/")[0] for module in trace.calls)
    print(", ".join(f"{package}/ {count}" for package, count in packages.most_common()))
    part, limit = LIMITS[name]
    limited = [module for module in trace.calls if module.startswith(part)]
    longest = max(limited, key=lines_of)
    print(f"{len(trace.calls)} modules of shoestring/, {len(routing)} of routing/")
    print(
        f"{sum(trace.calls.values())} calls, {sum(trace.crossings.values())} crossings between modules, ",
        end="",
    )
    print(f"{inside} of them inside routing/")
    kept = "kept" if len(limited) <= limit else "EXCEEDED"
    short = "kept" if lines_of(longest) <= MAX_LINES else "EXCEEDED"
    print(f"limit of {limit} modules of shoestring/{part}: {kept} ({len(limited)})")
    print(f"limit of {MAX_LINES} lines a module: {short} ({longest}: {lines_of(longest)})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=tuple(LIMITS))
    only = parser.parse_args().only
    print(describe())
    for name, traced in (("decide", traced_decide), ("route", traced_route)):
        if only in (None, name):
            report(name, traced())


if __name__ == "__main__":
    main()
