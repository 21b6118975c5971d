"""`shoestring profile`, and `shoestring exec --profile`: the time of real steps, inside a budget."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from commands import Finished, Ran, shoestring
from exec_runs import PYTHON, Exec, torch_starts_s

from shoestring.core import store_layout
from shoestring.data.run_records import read_record
from shoestring.training.profiling.profile import Profile

pytestmark = pytest.mark.slow

SCRIPT = """\
import torch
from shoestring.budget import Budget, budgeted

torch.manual_seed(0)
x = torch.randn(4096, 64)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.SiLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters())
budget = Budget.here()
for epoch in budget.epochs(4):
    for inputs, targets in budgeted(torch.utils.data.DataLoader(data, 128, True), model, optimizer, budget):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    budget.report(loss=loss.item())
"""


HUGGINGFACE = """\
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from shoestring.budget import Budget, huggingface_callback

config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
rows = [{"input_ids": torch.randint(50, (8,)), "labels": each % 2} for each in range(512)]
arguments = TrainingArguments(
    "out", max_steps=80, gradient_accumulation_steps=2, report_to=[], disable_tqdm=True
)
trainer = Trainer(
    BertForSequenceClassification(config), arguments, train_dataset=rows,
    callbacks=[huggingface_callback(Budget.here())],
)
trainer.train()
"""

LIGHTNING = """\
import torch, lightning
from shoestring.budget import Budget, lightning_callback

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
    def training_step(self, batch):
        return self.linear(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

rows = torch.utils.data.TensorDataset(torch.randn(512, 8))
trainer = lightning.Trainer(
    callbacks=[lightning_callback(Budget.here())], max_epochs=2, logger=False, accumulate_grad_batches=2,
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), torch.utils.data.DataLoader(rows, batch_size=16 // 2))
"""


@pytest.fixture
def on(tmp_path: Path, laptop: Path) -> Iterator[Exec]:
    made = Exec(tmp_path, laptop)
    yield made
    made.close()


def test_the_loop_of_a_script_is_profiled_for_2_percent_of_its_budget(on: Exec) -> None:
    assert on.short("1", "true") == 0
    seconds = 60 + 3 * torch_starts_s()
    words = ("--budget", on.usd_of(seconds), "--grace", "2", "--profile", "--")
    assert on.run(*words, PYTHON, on.script("fit.py", SCRIPT)) == 0, on.err
    found = read_record(on.store, store_layout.profile(on.run_id), Profile)
    assert found.rows == 128 and {"addmm", "silu"} <= {each.name for each in found.operators}
    assert 0 < found.profile_s <= found.limit_s <= 0.02 * seconds + 0.01
    assert 0 < found.loading_share < 1 and found.device == "cpu"
    assert "what would pay:" in on.err or "nothing that was tried" in on.err
    assert "where a step's time goes" in on.err and "addmm" in on.err
    assert "profiler_start" not in on.err and "CPUAllocator" not in on.err
    receipt = on.receipts()[-1]
    assert receipt.status == "done" and receipt.outcome is not None
    assert receipt.outcome.samples == 4 * 4096


@pytest.mark.parametrize(("script", "rows"), [(HUGGINGFACE, 16), (LIGHTNING, 8)])
def test_the_loop_of_a_framework_is_profiled(on: Exec, script: str, rows: int) -> None:
    assert on.short("1", "true") == 0
    words = ("--budget", on.usd_of(120 + 6 * torch_starts_s()), "--grace", "2", "--profile", "--")
    assert on.run(*words, PYTHON, on.script("fit.py", script)) == 0, on.err
    found = read_record(on.store, store_layout.profile(on.run_id), Profile)
    # A step of Trainer is two batches of the loader.
    assert found.rows == rows and found.left_out == ()
    assert 0 < found.loading_share < 1 and found.operators[0].seconds > 0
    assert {"product", "optimizer"} <= {each.kind for each in found.operators}
    # One of the optimizer was among the watched.
    assert "no gradient" not in on.err


def test_a_command_without_a_loop_of_its_own_is_not_profiled(on: Exec) -> None:
    assert on.run("--budget", "1", "--grace", "0.5", "--profile", "--", "true") == 0
    assert "nothing was profiled: the command has no loop in `budgeted`" in on.err


def test_without_the_option_nothing_is_profiled(on: Exec) -> None:
    code = "import os; assert 'SHOESTRING_PROFILE' not in os.environ"
    assert on.short("1", PYTHON, "-c", code) == 0
    assert not [key for key in on.store.list(store_layout.RUNS) if key.endswith("profile.json")]


@pytest.fixture
def prepared(finished: Finished, tmp_path: Path) -> Path:
    """Return a copy of a store with prepared data."""
    return Path(shutil.copytree(finished.store, tmp_path / "store"))


def profile(finished: Finished, store: Path, *words: str, code: int = 0) -> Ran:
    ran = shoestring("profile", finished.recipe, "--world", finished.world, "--store", store, *words)
    assert ran.code == code, ran.err
    return ran


def test_the_steps_of_a_recipe_are_profiled_inside_a_budget_of_their_own(
    finished: Finished, prepared: Path
) -> None:
    ran = profile(finished, prepared, "--budget", "0.005", "--json")
    found = Profile.model_validate_json(ran.out)
    assert found.rows > 256 and "product" in {each.kind for each in found.operators}
    assert {each.lever for each in found.trials} >= {"batch"}
    (run,) = (
        each for each in shoestring("runs", "--store", prepared, "--json").json if "profile" in each["run_id"]
    )
    assert Decimal(run["spent_usd"]) <= Decimal("0.005")
    assert shoestring("ledger", "verify", "--store", prepared).code == 0


def test_a_recipe_without_prepared_data_is_refused_before_anything_is_paid(
    finished: Finished, tmp_path: Path
) -> None:
    ran = profile(finished, tmp_path / "empty", "--family", "table_net", code=2)
    assert "are not prepared in this store: `shoestring run" in ran.err


@pytest.mark.parametrize("family", ["boosted", "nonsense"])
def test_a_family_without_steps_of_a_network_is_named(
    finished: Finished, prepared: Path, family: str
) -> None:
    assert family in profile(finished, prepared, "--family", family, code=2).err


def test_a_budget_that_ends_before_the_profile_is_whole_is_named(finished: Finished, prepared: Path) -> None:
    smallest = r"the smallest budget that is enough is \$([0-9.]+)"
    refused = profile(finished, prepared, "--family", "table_net", code=1).err
    found = re.search(smallest, refused)
    assert found is not None
    # Its process ends while it imports PyTorch.
    ran = profile(finished, prepared, "--family", "table_net", "--budget", found[1], code=1)
    assert f"${found[1]} were spent before the profile was whole: name more with --budget" in ran.err
    assert "resume" not in ran.err


def test_2_percent_of_a_small_budget_are_too_little(finished: Finished, prepared: Path) -> None:
    err = profile(finished, prepared, "--family", "table_net", code=1).err
    assert "2% of the recipe's $" in err and "name more with --budget" in err
