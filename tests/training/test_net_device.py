"""Networks on a device: no step mixes two devices or waits for one, and a bad window is taken back.

Without a GPU, the device is PyTorch's `meta`, whose tensors have no values: whatever waits for one fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from image_nets import encoding_for as image_encoding
from image_nets import image_learner, squares, with_images
from small_dataset import CODE, NUMBER, encoding_of, reader, samples, table
from test_text_families import SMALL, kind_of
from test_text_families import encoding as text_encoding
from test_text_families import rows as text_rows
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from training_bench import TINY

from shoestring.core.datasets import Encoding, Loss, Vocabulary
from shoestring.core.errors import StageFailed
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.samples import Samples
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.contracts import StepPlan
from shoestring.training.families.image_net.learner import ImageNetKind
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.families.registry import family_of
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.frameworks.torch_.device import Device
from shoestring.training.frameworks.torch_.net_kind import NetKind, weight_bytes
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.frameworks.torch_.net_predictor import NetPredictor


class OneDevice(TorchDispatchMode):
    """Fails where an operation gets tensors of two devices, or copies one back, and counts the copies to the
    device. Numbers of the host that have no dimension may be mixed in."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = _devices((args, kwargs))
        out = func(*args, **(kwargs or {}))
        outputs = _devices(out)
        is_copy = "copy" in str(func)
        assert len(inputs) < 2 or is_copy, f"{func} gets tensors of {inputs}"
        assert not ("meta" in inputs and "cpu" in outputs), f"{func} copies a tensor back"
        self.copies += inputs == {"cpu"} and outputs == {"meta"}
        return out


def _devices(values: Any) -> set[str]:
    return {each.device.type for each in tree_leaves(values) if isinstance(each, torch.Tensor) and each.ndim}


ROWS = table(256, 0)
TABLE = encoding_of(ROWS)
TINY_TABLE = TableNetKind(TABLE, TINY)


def weighted() -> tuple[Encoding, Samples]:
    """Rows of three classes with weights."""
    given = samples(ROWS)
    fields = {**given.fields, "target": ROWS["code"] % 3, "weight": np.ones(len(ROWS), np.float32)}
    encoding = Encoding(
        features=TABLE.features,
        task="multiclass",
        classes=("a", "b", "c"),
        train_prior=(0.3, 0.3, 0.4),
        loss=Loss(balanced=True),
    )
    return encoding, Samples(fields)


def quantile() -> tuple[Encoding, Samples]:
    given = samples(ROWS)
    encoding = Encoding(
        features=TABLE.features, task="regression", train_prior=(0.5, 0.5), loss=Loss(quantile=0.9)
    )
    return encoding, Samples({**given.fields, "target": ROWS["number"]})


def moved_images() -> tuple[NetKind, Samples]:
    found = with_images(
        squares(64, 0)["image"],
        np.arange(64, dtype=np.int32) % 2,
        ROWS["code"][:64, None],
        ROWS["number"][:64, None],
    )
    encoding = image_encoding(found, features=(CODE, NUMBER))
    return ImageNetKind(encoding, ImageNetSettings(hidden=(8, 16), flip=True, shift=1)), found


def wide_tokens() -> tuple[NetKind, Samples]:
    """Tokens of two bytes."""
    given = text_rows([b"abc" * 9] * 40)
    vocabulary = Vocabulary(kind="bytes", size=1 << 12, start=0, padding=1, bytes_per_token=1.0)
    prior = (1 / (1 << 12),) * (1 << 12)
    encoding = text_encoding().model_copy(update={"vocabulary": vocabulary, "train_prior": prior})
    return kind_of(SMALL, encoding), Samples({**given.fields, "tokens": given["tokens"].astype(np.uint16)})


def kinds() -> dict[str, tuple[NetKind, Samples]]:
    texts, dropping = text_rows([b"abcabd" * 30] * 40), TINY.model_copy(update={"dropout": 0.2})
    pixels = squares(64, 0)
    return {
        "table": (TableNetKind(TABLE, dropping), samples(ROWS)),
        "weighted classes": (TableNetKind(weighted()[0], TINY), weighted()[1]),
        "quantile": (TableNetKind(quantile()[0], TINY), quantile()[1]),
        "pixels of a table": (TableNetKind(image_encoding(pixels), TINY), pixels),
        "images": moved_images(),
        "text_net": (kind_of(TextNetSettings(hidden=(16, 16), dropout=0.1)), texts),
        "transformer": (kind_of(SMALL.model_copy(update={"dropout": 0.1})), texts),
        "tokens of two bytes": wide_tokens(),
    }


def test_the_watch_sees_what_a_step_must_not_do() -> None:
    here, there = torch.ones(3, 3), torch.ones(3, 3, device="meta")
    with OneDevice() as watched:
        for mixed in (lambda: there @ here, lambda: there[:, here[0].long()], lambda: there + here):
            with pytest.raises(Exception, match=r"gets tensors of|on device"):
                mixed()
        with pytest.raises(Exception, match=r"copies a tensor back|Cannot copy out of meta"):
            there.cpu()
        with pytest.raises(RuntimeError, match="cannot be called on meta"):
            bool(there.any())
        here.to("meta")
    assert watched.copies == 1


