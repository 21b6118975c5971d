"""Claim: `gc` while four runs run, killed at random times, deletes nothing that is referenced, and in the end
all that is not.

Four processes run one run after another on a folder: each opens an account, takes two stages' results from
the cache or makes them (real manifests and blobs, of a few contents that recur), writes receipts, reads back
all that its receipts name, then all that the newest runs of its recipe name, and closes its account.
Meanwhile `gc` deletes with a window of 3 runs and a grace of seconds instead of days, and is killed by
SIGKILL. At the end one `gc` runs undisturbed, and the store is compared with what the newest runs name, found
by a walk of its own over their receipts and manifests.

python bench/gc_beside_runs.py [--kills 200] [--results FILE] [--quick]

Each 25 kills have a store of their own. With --results, a line for each is appended to the file, and those
that it holds are not run again. --quick: 25 kills, at most two minutes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from machine import describe

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.config.retention import RetentionPolicy
from shoestring.core import store_layout
from shoestring.core.datasets import DatasetPart, Manifest
from shoestring.core.errors import CorruptObject, NotInStore
from shoestring.core.record import record_bytes
from shoestring.core.types import Format, StageOutcome
from shoestring.data.job import job_of_recipe
from shoestring.data.recipe import Recipe
from shoestring.data.retention.collect import SETTLE_S, collect
from shoestring.data.run_records import RunRecord, RunStart
from shoestring.data.storage.blobs import load_manifest, open_blob, put_blob, save_manifest
from shoestring.data.storage.cache import cache_key, find_outcome, save_outcome
from shoestring.spending.ledger.ledger import Ledger

RUNNERS, CONTENTS, PARTS, PART_BYTES = 4, 8, 3, 20_000
GRACE_S, KEEP_RUNS, GC_SETTLE_S = 1.5, 3, 0.5
BATCH = 25
RETENTION = RetentionPolicy(keep_runs=KEEP_RUNS, grace_hours=GRACE_S / 3600)
FORKS = multiprocessing.get_context("forkserver")


class FastClock(WallClock):
    """A clock whose pauses are as much shorter as the windows of this bench are."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds * GC_SETTLE_S / SETTLE_S)


def recipe_of(runner: int) -> Recipe:
    source = {"rows": {"path": "rows.csv"}}
    return Recipe.model_validate({"name": f"recipe{runner}", "source": source, "target": {"column": "y"}})


def run_once(store: FolderStore, runner: int, rng: random.Random, counts: Counter[str]) -> None:
    """Run one run. Raises NotInStore or CorruptObject if something that it names is gone."""
    recipe, now = recipe_of(runner), datetime.now(UTC)
    run_id = f"{recipe.name}-{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
    record = RunRecord(
        run_id=run_id, job=job_of_recipe(recipe, seed=0), recipe=recipe, world="", world_sha256="",
        created_at=now, environment={},
    )  # fmt: skip
    store.put(store_layout.run_record(run_id), record_bytes(record))
    start = RunStart(
        number=1, account=run_id, budget_usd=Decimal(1), started_at=now, deadline_at=None, launcher=None
    )
    store.put(store_layout.start(run_id, 1), record_bytes(start))
    ledger = Ledger(store, WallClock(), run_id)
    ledger.open(run_id, Decimal(1))
    key = ""
    for stage in ("ingest", "preprocess"):
        key = run_stage(store, run_id, stage, key or str(rng.randrange(CONTENTS)), rng, counts)
        time.sleep(rng.uniform(0, 0.1))
    check_run(store, run_id)
    for newest in newest_runs(store, recipe.name):
        check_run(store, newest)
    ledger.close(run_id)
    counts["runs"] += 1


def run_stage(
    store: FolderStore, run_id: str, stage: str, given: str, rng: random.Random, counts: Counter[str]
) -> str:
    """Find a stage's result or make it, write its receipt, and return its data set."""
    recipe = run_id.partition("-")[0]
    cached, made_from = cache_key(f"{recipe}-{stage}", "code", {}, {}, {"data": given})
    outcome = find_outcome(store, cached)
    if outcome is None:
        parts = []
        for number in range(PARTS):
            data = random.Random(f"{recipe} {stage} {given} {number}").randbytes(PART_BYTES)
            parts.append(DatasetPart(sha256=put_blob(store, data), rows=1, size_bytes=len(data)))
            time.sleep(rng.uniform(0, 0.05))
        manifest = Manifest(
            name=f"{recipe}-{stage}", format=Format.PACKED, columns={}, splits={"rows": tuple(parts)},
            rows=PARTS, row_bytes=1, size_bytes=PARTS * PART_BYTES, settings_sha256="",
            parents=(given,) if given.startswith(store_layout.DATASETS) else (),
        )  # fmt: skip
        outcome = StageOutcome(key=save_manifest(store, manifest), rows=PARTS)
        save_outcome(store, cached, outcome, made_from)
        counts["made"] += 1
    else:
        # A stage's pod starts some time after its route step found the result.
        time.sleep(rng.uniform(0, 2 * GC_SETTLE_S))
        counts["cached"] += 1
    receipt = {"run_id": run_id, "stage": stage, "outcome": outcome.model_dump(mode="json")}
    store.put(store_layout.receipt(run_id, f"{stage}-1"), json.dumps(receipt).encode())
    return outcome.key


def newest_runs(store: FolderStore, recipe: str) -> list[str]:
    """Return the runs of a recipe that the window holds, whatever the moment: one fewer than it says, since a
    run that begins counts.
    """
    ended = [key for key in store.list(f"{store_layout.RUNS}{recipe}-") if key.endswith("/preprocess-1.json")]
    written = store.modified(f"{store_layout.RUNS}{recipe}-")
    return [key.split("/")[1] for key in sorted(ended, key=lambda key: written[key])[1 - KEEP_RUNS :]]


