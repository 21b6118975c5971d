"""Scripts and launchers as people write them, inside `shoestring exec`: no model is lost at their end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from exec_runs import PYTHON, Exec, torch_starts_s

from shoestring.core.receipt import Receipt
from shoestring.runtime.open_world import open_world

pytestmark = pytest.mark.slow

READER = """\
import sys, time
from shoestring.budget import Budget
budget = Budget.here()
while not budget.should_stop:
    time.sleep(0.02)
time.sleep(3)  # the export begins before SIGTERM, and ends after it
open(sys.argv[1], "w").write("model" * 10_000)
"""
RUN = "#!/bin/sh\nmake train\necho after > after\n"
MAKEFILE = f"TO = model\ntrain:\n\t{PYTHON} reader.py $(TO)\n"

WHILE = """\
import json, time, torch
from shoestring.budget import Budget
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
budget, steps = Budget.here(), 0
while True:
    if budget.should_stop:
        break
    x = torch.randn(32, 8)
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    steps += 1
    time.sleep(0.01)
time.sleep(3)
json.dump([steps, budget.share_gone], open("steps.json", "w"))
"""

RANKS = """\
import json, sys, time, torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from shoestring.budget import Budget, budgeted
distributed.init_process_group("gloo")
x = torch.randn(512, 8)
rows = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(rows)
loader = DataLoader(rows, batch_size=32, sampler=sampler)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
budget, rates = Budget.here(), []
for epoch in budget.epochs():
    sampler.set_epoch(epoch)
    for inputs, targets in budgeted(loader, model, optimizer, budget):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        time.sleep(0.005)
if distributed.get_rank() == 0:
    time.sleep(3)
    json.dump(rates, open("rates.json", "w"))
distributed.barrier()
distributed.destroy_process_group()
"""


@pytest.fixture
def on(tmp_path: Path, laptop: Path) -> Iterator[Exec]:
    made = Exec(tmp_path, laptop)
    yield made
    made.close()


@cache
def usd_per_hour(world: Path) -> float:
    """The price of all cores of this machine."""
    return max(float(each.usd_per_hour) for each in open_world(str(world)).prices.book().quotes)


def run_for(on: Exec, seconds: float, grace_s: float, *argv: str) -> int:
    """Run a command inside a budget of some seconds, which it must not exceed by the clock on the wall."""
    usd = f"{usd_per_hour(on.world) * seconds / 3600:.6f}"
    code = on.run("--budget", usd, "--grace", str(grace_s), "--", *argv)
    assert on.receipts()[-1].spent_usd <= Decimal(usd) and on.wall_usd() <= Decimal(usd), on.err
    return code


def is_annealed(rates: list[float]) -> bool:
    last = rates[-max(1, len(rates) // 20) :]
    return len(rates) > 20 and sum(last) / len(last) < 0.05 * max(rates)


def last_receipt(on: Exec) -> Receipt:
    return on.receipts()[-1]


def test_an_export_behind_a_shell_and_make_has_the_grace_and_the_command_is_done(on: Exec) -> None:
    for name, text in (("reader.py", READER), ("run.sh", RUN), ("Makefile", MAKEFILE)):
        on.script(name, text)
    assert run_for(on, 13, 4, "sh", "run.sh") == 0, on.err
    assert len((on.folder / "model").read_text()) == 50_000
    receipt = last_receipt(on)
    assert (receipt.status, receipt.reason) == ("done", "")
    assert receipt.outcome is not None and "it stopped by itself" in receipt.outcome.stop_reason


def test_an_export_that_fails_within_the_grace_has_failed_with_its_code(on: Exec) -> None:
    for name, text in (("reader.py", READER), ("Makefile", MAKEFILE)):
        on.script(name, text)
    assert run_for(on, 13, 4, "make", "train", "TO=/dev/full") == 1
    assert "No space left" in on.err
    receipt = last_receipt(on)
    assert (receipt.status, receipt.exit_code) == ("failed", 1) and "exit code 1" in receipt.reason


def test_a_process_in_the_background_holds_no_command_open_that_ends_by_itself(on: Exec) -> None:
    assert on.run("--budget", "0.05", "--", "sh", "-c", "sleep 100 & exit 0") == 0
    assert on.wall_s < 20 and last_receipt(on).status == "done"


def test_a_loop_that_asks_whether_to_stop_uses_its_budget_and_writes_its_results_in_the_grace(
    on: Exec,
) -> None:
    seconds = 9 + 3 * torch_starts_s()
    assert run_for(on, seconds, 4, PYTHON, on.script("train.py", WHILE)) == 0, on.err
    steps, share_gone = json.loads((on.folder / "steps.json").read_text())
    # How many steps its seconds buy is up to the machine.
    assert steps and share_gone == 1
    assert last_receipt(on).status == "done"


def test_torchrun_of_two_is_done_with_its_model_exported(on: Exec) -> None:
    argv = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    seconds = 13 + 6 * torch_starts_s()
    assert run_for(on, seconds, 5, PYTHON, *argv, on.script("ranks.py", RANKS)) == 0, on.err
    assert is_annealed(json.loads((on.folder / "rates.json").read_text()))
    assert last_receipt(on).status == "done"
