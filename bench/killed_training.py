"""Claim: a training that is killed at random points, and resumed each time, ends with the same weights as one
that nothing interrupts, where neither money nor time ends it.

Each start is a process of its own, killed with SIGKILL: while it trains, validates, or writes a checkpoint.
Its clock runs 200 times as fast, so that checkpoints are frequent. Each family of models trains a small data
set.

python bench/killed_training.py [--kills 20] [--seed 0] [--family NAME ...] [--quick]

--quick: 8 kills each; two minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # the clock of the tests

import numpy as np
import torch
from clocks import FastClock
from machine import describe

from shoestring.backends.folder_store import FolderStore
from shoestring.config.adaptation import AdaptationLimits
from shoestring.core.datasets import IMAGE_COLUMN, TOKENS_COLUMN, Encoding, Feature, StoredField
from shoestring.data.families import FamilySettings
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.samples import Collator, SampleReader
from shoestring.data.transforms.texts.byte_tokens import PADDING, START, ByteTokens
from shoestring.spending.meter import Meter
from shoestring.training.checkpoints import read_pointer
from shoestring.training.families.blend.settings import BlendSettings
from shoestring.training.families.boosted.settings import BoostedSettings
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.families.linear.settings import LinearSettings
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.families.train_family import train_family
from shoestring.training.families.transformer.settings import TransformerSettings
from shoestring.training.replay import replay_differences
from shoestring.training.task import TrainingTask
from shoestring.training.window_log import read_log

Rows = np.ndarray[Any, np.dtype[Any]]
RUN_ID, TIMES = "killed", 200.0
ROWS, VALIDATION_ROWS, ROW_TOKENS = 4000, 400, 32
MOST_START_S, MOST_WAIT_S = 10.0, 3.0
"""A start is waited for until it has written a checkpoint, and killed at most so long after it."""


@dataclass(frozen=True)
class Data:
    """Rows, how they are encoded, and the settings of a training that takes a few seconds on them."""

    encoding: Encoding
    rows: Rows
    settings: FamilySettings


def table_rows(rng: np.random.Generator) -> Data:
    """Return rows whose class depends on a number and a category."""
    rows = np.empty(ROWS + VALIDATION_ROWS, [("code", "i4"), ("number", "f4"), ("y", "i4")])
    rows["code"], rows["number"] = rng.integers(0, 9, len(rows)), rng.normal(size=len(rows))
    rows["y"] = rng.random(len(rows)) < 1 / (1 + np.exp(-2 * rows["number"] - rows["code"] % 2))
    share = float(rows["y"].mean())
    encoding = Encoding(
        features=(
            Feature(name="code", kind="categorical", cardinality=9),
            Feature(name="number", kind="numeric"),
        ),
        task="binary",
        classes=("no", "yes"),
        train_prior=(1 - share, share),
    )
    return Data(
        encoding, rows, TableNetSettings(max_epochs=60, hidden=(16,), bins=4, batch_rows=32, patience=999)
    )


def text_rows(rng: np.random.Generator) -> Data:
    """Return rows of letters, each of which is often the one before."""
    letters = rng.integers(97, 123, (ROWS + VALIDATION_ROWS, ROW_TOKENS), np.uint8)
    same = rng.random(letters.shape) < 0.5
    for place in range(1, ROW_TOKENS):
        letters[:, place] = np.where(same[:, place], letters[:, place - 1], letters[:, place])
    letters[:, 0] = START
    rows = np.empty(len(letters), [(TOKENS_COLUMN, "u1", (ROW_TOKENS,)), ("y", "i4")])
    rows[TOKENS_COLUMN] = letters
    rows["y"] = ROW_TOKENS - 1
    prior = np.bincount(letters[:, 1:].ravel(), minlength=256) + 1.0
    prior[[START, PADDING]] = 0
    encoding = Encoding(
        features=(),
        fields=(StoredField(name=TOKENS_COLUMN, dtype="uint8", shape=(ROW_TOKENS,), use="tokens"),),
        vocabulary=ByteTokens.vocabulary,
        task="next_token",
        train_prior=tuple((prior / prior.sum()).tolist()),
    )
    return Data(
        encoding,
        rows,
        TextNetSettings(
            max_epochs=3, hidden=(16, 16), batch_rows=64, patience=99, dropout=0.3, learning_rate=0.002
        ),
    )


def transformer_rows(rng: np.random.Generator) -> Data:
    """Return the rows of letters, for a transformer."""
    settings = TransformerSettings(
        max_epochs=3, width=16, layers=1, heads=2, window=8, batch_rows=64, patience=99, dropout=0.3
    )
    return replace(text_rows(rng), settings=settings)


def image_rows(rng: np.random.Generator) -> Data:
    """Return images of 12 x 12, every second one with a bright square at any place, and a number."""
    rows = np.empty(ROWS + VALIDATION_ROWS, [(IMAGE_COLUMN, "u1", (144,)), ("number", "f4"), ("y", "i4")])
    rows["number"], rows["y"] = rng.normal(size=len(rows)), rng.integers(0, 2, len(rows))
    pixels = rng.integers(0, 128, (len(rows), 12, 12), np.uint8)
    for at, (row, column) in enumerate(rng.integers(0, 9, (len(rows), 2))):
        pixels[at, row : row + 3, column : column + 3] += 60 * int(rows["y"][at])
    rows[IMAGE_COLUMN] = pixels.reshape(len(rows), -1)
    encoding = Encoding(
        features=(Feature(name="number", kind="numeric"),),
        fields=(StoredField(name=IMAGE_COLUMN, dtype="uint8", shape=(1, 12, 12), use="image"),),
        task="binary",
        classes=("no", "yes"),
        train_prior=(0.5, 0.5),
    )
    settings = ImageNetSettings(
        max_epochs=6, hidden=(8, 16), batch_rows=32, patience=99, shift=1, flip=True, dropout=0.3
    )
    return Data(encoding, rows, settings)


def boosted_rows(rng: np.random.Generator) -> Data:
    """Return the rows of the table, for trees."""
    return replace(table_rows(rng), settings=BoostedSettings(max_epochs=600, patience=999, min_leaf_rows=5))


def linear_rows(rng: np.random.Generator) -> Data:
    """Return the rows of the table, for a linear model."""
    return replace(table_rows(rng), settings=LinearSettings(max_epochs=400, patience=999, batch_rows=64))


def blend_rows(rng: np.random.Generator) -> Data:
    """Return the rows of the table, for a blend of all three."""
    members = (linear_rows, boosted_rows, table_rows)
    data = [each(rng) for each in members]
    return replace(data[0], settings=BlendSettings(members=tuple(each.settings for each in data)))


FAMILIES: dict[str, Callable[[np.random.Generator], Data]] = {
    "table": table_rows,
    "boosted": boosted_rows,
    "image": image_rows,
    "linear": linear_rows,
    "blend": blend_rows,
    "text": text_rows,
    "transformer": transformer_rows,
}


def task_of(
    folder: Path, data: Data, attempt: int = 1, validation_rows: int = VALIDATION_ROWS
) -> TrainingTask:
    """Return a training on all rows but the last ones, which validate it, that no money ends."""
    clock, encoding = FastClock(TIMES), data.encoding
    train, validation = (
        SampleReader(EncodedRows([part]), Collator(encoding, part.dtype))
        for part in (data.rows[:-validation_rows], data.rows[-validation_rows:])
    )
    return TrainingTask(
        run_id=RUN_ID,
        seed=7,
        encoding=encoding,
        settings=data.settings,
        train=train,
        validation=validation,
        store=FolderStore(folder),
        meter=Meter(Decimal(0), clock.monotonic_s(), Decimal(0), None),
        clock=clock,
        cores=1,
        report_progress=lambda progress: None,
        should_stop=lambda: False,
        adaptation_limits=AdaptationLimits(),
        attempt=attempt,
    )


def train(folder: Path, data: Data, attempt: int) -> None:
    """Train from the last checkpoint on; write the weights to `folder`."""
    task = task_of(folder, data, attempt)
    trained = train_family(task)
    (folder / "weights").write_bytes(trained.weights)


def start(folder: Path, data: Data, attempt: int) -> int:
    """Start a training in a process of its own; return its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        train(folder, data, attempt)
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def wait(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a start failed by itself")


def kill(folder: Path, data: Data, attempt: int, chance: random.Random) -> int:
    """Start a training and kill it, of three starts two after their first checkpoint.

    Return the samples of the newest checkpoint.
    """
    store, pid, ends_s = FolderStore(folder), start(folder, data, attempt), time.monotonic() + MOST_START_S
    while attempt % 3 and read_pointer(store, RUN_ID).attempt < attempt and time.monotonic() < ends_s:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, MOST_WAIT_S))
    os.kill(pid, signal.SIGKILL)
    wait(pid)
    slots = read_pointer(store, RUN_ID).slots
    return slots[0].samples if slots else 0


