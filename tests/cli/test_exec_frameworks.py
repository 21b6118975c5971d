"""A training of Hugging Face or Lightning that is killed inside `shoestring exec` continues in its run."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from exec_runs import PYTHON, Exec

pytestmark = pytest.mark.slow

KILL = """\
import json, os, signal, time

def kill_once(budget, step):
    # The script's first attempt ends as a machine does.
    if step > 40 and budget.checkpoint and not os.path.exists("killed"):
        open("killed", "w").write(budget.checkpoint.name)
        os.kill(os.getpid(), signal.SIGKILL)
"""

HUGGINGFACE = (
    KILL
    + """\
import torch
from transformers import BertConfig, BertForSequenceClassification
from transformers import Trainer, TrainerCallback, TrainingArguments
from shoestring.budget import Budget, huggingface_callback

class Log(TrainerCallback):
    rates = []
    def on_optimizer_step(self, args, state, control, optimizer, **kwargs):
        self.rates.append(optimizer.param_groups[0]["lr"])
        time.sleep(0.01)
    def on_step_begin(self, args, state, control, **kwargs):
        if not state.global_step % 10:
            kill_once(budget, state.global_step)

config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
rows = [{"input_ids": torch.randint(50, (8,)), "labels": each % 2} for each in range(512)]
budget = Budget.here()
arguments = TrainingArguments(
    "out", num_train_epochs=1000, learning_rate=0.01, report_to=[], disable_tqdm=True, eval_strategy="epoch"
)
model = BertForSequenceClassification(config)
trainer = Trainer(
    model, arguments, train_dataset=rows, eval_dataset=rows[:64],
    callbacks=[huggingface_callback(budget), Log()],
)
trainer.train(resume_from_checkpoint=budget.checkpoint)
json.dump([Log.rates, trainer.state.global_step], open("rates.json", "w"))
"""
)

LIGHTNING = (
    KILL
    + """\
import torch
import lightning
from shoestring.budget import Budget, lightning_callback

class Model(lightning.LightningModule):
    rates = []
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
    def training_step(self, batch):
        return self.linear(batch[0]).pow(2).mean()
    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        time.sleep(0.01)
        if not self.trainer.global_step % 10:
            kill_once(budget, self.trainer.global_step)
    def validation_step(self, batch):
        self.log("val_loss", self.linear(batch[0]).pow(2).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

data = torch.utils.data.TensorDataset(torch.randn(512, 8))
budget = Budget.here()
trainer = lightning.Trainer(accelerator="cpu", max_epochs=10000, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, callbacks=[lightning_callback(budget)])
trainer.fit(Model(), torch.utils.data.DataLoader(data, 8), torch.utils.data.DataLoader(data, 64),
            ckpt_path=budget.checkpoint)
json.dump([Model.rates, trainer.global_step], open("rates.json", "w"))
"""
)


@pytest.mark.parametrize(("package", "script"), [("transformers", HUGGINGFACE), ("lightning", LIGHTNING)])
def test_a_killed_framework_continues_in_the_same_run_and_ends_annealed(
    package: str, script: str, tmp_path: Path, laptop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    on = Exec(tmp_path, laptop)
    assert on.short("1", "true") == 0
    name = on.script("fit.py", script)
    assert on.run("--budget", on.usd_of(60), "--grace", "3", "--", PYTHON, name) == 128 + 9, on.err
    usd = on.usd_to_resume()
    assert on.run("--resume", on.run_id, "--budget", usd) == 0, on.err
    rates, steps = json.loads(on.wait_for("rates.json"))
    saved = int((tmp_path / "killed").read_text().split("-")[1].split(".")[0])
    assert steps == saved + len(rates)
    last = rates[-max(1, len(rates) // 20) :]
    assert sum(last) / len(last) < 0.05 * 0.01
    first, second = on.receipts()[-2:]
    assert first.run_id == second.run_id
    assert first.spent_usd + second.spent_usd <= Decimal(usd)
    assert second.outcome is not None and second.outcome.samples == 8 * steps
    assert second.outcome.metrics["loss"] < 5
    on.close()
