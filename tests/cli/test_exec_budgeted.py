"""A training script in PyTorch inside `shoestring exec` ends by itself with its rate at zero, and resumes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from exec_runs import PYTHON, Exec, torch_starts_s

pytestmark = pytest.mark.slow

SCRIPT = """\
import json, time
import torch
from shoestring.budget import Budget, budgeted

torch.manual_seed(0)
x = torch.randn(512, 8)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model, rates = torch.nn.Linear(8, 1), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
budget = Budget.here()
for epoch in budget.epochs():
    for inputs, targets in budgeted(torch.utils.data.DataLoader(data, 32, True), model, optimizer, budget):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rates.append(optimizer.param_groups[0]["lr"])
        time.sleep(0.01)
        open("began", "w").write("yes")
    budget.report(loss=loss.item())
json.dump(rates, open("rates.json", "w"))
"""


@pytest.fixture
def on(tmp_path: Path, laptop: Path) -> Iterator[Exec]:
    made = Exec(tmp_path, laptop)
    yield made
    made.close()


def budget_of(on: Exec, seconds: float) -> str:
    assert on.short("1", "true") == 0
    return on.usd_of(seconds)


def test_a_budgeted_script_is_annealed_at_the_end_of_its_money(on: Exec) -> None:
    usd = budget_of(on, 9 + 3 * torch_starts_s())
    assert on.run("--budget", usd, "--grace", "2", "--", PYTHON, on.script("fit.py", SCRIPT)) == 0, on.err
    rates = json.loads(on.wait_for("rates.json"))
    last = rates[-max(1, len(rates) // 20) :]
    assert len(rates) > 100 and max(rates) > 0.009 and sum(last) / len(last) < 0.05 * max(rates)
    receipt = on.receipts()[-1]
    assert receipt.status == "done" and receipt.spent_usd <= Decimal(usd) and on.wall_usd() <= Decimal(usd)
    assert receipt.outcome is not None and receipt.outcome.samples == 32 * len(rates)
    assert receipt.outcome.metrics["loss"] < 1.0


def test_a_killed_budgeted_script_resumes_from_its_checkpoint_in_the_same_run(on: Exec) -> None:
    usd = budget_of(on, 60)
    process = on.start("--budget", usd, "--grace", "3", "--", PYTHON, on.script("fit.py", SCRIPT))
    on.wait_for("began")
    time.sleep(1)
    process.terminate()
    _, err = process.communicate(timeout=40)
    assert "it resumes from its" in err, err
    usd = on.usd_to_resume()
    assert on.run("--resume", on.run_id, "--budget", usd) == 0, on.err
    rates = json.loads(on.wait_for("rates.json"))
    first, second = on.receipts()[-2:]
    assert second.outcome is not None and second.outcome.samples > 32 * len(rates)
    assert rates[-1] < 0.05 * 0.01
    assert first.spent_usd + second.spent_usd <= Decimal(usd)
