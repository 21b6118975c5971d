"""A batch in parts: the same gradients to rounding, moments that move once, and memory that is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_nets import image_learner, squares
from small_dataset import encoding_of, samples, table
from test_net_device import kinds
from test_text_families import encoding as text_encoding
from torch import Tensor, nn
from training_bench import TINY, TrainingBench, net_learner

from shoestring.core.datasets import StoredField, Vocabulary
from shoestring.core.errors import StageFailed
from shoestring.core.types import Need
from shoestring.training.families.data_shape import encoded_shape
from shoestring.training.families.registry import family_of
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.families.text_needs import MEMORY_GB, MICRO_BATCH_GB
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.families.transformer.settings import TransformerSettings
from shoestring.training.frameworks.torch_.batch_norm import NEW_SHARE, BatchNorm
from shoestring.training.frameworks.torch_.net_kind import NetKind
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.replay import replay_differences

ROWS = table(256, 0)
PLAIN = {"dropout": 0.0, "category_dropout": 0.0}


def without_dropout(name: str) -> tuple[NetKind, Any]:
    kind, given = kinds()[name]
    changes = {field: 0.0 for field in PLAIN if hasattr(kind.settings, field)}
    kind.settings = kind.settings.model_copy(update=changes)  # type: ignore[misc]
    return kind, given


def learner_of(kind: NetKind, given: Any) -> NetLearner:
    torch.manual_seed(0)
    return NetLearner(kind, given, len(given))


@pytest.mark.parametrize(
    "name", ["table", "weighted classes", "quantile", "pixels of a table", "text_net", "transformer"]
)
@pytest.mark.parametrize("micro_rows", [1, 7, 16])
def test_the_gradient_of_a_batch_is_that_of_its_parts_to_rounding(name: str, micro_rows: int) -> None:
    kind, given = without_dropout(name)
    whole, parts = learner_of(kind, given), learner_of(kind, given)
    parts.micro_rows = micro_rows
    for start in (0, 20):
        batch = whole.prepare(given.part(start, start + 20))
        losses = [float(each.step(batch, 0.01)) for each in (whole, parts)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for one, other in zip(whole.net.parameters(), parts.net.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-4)
        assert one.grad is None or other.grad is not None
        if one.grad is not None and other.grad is not None:
            assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_parts_of_a_batch_are_of_equal_size() -> None:
    sizes = list[int]()

    class Watched(TableNetKind):
        def losses(self, out: Tensor, targets: Any) -> Tensor:
            sizes.append(len(out))
            return super().losses(out, targets)

    learner = learner_of(Watched(encoding_of(ROWS), TINY), samples(ROWS))
    learner.micro_rows = 16
    learner.step(learner.prepare(samples(ROWS[:50])), 0.01)
    assert sizes == [12, 13, 12, 13]


def moments(learner: NetLearner) -> list[tuple[Tensor, Tensor]]:
    found = [each for each in learner.net.modules() if isinstance(each, BatchNorm)]
    return [(each.mean.detach().clone(), each.variance.detach().clone()) for each in found]


def test_the_moments_of_images_move_once_a_step_by_the_mean_of_the_parts() -> None:
    given = squares(64, 0)
    learner = image_learner(given, dropout=0.0, flip=False)
    learner.step(learner.prepare(squares(64, 1)), 0.0)
    before = moments(learner)
    expected = list[list[tuple[Tensor, Tensor]]]()
    for start in range(0, 64, 16):
        single = image_learner(given, dropout=0.0, flip=False)
        single.restore(learner.state())
        single.step(single.prepare(given.part(start, start + 16)), 0.0)
        expected.append(moments(single))
    learner.micro_rows = 16
    learner.step(learner.prepare(given), 0.0)
    for at, (old, found) in enumerate(zip(before, moments(learner), strict=True)):
        for index in (0, 1):
            # Each part alone moved them by the same share.
            mean = torch.stack([each[at][index] for each in expected]).mean(0)
            assert torch.allclose(found[index], mean, atol=1e-5)
            assert not torch.allclose(found[index], old[index], atol=1e-5)
    assert 0 < NEW_SHARE < 1


def test_a_batch_beyond_the_recipes_is_normalised_in_parts_of_at_most_the_recipes_rows() -> None:
    given = squares(64, 0)
    learner = image_learner(given, batch_rows=16)
    shapes = list[int]()
    norm = next(each for each in learner.net.modules() if isinstance(each, BatchNorm))
    norm.register_forward_hook(lambda module, inputs, out: shapes.append(len(inputs[0])))
    learner.step(learner.prepare(given), 0.01)
    assert shapes == [16] * 4


class Small(nn.Module):
    """A network on a device with memory for some rows at once."""

    def __init__(self, net: nn.Module, rows: int) -> None:
        super().__init__()
        self.net, self.rows, self.refused = net, rows, 0

    def forward(self, *inputs: Tensor) -> Any:
        if self.training and len(inputs[0]) > self.rows:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return self.net(*inputs)


def test_a_batch_that_does_not_fit_is_computed_in_halves_until_it_does() -> None:
    kind, given = without_dropout("transformer")
    whole, small = learner_of(kind, given), learner_of(kind, given)
    small.net = net = Small(small.net, 6)
    batch = whole.prepare(given.part(0, 32))
    losses = [float(each.step(batch, 0.01)) for each in (whole, small)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert (small.micro_rows, small.steps, net.refused) == (4, 1, 3)
    for one, other in zip(whole.net.parameters(), small.net.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-4)
    small.step(batch, 0.01)
    assert net.refused == 3


OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15 GiB"


def test_layers_are_computed_again_where_one_row_does_not_fit() -> None:
    """A step draws the same dropout, and has the same gradient."""
    kind, given = kinds()["transformer"]
    kept, again = learner_of(kind, given), learner_of(kind, given)
    layer, net = again.net.layers[0], again.net  # type: ignore[index,union-attr]
    computed, batch = list[int](), kept.prepare(given.part(0, 16))

    def refuse(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        computed.append(len(inputs[0]))
        if not net.recomputes:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)

    layer.register_forward_pre_hook(refuse)
    losses = [float(each.step(batch, 0.01)) for each in (kept, again)]
    assert computed == [16, 8, 4, 2, 1, 16, 16] and net.recomputes
    assert losses[1] == losses[0]
    for one, other in zip(kept.net.parameters(), again.net.parameters(), strict=True):
        assert torch.equal(one, other)
    sizes = [(each.lever, each.before, each.after, each.reason) for each in again._changes]
    found = "cpu: CUDA out of memory. Tried to allocate 20.00 MiB"
    assert sizes[0] == ("micro-batch", "16 rows", "8 rows", found)
    assert sizes[4] == (
        "activations",
        "kept",
        "recomputed",
        f"one row does not fit into the memory of {found}",
    )


@pytest.mark.parametrize("name", ["table", "transformer"])
def test_a_batch_of_which_no_row_fits_ends_the_stage_with_what_was_asked_for(name: str) -> None:
    kind, given = kinds()[name]
    learner = learner_of(kind, given)

    def refuse(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        raise torch.OutOfMemoryError(OUT_OF_MEMORY)

    learner.net.register_forward_pre_hook(refuse)
    batch = learner.prepare(given.part(0, 16))
    with pytest.raises(StageFailed, match=r"one row does not fit into the memory of cpu: CUDA out of memory"):
        learner.step(batch, 0.01)
    assert learner.steps == 0


def test_a_training_continues_where_memory_ends(tmp_path: Path) -> None:
    """No attempt is lost, the change is in the window log, and the log replays."""

    def refuse(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if module.training and len(inputs[0]) > 10:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)

    bench = TrainingBench(tmp_path, settings=TINY)
    training = bench.training()
    net_learner(training).net.register_forward_pre_hook(refuse)
    trained = training.run()
    assert trained.state.samples == 3 * 300 and trained.val_loss is not None and trained.val_loss < 0.69
    changes = [each.sentence for window in bench.log().windows for each in window.changes]
    assert changes == [
        "at 16 samples, micro-batch 16 rows -> 8 rows: cpu: CUDA out of memory. Tried to allocate 20.00 MiB",
    ]
    assert [*replay_differences(bench.log())] == []


@pytest.mark.parametrize("family", [TransformerSettings, TextNetSettings])
def test_cores_compute_as_many_rows_of_texts_at_once_as_the_router_counts_memory_for(
    family: type[TransformerSettings | TextNetSettings], tmp_path: Path
) -> None:
    """Also where the batch grows beyond the recipe's: the kernel kills, and raises nothing."""
    settings = family(batch_rows=64)
    found = dict[int, tuple[int, float]]()
    for size in (256, 1 << 15):
        vocabulary = Vocabulary(kind="bytes", size=size, start=0, padding=1, bytes_per_token=1.0)
        prior = (1 / size,) * size
        field = StoredField(name="_tokens", dtype="uint16", shape=(257,), use="tokens")
        changes = {"vocabulary": vocabulary, "train_prior": prior, "fields": (field,)}
        encoding = text_encoding().model_copy(update=changes)
        rows = np.ones(2, [("_tokens", "<u2", (257,)), ("y", "<i4")])
        bench = TrainingBench(tmp_path, rows, rows, settings, encoding=encoding)
        task = bench.task()
        learner = family_of(settings).learner(task)
        assert isinstance(learner, NetLearner)
        need = family_of(settings).train_need(Need(stage="train"), encoded_shape(encoding, 2))
        found[size] = learner.micro_rows, need.memory_fixed_gb
    (small_rows, small_gb), (large_rows, large_gb) = found[256], found[1 << 15]
    assert small_rows == 64 > large_rows >= 1
    assert small_gb < large_gb <= MEMORY_GB + MICRO_BATCH_GB
