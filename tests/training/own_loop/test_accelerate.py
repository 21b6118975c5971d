"""Objects that accelerate has prepared are annealed, resumed, and trained by two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_trainings import PEAK, Killed, SmallTraining, budget_of, kill_at, saved_steps
from torch.optim.lr_scheduler import OneCycleLR

from shoestring.budget import Budget, budgeted
from shoestring.core.errors import UsageError

accelerate = pytest.importorskip("accelerate")

pytestmark = pytest.mark.filterwarnings(
    "ignore:no folder for checkpoints", "ignore:.* ended with", "ignore:the training ended"
)

SCRIPT = Path(__file__).with_name("accelerate_script.py")


def run_prepared(training: SmallTraining, budget: Budget, together: bool) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(5)
    model, optimizer, loader = training.model, training.optimizer, training.loader
    if together:
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    else:
        loader = accelerator.prepare(loader)
    assert optimizer is not None
    for _ in budget.epochs():
        training.seen.append([])
        for batch in budgeted(loader, model, optimizer, budget, steps=45):
            training.seen[-1] += batch.flatten().int().tolist()
            optimizer.zero_grad()
            accelerator.backward(model(batch / 40).pow(2).mean())
            optimizer.step()
            training.rates.append(float(optimizer.param_groups[0]["lr"]))
            training.clock.sleep(1)
            training.after_step(len(training.rates))
        budget.report(loss=1.0)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("killed_at", [10, 27])
def test_what_accelerate_has_prepared_is_annealed_and_resumed(
    together: bool, killed_at: int, tmp_path: Path
) -> None:
    whole, first, rest = SmallTraining(), SmallTraining(after_step=kill_at(killed_at)), SmallTraining()
    run_prepared(whole, budget_of(whole, 5000), together)
    assert len(whole.rates) == 45 and whole.rates[-1] < 0.05 * PEAK
    with pytest.raises(Killed):
        run_prepared(first, budget_of(first, 5000, tmp_path), together)
    saved = saved_steps(tmp_path)
    run_prepared(rest, budget_of(rest, 5000, tmp_path), together)
    flat = [row for epoch in whole.seen for row in epoch]
    assert [row for epoch in rest.seen for row in epoch] == flat[4 * saved :]
    assert rest.weights() == whole.weights()
    # accelerate reads a batch ahead.
    assert len(rest.rows.loaded) <= 4 * (45 - saved) + 8


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("of_prepared", [True, False])
def test_a_prepared_scheduler_that_counts_is_kept_or_refused(is_kept: bool, of_prepared: bool) -> None:
    training = SmallTraining()
    prepare: Any = accelerate.Accelerator(cpu=True).prepare
    inner: Any = training.optimizer
    model, optimizer = prepare(training.model, inner)
    schedule = prepare(OneCycleLR(optimizer if of_prepared else inner, 0.3, total_steps=70))
    budget, momenta = budget_of(training, 300), list[float]()
    if is_kept:
        budget.keep(schedule)

    def run() -> None:
        for batch in budgeted(training.loader, model, optimizer, budget, steps=200):
            model(batch / 40).pow(2).mean().backward()
            optimizer.step()
            training.rates.append(float(inner.param_groups[0]["lr"]))
            schedule.step()
            momenta.append(inner.param_groups[0]["momentum"])

    if not is_kept:
        with pytest.raises(UsageError, match=r"OneCycleLR\(total_steps=70\) raises"):
            run()
        return
    for _ in range(20):
        run()
    assert len(momenta) == 200 and max(training.rates) == pytest.approx(0.3)
    lowest = momenta.index(min(momenta)) / len(momenta)
    assert lowest == pytest.approx(0.3, abs=0.05) and momenta[-1] == pytest.approx(0.95, abs=0.002)


def launch(folder: Path, seconds: float) -> list[list[str]]:
    """Start two processes as people do; return what each printed of its end."""
    names = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
    command = [sys.executable, "-m", "accelerate.commands.launch", *names.split(), SCRIPT, str(seconds)]
    # Its `--multi_gpu` means torchrun, whose processes are on CPUs here.
    variables = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines() if line.startswith("found")]


@pytest.mark.slow
def test_accelerate_launch_of_two_ends_together_and_resumes(tmp_path: Path) -> None:
    first, second = launch(tmp_path, 2.5)
    assert {first[1], second[1]} == {"0", "1"} and first[2:] == second[2:]
    assert int(first[2]) == saved_steps(tmp_path / "checkpoints")
    rest, other = launch(tmp_path, 4.5)
    assert rest[2:] == other[2:] and int(rest[2]) > 20
    assert saved_steps(tmp_path / "checkpoints") == int(first[2]) + int(rest[2])
    # The momentum of its scheduler is that of the end, after a restart, too.
    assert float(rest[-1]) == pytest.approx(0.95, abs=0.002)
