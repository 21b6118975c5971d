"""The slots of checkpoints and of their parts: one of each is intact at any moment, and belongs to one
attempt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from clocks import StillClock
from resume import checkpoint_at
from training_bench import SlowStore, damage

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import StageStopped, StoreError
from shoestring.core.interfaces import Store
from shoestring.core.record import SCHEMA_VERSION
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training import checkpoints
from shoestring.training.checkpoints import Checkpoint, Checkpoints


def test_a_part_is_written_when_it_has_changed(tmp_path: Path) -> None:
    """The learner's state changes with every step, the best weights with a better validation alone."""
    store = FolderStore(tmp_path)
    attempt = of_attempt(store, 1)
    for samples, best in ((10, b"one"), (20, b"one"), (30, b"two"), (40, b"two")):
        attempt.save(state(samples), {"learner": b"%d" % samples, "best": best})
        assert loaded(store) == (samples, {"learner": b"%d" % samples, "best": best})
    found, _ = of_attempt(store, 2).load("rows")
    assert found is not None
    assert (found.checkpoint.parts["learner"].number, found.checkpoint.parts["best"].number) == (1, 1)
    later = of_attempt(store, 2)
    later.load("rows")
    later.save(state(50), {"learner": b"50", "best": b"two"})
    found, _ = of_attempt(store, 3).load("rows")
    assert found is not None
    assert (found.checkpoint.parts["learner"].attempt, found.checkpoint.parts["best"].attempt) == (2, 1)


@dataclass
class InterruptedStore(SlowStore):
    """A store that fails before the pointer is written."""

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if key.endswith("train.json"):
            raise StoreError("gone")
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


@pytest.mark.parametrize("saves", [1, 2, 3, 4])
@pytest.mark.parametrize("damaged", ["", "train", "learner"])
def test_an_interrupted_save_loses_no_checkpoint(tmp_path: Path, saves: int, damaged: str) -> None:
    """Also after a damaged one was found: a save never overwrites the only intact slot."""
    store = FolderStore(tmp_path)
    attempt = of_attempt(store, 1)
    for samples in range(saves):
        attempt.save(state(samples), parts(samples))
    expected = saves - 1
    if damaged and saves > 1:
        newest = checkpoints.read_pointer(store, "one").slots[0].number
        damage(tmp_path, f"{damaged}-1-{newest}.{'state' if damaged == 'train' else 'part'}")
        expected -= 1
    assert loaded(store) == (expected, parts(expected))
    later = of_attempt(InterruptedStore(store, StillClock(), lambda: 0.0), 1)
    later.load("rows")
    with pytest.raises(StoreError):
        later.save(state(99), parts(99))
    assert loaded(store) == (expected, parts(expected))


def of_attempt(store: Store, attempt: int) -> Checkpoints:
    return Checkpoints(store, "one", attempt)


def state(samples: int) -> Checkpoint:
    return checkpoint_at(SampleCursor(seed=0), samples)


def parts(samples: int) -> dict[str, bytes]:
    return {"learner": b"learner at %d" % samples, "best": b"best"}


def loaded(store: Store) -> tuple[int, dict[str, bytes]]:
    found, _ = of_attempt(store, 9).load("rows")
    assert found is not None
    return found.checkpoint.samples, dict(found.parts)


def test_an_older_attempt_writes_no_checkpoint_over_that_of_a_newer_one(tmp_path: Path) -> None:
    """A pod that was taken for lost, and wakes up."""
    store = FolderStore(tmp_path)
    first, second = of_attempt(store, 1), of_attempt(store, 2)
    first.save(state(10), parts(10))
    second.load("rows")
    second.save(state(20), parts(20))
    with pytest.raises(StageStopped, match=r"attempt 2 has taken over .*attempt 1 writes none") as stopped:
        first.save(state(99), parts(99))
    assert stopped.value.cause == "lost"
    assert loaded(store) == (20, parts(20))
    assert [slot.samples for slot in checkpoints.read_pointer(store, "one").slots] == [20, 10]


@dataclass
class OvertakenStore(SlowStore):
    """A store on which attempt 2 saves a checkpoint while attempt 1 writes its own."""

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if key.endswith(".state"):
            second = of_attempt(self.inner, 2)
            second.load("rows")
            second.save(state(20), parts(20))
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def test_an_attempt_that_is_overtaken_in_the_middle_of_a_save_damages_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    of_attempt(store, 1).save(state(10), parts(10))
    slow = of_attempt(OvertakenStore(store, StillClock(), lambda: 0.0), 1)
    slow.load("rows")
    with pytest.raises(StageStopped, match="attempt 2 has taken over"):
        slow.save(state(99), parts(99))
    assert loaded(store) == (20, parts(20))


def test_a_checkpoint_of_the_version_before_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """And the first save after it does not name its slots any more."""
    store = FolderStore(tmp_path)
    of_attempt(store, 1).save(state(10), parts(10))
    path = tmp_path / "runs/one/checkpoints/train.json"
    path.write_text(
        re.sub('"schema_version": [0-9]+', f'"schema_version": {SCHEMA_VERSION - 1}', path.read_text())
    )
    later = of_attempt(store, 2)
    assert later.load("rows") == (
        None,
        f"the checkpoint at 10 samples is of schema version {SCHEMA_VERSION - 1}, and this release continues "
        f"those of version {SCHEMA_VERSION}; restarted from the beginning",
    )
    later.save(state(20), parts(20))
    assert [slot.samples for slot in checkpoints.read_pointer(store, "one").slots] == [20]
