"""The four stages on real text: source files of Python's standard library."""

from __future__ import annotations

import email
import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from stage_work import stage_work

from shoestring.backends.folder_store import FolderStore
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.evaluation.results import EvaluationResults
from shoestring.stages import evaluate, ingest, preprocess, train
from shoestring.training.families.recipe_needs import RecipeNeeds
from shoestring.training.model_record import ModelRecord
from shoestring.training.window_log import WindowLog


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", [{"hidden": [24, 24, 24]}, {"family": "transformer", "width": 32, "window": 16}]
)
def test_a_model_of_source_code_is_measured_in_bits_per_byte_beside_gzip(
    tmp_path: Path, keys: dict[str, object]
) -> None:
    texts = tmp_path / "texts"
    for package in (email, json):
        name = package.__name__
        shutil.copytree(
            Path(str(package.__file__)).parent, texts / name, ignore=shutil.ignore_patterns("__pyc*")
        )
    recipe = Recipe.model_validate(
        {
            "name": "code",
            "source": {"rows": {"path": texts, "text": {"row_tokens": 128}}},
            "train": {"max_epochs": 2, "learning_rate": 0.01, **keys},
        }
    )
    work = partial(stage_work, tmp_path, recipe)
    raw = ingest.run(work("ingest"))
    data = preprocess.run(work("preprocess", data=raw.key))
    model = train.run(work("train", data=data.key))
    done = evaluate.run(work("evaluate", data=data.key, model=model.key))
    store = FolderStore(tmp_path / "store")
    results = read_record(store, "runs/one/evaluation.json", EvaluationResults)
    assert (results.task, results.metric, results.resampling_unit) == (
        "next_token",
        "bits_per_byte",
        "groups",
    )
    assert [each.name for each in results.baselines] == ["token frequencies", "gzip"]
    assert results.opening is not None and results.opening.unit == "documents"
    assert results.calibration == () and results.constant_warning == ""
    found = done.metrics
    assert 1.5 < found["bits_per_byte"] < 3.5 < 4 < found["bits_per_byte_token_frequencies"] < 6
    assert 1.5 < found["bits_per_byte_gzip"] < 4
    record = read_record(store, model.key, ModelRecord)
    assert record.encoding.vocabulary is not None and record.encoding.vocabulary.kind == "bytes"
    assert record.val_loss == model.metrics["val_bits_per_byte"]
    assert read_record(store, "runs/one/curve.json", WindowLog).metric == "bits_per_byte"


@pytest.mark.parametrize("family", ["text_net", "transformer"])
def test_the_needs_of_a_recipe_on_texts_count_tokens(tmp_path: Path, family: str) -> None:
    def needs(row_tokens: int) -> tuple[Need, Need, Need]:
        source = {"t": {"path": tmp_path, "text": {"row_tokens": row_tokens}}}
        recipe = Recipe.model_validate({"name": "a", "source": source, "train": {"family": family}})
        found = [RecipeNeeds(recipe).of_stage(each.NEED) for each in (ingest, train, evaluate)]
        return found[0], found[1], found[2]

    _, short_train, short_evaluate = needs(128)
    read, long_train, long_evaluate = needs(1024)
    assert read.cpu_us_per_row == ingest.NEED.cpu_us_per_row
    assert long_train.cpu_us_per_row == pytest.approx(8 * short_train.cpu_us_per_row)
    assert short_train.cpu_us_per_row > 1000
    assert long_evaluate.cpu_us_per_row == pytest.approx(8 * short_evaluate.cpu_us_per_row)
    assert long_evaluate.cpu_us_per_row > 400
    assert long_evaluate.setup_s == evaluate.NEED.setup_s, "the baselines of texts are no training"


def test_a_wider_transformer_and_attention_to_the_whole_row_cost_more_time_and_memory() -> None:
    def need(**keys: object) -> Need:
        source = {"t": {"path": "/texts", "text": {"row_tokens": 2048}}}
        recipe = {"name": "a", "source": source, "train": {"family": "transformer", **keys}}
        return RecipeNeeds(Recipe.model_validate(recipe)).of_stage(train.NEED)

    small, wide, whole = need(), need(width=256), need(window=None)
    assert wide.cpu_us_per_row > 4 * small.cpu_us_per_row and whole.cpu_us_per_row > 2 * small.cpu_us_per_row
    assert small.memory_fixed_gb < wide.memory_fixed_gb < whole.memory_fixed_gb


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of one process is Linux's")
def test_the_evaluation_of_texts_has_memory_for_the_logits_of_a_long_row() -> None:
    def memory_gb(row_tokens: int) -> float:
        text = {"row_tokens": row_tokens, "vocabulary": 8192}
        recipe = Recipe.model_validate({"name": "a", "source": {"t": {"path": "/texts", "text": text}}})
        return RecipeNeeds(recipe).of_stage(evaluate.NEED).memory_fixed_gb

    script = """if True:
        import re, torch
        from pathlib import Path
        from shoestring.training.frameworks.torch_.token_net import token_losses

        def peak_kb():
            # Not ru_maxrss, which begins at the memory of the process that started this one.
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

        before = peak_kb()
        out = torch.nn.Linear(64, 8192)(torch.ones(1, 4096, 64)).detach()
        token_losses(out, torch.zeros(1, 4096, dtype=torch.long))
        print(peak_kb() - before)
    """
    measured = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    more_gb = memory_gb(4096) - memory_gb(16)
    assert more_gb == pytest.approx(int(measured.stdout) * 1024 / 1e9, rel=0.15)