def killed(folder: Path, data: Data, kills: int, chance: random.Random) -> str:
    """Kill `kills` starts at random points of the training, then let one end. Return what was seen."""
    samples = [kill(folder, data, attempt, chance) for attempt in range(1, kills + 1)]
    wait(start(folder, data, kills + 1))
    log = read_log(FolderStore(folder), RUN_ID)
    assert log is not None
    went_on = sum(later > earlier for earlier, later in pairwise([0, *samples]))
    differences = list(replay_differences(log))
    return (
        f"{kills} kills, {went_on} starts went on, the last from {samples[-1]:,} samples; "
        f"{len(log.windows)} windows replayed, {len(differences)} differ"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", nargs="*", choices=sorted(FAMILIES), default=sorted(FAMILIES))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    kills, holds = (8 if args.quick else args.kills), True
    print(describe(), flush=True)
    torch.set_num_threads(1)
    for family in args.family:
        data = FAMILIES[family](np.random.default_rng(args.seed))
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            began_s = time.monotonic()
            wait(start(Path(one), data, 1))
            whole_s = time.monotonic() - began_s
            seen = killed(Path(other), data, kills, random.Random(args.seed))
            same = Path(one, "weights").read_bytes() == Path(other, "weights").read_bytes()
        holds = holds and same and seen.endswith(" 0 differ")
        print(f"{family}, {whole_s:.1f} s: {seen}; {'the same' if same else 'other'} weights", flush=True)
    print("holds" if holds else "does not hold")
    raise SystemExit(not holds)


if __name__ == "__main__":
    main()
