"""kill -9 of the child, the supervisor and the launcher: no money stays held, and a resumed run uses its
checkpoint.
"""

import json
import os
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
import yaml
from commands import Finished, start_shoestring
from runtime_world import check_sample_ranges
from warm_command import WarmProcess

LONG = {"budget_usd": "0.002", "deadline_s": 120.0, "train": {"max_epochs": 240, "patience": 400}}


def tree(pid: int) -> Iterator[psutil.Process]:
    try:
        root = psutil.Process(pid)
        yield from (root, *root.children(recursive=True))
    except psutil.NoSuchProcess:
        return


def training(pid: int) -> psutil.Process | None:
    """Return the child that trains, once it does."""
    for process in tree(pid):
        try:
            line = process.cmdline()
            if (
                "shoestring.runtime.supervisor.child" in line
                and json.loads((Path(line[-1]) / "job.json").read_text())["stage"] == "train"
            ):
                return process
        except (psutil.NoSuchProcess, OSError, ValueError):
            continue
    return None


def launch(finished: Finished, store: Path, out: Path, recipe: Path) -> WarmProcess:
    return start_shoestring(
        "run", recipe, "--world", finished.world, "--store", store, "--out", out, "--json"
    )


def checkpointed(store: Path) -> bool:
    return any(store.glob("runs/*/checkpoints/train.json"))


def wait_for_checkpoint(run: WarmProcess, store: Path) -> psutil.Process:
    deadline_s = time.monotonic() + 90
    while time.monotonic() < deadline_s and run.poll() is None:
        child = training(run.pid)
        if child is not None and checkpointed(store):
            return child
        time.sleep(0.05)
    raise AssertionError(f"no checkpoint in 90 s (exit code {run.poll()})")


@pytest.mark.parametrize(
    "target",
    ["child", *(pytest.param(name, marks=pytest.mark.slow) for name in ("frame", "launcher"))],
)
def test_a_killed_process_leaves_no_money_held_and_the_run_resumes_from_its_checkpoint(
    target: str, finished: Finished, tmp_path: Path
) -> None:
    store, out = finished.warm_store(tmp_path / "store"), tmp_path / "out"
    recipe = finished.recipe.parent / f"long-{target}.yaml"
    recipe.write_text(yaml.safe_dump(yaml.safe_load(finished.recipe.read_text()) | LONG))
    run = launch(finished, store, out, recipe)
    child = wait_for_checkpoint(run, store)
    victim = {"child": child, "frame": child.parent(), "launcher": psutil.Process(run.pid)}[target]
    assert victim is not None
    victim.kill()
    run.wait(timeout=60)
    _, alive = psutil.wait_procs([child], timeout=20)
    assert not alive, "the child outlived its frame"

    run_id = next(iter((store / "runs").iterdir())).name
    if target == "launcher":
        (listed,) = finished.again("runs", "--json", store=store).json
        assert (listed["status"], run_id in listed["reason"]) == ("interrupted", True)
    resumed = finished.again(
        "run", "--resume", run_id, "--out", out, "--budget", "0.0025", "--json", store=store
    )
    assert resumed.code == 0, resumed.err + (out / "log.txt").read_text()[-3000:]
    accounts = finished.again("ledger", "show", "--json", store=store).json
    assert {account["held_usd"] for account in accounts} == {"0.000000"}
    assert finished.again("ledger", "verify", store=store).code == 0
    assert Decimal(resumed.json["spent_usd"]) <= Decimal(resumed.json["budget_usd"])

    receipts = {path.stem: json.loads(path.read_text()) for path in (out / "receipts").glob("train-*.json")}
    assert receipts["train-1"]["status"] in ("failed", "lost", "stopped")
    assert receipts["train-2"]["status"] == "done"
    check_sample_ranges(json.loads((store / "runs" / run_id / "model.json").read_text())["sample_ranges"])


def test_ctrl_c_settles_before_it_exits(finished: Finished, tmp_path: Path) -> None:
    store, out = finished.warm_store(tmp_path / "store"), tmp_path / "out"
    recipe = finished.recipe.parent / "long-interrupt.yaml"
    recipe.write_text(yaml.safe_dump(yaml.safe_load(finished.recipe.read_text()) | LONG))
    run = launch(finished, store, out, recipe)
    wait_for_checkpoint(run, store)
    os.killpg(run.pid, 2)
    _, err = run.communicate(timeout=60)
    assert run.returncode != 0
    assert "--resume" in err
    accounts = finished.again("ledger", "show", "--json", store=store).json
    assert {account["held_usd"] for account in accounts} == {"0.000000"}


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_supervisor_that_is_stopped_is_ended_by_the_launcher_and_its_time_is_charged(
    finished: Finished, tmp_path: Path
) -> None:
    store, out = finished.warm_store(tmp_path / "store"), tmp_path / "out"
    recipe = finished.recipe.parent / "long-silent.yaml"
    recipe.write_text(yaml.safe_dump(yaml.safe_load(finished.recipe.read_text()) | LONG))
    run = launch(finished, store, out, recipe)
    child = wait_for_checkpoint(run, store)
    supervisor = child.parent()
    assert supervisor is not None
    began_s = supervisor.create_time()
    supervisor.suspend()
    assert run.wait(timeout=90) == 1
    ended_s = time.time()
    assert not any(map(is_alive, (supervisor, child)))
    (path,) = store.glob("runs/*/receipts/train-1.json")
    receipt = json.loads(path.read_text())
    assert receipt["cause"] == "silent"
    assert "wrote no heartbeats and was ended" in receipt["reason"]
    price_usd = Decimal(receipt["prices"][0]["usd_per_hour"])
    paid_usd = Decimal(receipt["spent_usd"]) + Decimal(receipt["overrun_usd"])
    paid_s = float(paid_usd * 3600 / price_usd)
    assert 10.0 < paid_s <= ended_s - began_s + 1.0, "from its start to its end, with the silence"