def check_run(store: FolderStore, run_id: str) -> None:
    """Read all that the receipts of a run name. Raises NotInStore, CorruptObject."""
    for key in named_by_run(store, run_id):
        if key.startswith(store_layout.BLOBS):
            open_blob(store, Path(key).name)


def named_by_run(store: FolderStore, run_id: str) -> Iterator[str]:
    """Yield the data sets that the receipts of a run name, those they were made from, and their parts."""
    for key in store.list(store_layout.receipts(run_id)):
        left = [json.loads(store.fetch(key).read_bytes())["outcome"]["key"]]
        while left:
            yield (found := left.pop())
            manifest = load_manifest(store, found)
            left += manifest.parents
            yield from (part.key for parts in manifest.splits.values() for part in parts)


def keep_running(folder: Path, runner: int, seed: int, stop: Any, results: Any) -> None:
    store, rng, counts = FolderStore(folder), random.Random(f"{seed} {runner}"), Counter[str]()
    losses = []
    while not stop.is_set():
        try:
            run_once(store, runner, rng, counts)
        except (NotInStore, CorruptObject) as error:
            losses.append(f"{datetime.now(UTC):%H:%M:%S.%f} recipe{runner}: {error}")
    results.put((dict(counts), losses))


def clean_up(folder: Path) -> None:
    store = FolderStore(folder)
    collect(store, store, store, RETENTION, FastClock())


def kill_often(folder: Path, kills: int, rng: random.Random) -> Counter[str]:
    """Start `gc` until it was killed `kills` times, at any time of its life; one in four is not killed."""
    counts, takes_s = Counter[str](), 2.0
    while counts["killed"] < kills:
        process, began_s = FORKS.Process(target=clean_up, args=(folder,)), time.monotonic()
        process.start()
        process.join(None if rng.random() < 0.25 else rng.uniform(0, 1.1 * takes_s))
        if process.is_alive():
            process.kill()
            counts["killed"] += 1
        else:
            counts["ended"] += process.exitcode == 0
            counts["failed"] += process.exitcode != 0
            takes_s = (takes_s + time.monotonic() - began_s) / 2
        process.join()
    return counts


def compare(store: FolderStore) -> tuple[list[str], list[str]]:
    """Return what the runs in the window name and the store lacks, and what nothing names and is there."""
    written = store.modified(store_layout.RUNS)
    runs: dict[str, list[tuple[datetime, str]]] = {}
    for run_id in {key.split("/")[1] for key in written}:
        last = max(at for key, at in written.items() if key.startswith(store_layout.run(run_id)))
        runs.setdefault(run_id.partition("-")[0], []).append((last, run_id))
    kept = [run_id for found in runs.values() for _, run_id in sorted(found)[-KEEP_RUNS:]]
    named = set[str]()
    lost = []
    for run_id in kept:
        try:
            named |= set(named_by_run(store, run_id))
            check_run(store, run_id)
        except (NotInStore, CorruptObject) as error:
            lost.append(f"{run_id}: {error}")
    there = {*store.list(store_layout.BLOBS), *store.list(store_layout.DATASETS)}
    return lost, sorted(there - named)


def run_batch(kills: int, seed: int) -> dict[str, Any]:
    """Return the counts of one store's life, and what was lost or left there."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        place, stop, results = Path(folder), FORKS.Event(), FORKS.SimpleQueue()
        runners = [
            FORKS.Process(target=keep_running, args=(place, number, seed, stop, results))
            for number in range(RUNNERS)
        ]
        for process in runners:
            process.start()
        counts = kill_often(place, kills, random.Random(seed))
        stop.set()
        ended = [results.get() for _ in runners]
        time.sleep(GRACE_S + 1)
        clean_up(place)
        lost, left = compare(FolderStore(place))
    runs = sum((Counter(found) for found, _ in ended), Counter[str]())
    return {
        "seed": seed,
        **dict.fromkeys(("killed", "ended", "failed"), 0),
        **counts,
        **runs,
        "lost": [loss for _, found in ended for loss in found] + lost,
        "left": left,
        "seconds": round(time.monotonic() - began_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    print(describe())
    FORKS.set_forkserver_preload(["gc_beside_runs"])
    known = options.results.read_text().splitlines() if options.results and options.results.exists() else []
    batches = {each["seed"]: each for each in map(json.loads, known)}
    for seed in range(1 if options.quick else max(1, options.kills // BATCH)):
        if seed not in batches:
            batches[seed] = run_batch(min(BATCH, options.kills), seed)
            if options.results:
                with options.results.open("a") as file:
                    print(json.dumps(batches[seed]), file=file)
        each = batches[seed]
        kinds = f"{each['made']} stages made, of {2 * RUNNERS * CONTENTS} kinds, and {each['cached']} cached"
        print(f"gc: {each['killed']} killed, {each['ended']} ended; {each['runs']} runs; {kinds}; ", end="")
        print(f"{each['seconds']} s; lost {len(each['lost'])}, left {len(each['left'])}", flush=True)
        for key in [*each["lost"][:10], *each["left"][:10]]:
            print(f"  {key}")
    total = {name: sum(each[name] for each in batches.values()) for name in ("killed", "failed", "runs")}
    wrong = sum(len(each["lost"]) + len(each["left"]) for each in batches.values())
    print(f"{total['killed']} kills while {total['runs']} runs ran: {wrong} objects lost or left")
    sys.exit(bool(wrong or total["failed"]))


if __name__ == "__main__":
    main()
