"""Scripts with loader workers: they end with their budget, and a SIGTERM to their group ends no worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

PATIENCE_S = 100.0

OWN = """\
import multiprocessing, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
from shoestring.budget import Budget, budgeted
persists, is_term = "persistent" in sys.argv, "term" in sys.argv
budget = Budget.here(seconds=60 if is_term else 4, checkpoints="kept")
data = TensorDataset(torch.randn(640, 8))
loader = DataLoader(data, 32, shuffle=True, num_workers=2, persistent_workers=persists)
held_out = DataLoader(data, 64, num_workers=2)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
for epoch in budget.epochs():
    for (x,) in budgeted(loader, model, optimizer, budget):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        steps += 1
        time.sleep(0.01)
        open("began", "w").write("yes")
    budget.report(loss=sum(float(model(x).detach().pow(2).mean()) for (x,) in held_out))
torch.save(model.state_dict(), "model.pt")
print(steps, len(multiprocessing.active_children()) if not persists else 0, flush=True)
"""

LIGHTNING = """\
import sys, time, lightning, torch
from shoestring.budget import Budget, lightning_callback
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
    def training_step(self, batch):
        time.sleep(0.01)
        open("began", "w").write("yes")
        return self.linear(batch[0]).pow(2).mean()
    def validation_step(self, batch):
        self.log("val_loss", self.linear(batch[0]).pow(2).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(512, 8))
loaders = [torch.utils.data.DataLoader(data, rows, num_workers=2) for rows in (8, 64)]
budget = Budget.here(seconds=60, checkpoints="kept")
trainer = lightning.Trainer(accelerator="cpu", max_epochs=10000, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, callbacks=[lightning_callback(budget)])
trainer.fit(Model(), *loaders, ckpt_path=budget.checkpoint)
torch.save(trainer.model.state_dict(), "model.pt")
print(trainer.global_step, 0, flush=True)
"""

HUGGINGFACE = """\
import time, torch
from transformers import BertConfig, BertForSequenceClassification
from transformers import Trainer, TrainerCallback, TrainingArguments
from shoestring.budget import Budget, huggingface_callback
class Slow(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.01)
        open("began", "w").write("yes")
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
rows = [{"input_ids": torch.randint(50, (8,)), "labels": each % 2} for each in range(512)]
budget = Budget.here(seconds=60, checkpoints="kept")
arguments = TrainingArguments("out", num_train_epochs=1000, report_to=[], disable_tqdm=True,
                              eval_strategy="epoch", dataloader_num_workers=2)
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows,
                  eval_dataset=rows[:64], callbacks=[huggingface_callback(budget), Slow()])
trainer.train(resume_from_checkpoint=budget.checkpoint)
trainer.save_model("model.pt")
print(trainer.state.global_step, 0, flush=True)
"""


def start(folder: Path, script: str, words: Sequence[str]) -> subprocess.Popen[str]:
    (folder / "fit.py").write_text(script)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "fit.py", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def end_of(process: subprocess.Popen[str]) -> tuple[list[str], str]:
    """Return the words of the last line of a script that ends well, and what it has written to stderr."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, err
    return out.splitlines()[-1].split(), err


@pytest.mark.parametrize("words", [(), ("persistent",)])
def test_a_script_whose_budget_ends_inside_an_epoch_exits_with_its_workers_and_in_silence(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (steps, workers), err = end_of(start(tmp_path, OWN, words))
    assert int(steps) > 20 and workers == "0"
    assert err == ""


FRAMEWORKS = {"torch": OWN, "lightning": LIGHTNING, "transformers": HUGGINGFACE}


@pytest.mark.slow
@pytest.mark.parametrize("package", FRAMEWORKS)
def test_sigterm_to_the_group_leaves_a_checkpoint_and_a_model_and_no_traceback(
    package: str, tmp_path: Path
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    process = start(tmp_path, FRAMEWORKS[package], ("term",))
    until_s = time.monotonic() + PATIENCE_S
    while not (tmp_path / "began").exists() and process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.05)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGTERM)
    (steps, _), err = end_of(process)
    newest = max(int(each.stem.split("-")[1]) for each in (tmp_path / "kept").glob("checkpoint-*"))
    assert newest == int(steps) > 0
    assert "Traceback" not in err and (tmp_path / "model.pt").exists()
