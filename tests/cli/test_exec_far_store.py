"""`shoestring exec` books the time in which it waits for its store, also that after its settlement."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from exec_runs import Exec

pytestmark = pytest.mark.slow
REQUEST_S = 0.1
# Each request to the store waits first. Python imports this module when it starts.
SITE = f"""\
import importlib.abc, importlib.machinery, sys, time

def late(method):
    def wait_first(*arguments, **options):
        time.sleep({REQUEST_S})
        return method(*arguments, **options)
    return wait_first

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "shoestring.backends.folder_store":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            for name in ("put", "fetch", "list"):
                setattr(module.FolderStore, name, late(getattr(module.FolderStore, name)))
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def on(tmp_path: Path, laptop: Path) -> Iterator[Exec]:
    made = Exec(tmp_path, laptop, is_fresh=True)
    yield made
    made.close()


def test_the_books_hold_the_end_of_exec_under_a_store_that_answers_late(
    on: Exec, monkeypatch: pytest.MonkeyPatch
) -> None:
    (on.folder / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", f"{on.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert on.run("--budget", "0.02", "--grace", "1", "--", "true") == 0
    (receipt,) = on.receipts()
    booked_s = float(receipt.spent_usd / receipt.prices[0].usd_per_hour) * 3600
    # It waits for 140 requests, 58 of them after its settlement.
    assert on.wall_s > 100 * REQUEST_S
    assert abs(on.wall_s - booked_s) < 25 * REQUEST_S