@pytest.mark.parametrize("name", kinds())
def test_a_step_stays_on_its_device_and_waits_for_nothing(name: str) -> None:
    kind, given = kinds()[name]
    learner = NetLearner(kind, given, len(given), Device("meta", 0))
    rows = learner.prepare(given)
    assert {each.device.type for each in (*rows.inputs, *rows.targets)} == {"meta"}
    learner.seen = 10 * len(given)  # Images are moved by now.
    with OneDevice() as watched:
        for start in (0, 16, 32):
            learner.mark()
            loss = learner.step(rows.part(start, start + 16), 0.01, is_measured=True)
            learner.state()
    assert loss.device.type == "meta" and loss.ndim == 0
    assert watched.copies == 0


def test_a_block_is_copied_to_the_device_once_and_batches_are_parts_of_it() -> None:
    learner = NetLearner(TINY_TABLE, samples(ROWS), len(ROWS), Device("meta", 0))
    copies = list[int]()
    made = learner.device.rows

    def counted(rows: Any) -> Any:
        copies.append(len(rows))
        return made(rows)

    learner.device.rows = counted  # type: ignore[method-assign]
    small = 3 * 100 * ROWS.dtype.itemsize
    with (
        Loader(reader(ROWS), SampleCursor(seed=0), gather=learner.gather, prefetch_bytes=small) as loader,
        OneDevice() as watched,
    ):
        for _ in range(20):
            learner.advance(StepPlan(20, 1.0), loader)
    assert watched.copies == 0
    assert 4 <= len(copies) <= 10 and max(copies) == 100


def test_a_window_is_taken_back_also_to_the_beginning() -> None:
    """The draws of a step are a function of the seed and its number: the same ones are made again."""
    for learner, given in (
        (
            NetLearner(TableNetKind(TABLE, TINY), samples(ROWS), len(ROWS), Device("cpu", 5)),
            samples(ROWS[:64]),
        ),
        (image_learner(squares(64, 0), dropout=0.3, flip=True), squares(64, 0)),
    ):
        rows = learner.prepare(given)
        for _ in range(2):
            learner.mark()
            losses = [float(learner.step(rows, 0.01)) for _ in range(4)]
            after = [each.detach().clone() for each in learner.net.parameters()]
            torch.rand(17)
            learner.go_back()
            assert [float(learner.step(rows, 0.01)) for _ in range(4)] == losses
            assert all(map(torch.equal, after, learner.net.parameters()))
        assert len({*losses}) == 4


@pytest.mark.parametrize("name", kinds())
def test_predictions_are_computed_on_the_device_and_copied_back_at_their_end(name: str) -> None:
    kind, given = kinds()[name]
    predictor = NetPredictor(kind, weight_bytes(kind.new(given)), "meta")
    with OneDevice() as watched, pytest.raises(Exception, match=r"copies a tensor back|copy out of meta"):
        predictor.predict(given.part(0, 32))
    assert watched.copies >= len(kind.inputs(given))


@pytest.mark.parametrize("name", ["table", "weighted classes", "quantile", "pixels of a table", "images"])
def test_a_network_predicts_what_numpy_does(name: str) -> None:
    kind, given = kinds()[name]
    learner = NetLearner(kind, given, len(given))
    for start in (0, 16, 32):
        learner.step(learner.prepare(given.part(start, start + 16)), 0.01)
    assert isinstance(kind, TableNetKind | ImageNetKind)
    weights = learner.export("last").data
    by_numpy = family_of(kind.settings).predictor(kind.encoding, weights)
    found = NetPredictor(kind, weights, "cpu").predict(given)
    assert found.dtype == np.float64 and found == pytest.approx(by_numpy.predict(given), abs=1e-5)


def test_other_seeds_draw_other_masks() -> None:
    learners = [
        NetLearner(
            TableNetKind(TABLE, TINY.model_copy(update={"dropout": 0.5})),
            samples(ROWS),
            256,
            Device("cpu", seed),
        )
        for seed in (0, 1)
    ]
    learners[1].net.load_state_dict(learners[0].net.state_dict())
    rows = learners[0].prepare(samples(ROWS))
    for learner in learners:
        torch.nn.init.normal_(learner.net.output.weight, generator=torch.Generator().manual_seed(0))
    assert float(learners[0].step(rows, 0.0)) != float(learners[1].step(rows, 0.0))
    assert float(learners[0].step(rows, 0.0)) != float(learners[0].step(rows, 0.0))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_placement_on_a_gpu_that_pytorch_does_not_find_is_refused_with_what_to_do() -> None:
    with pytest.raises(StageFailed, match=r"was placed on a GPU, and PyTorch 2\S+ (is built|for CUDA)"):
        NetLearner(TINY_TABLE, samples(ROWS), len(ROWS), Device("cuda", 0))
