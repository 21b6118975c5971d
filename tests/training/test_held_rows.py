"""Rows that a device keeps: each is moved to it once, and gathered there from then on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from small_dataset import encoding_of, reader, samples, table
from training_bench import TINY

from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.samples import Array, Collator, Positions, SampleReader, Samples
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.frameworks.torch_.device import Device
from shoestring.training.frameworks.torch_.held_rows import HELD_SHARE, HeldRows, HeldValidation, WeighedRows
from shoestring.training.frameworks.torch_.net_kind import NetRows
from shoestring.training.frameworks.torch_.net_learner import NetLearner

ROWS = table(600, 0)
ENCODING = encoding_of(ROWS)
KIND = TableNetKind(ENCODING, TINY)


class RoomyDevice(Device):
    """A device whose free memory a test names."""

    def __init__(self, name: str, free: int) -> None:
        super().__init__(name, 0)
        self._free = free

    def free_bytes(self) -> int:
        return self._free


def tensors(positions: Positions) -> NetRows:
    found = samples(ROWS[positions])
    return NetRows(KIND.inputs(found), KIND.targets(found))


def all_equal(one: NetRows, other: NetRows) -> bool:
    return all(map(torch.equal, (*one.inputs, *one.targets), (*other.inputs, *other.targets)))


SPLIT_BYTES = tensors(np.arange(600)).bytes
FITS = int(SPLIT_BYTES / HELD_SHARE)


def test_rows_are_gathered_on_the_device_once_all_of_them_are_there() -> None:
    held = HeldRows(RoomyDevice("cpu", FITS), 600)
    order = np.random.default_rng(0).permutation(600)
    assert held.take(order[:10]) is None
    for start in range(0, 400, 50):
        held.add(order[start : start + 50], tensors(order[start : start + 50]))
    again = np.random.default_rng(1).permutation(order[:400])
    taken = held.take(again)
    assert taken is not None and all_equal(taken, tensors(again))
    assert held.take(order[399:401]) is None


@pytest.mark.parametrize("free", [0, FITS - 8])
def test_a_split_that_does_not_fit_is_moved_each_time(free: int) -> None:
    held = HeldRows(RoomyDevice("cpu", free), 600)
    for _ in range(2):
        held.add(np.arange(600), tensors(np.arange(600)))
        assert held.take(np.arange(10)) is None


def test_threads_add_rows_while_others_take_them() -> None:
    held, order = HeldRows(RoomyDevice("cpu", FITS), 600), np.random.default_rng(0).permutation(600)
    blocks = [order[start : start + 10] for start in range(0, 600, 10)]

    def visit(block: Positions) -> bool:
        held.add(block, tensors(block))
        taken = held.take(block)
        return taken is not None and all_equal(taken, tensors(block))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(visit, blocks * 5))


class WatchedRows(SampleReader):
    """Rows that count how many are read."""

    def __init__(self) -> None:
        super().__init__(EncodedRows([ROWS]), Collator(ENCODING, ROWS.dtype))
        self.read_rows, self._lock = 0, threading.Lock()

    def read(self, positions: Positions) -> Array:
        with self._lock:
            self.read_rows += len(positions)
        return super().read(positions)


@pytest.mark.parametrize(
    ("free", "position", "least"), [(FITS, 0, 600), (FITS, 300, 600), (0, 0, 1800), (0, 300, 1500)]
)
def test_a_training_reads_and_moves_each_row_once_where_the_split_fits(
    free: int, position: int, least: int
) -> None:
    """Also one that begins within an epoch: it reads the rest in the next one."""
    learner = NetLearner(KIND, samples(ROWS), len(ROWS), RoomyDevice("meta", free))
    rows, small = WatchedRows(), 3 * 50 * ROWS.dtype.itemsize
    cursor = SampleCursor(seed=0, position=position)
    with Loader(rows, cursor, gather=learner.gather, prefetch_bytes=small) as loader:
        for _ in range((1800 - position) // 30):
            batch = loader.next_batch(30).samples
            assert len(batch) == 30
            assert {each.device.type for each in (*batch.inputs, *batch.targets)} == {"meta"}
        assert loader.times.gathering.transfer > 0
    # Some blocks are gathered ahead, and one of which a row is missing is read whole.
    assert least <= rows.read_rows <= least + (400 if position else 150)


class CountedRows:
    """Validation rows that count how often they are read."""

    def __init__(self) -> None:
        self.reads = 0

    def batches(self, batch_rows: int) -> Iterator[Samples]:
        self.reads += 1
        yield from reader(ROWS, ENCODING).scan(batch_rows)


@pytest.mark.parametrize(("free", "reads"), [(FITS, 1), (FITS - 8, 3)])
def test_a_validation_is_moved_once_where_it_fits(free: int, reads: int) -> None:
    held, rows = HeldValidation(RoomyDevice("cpu", free)), CountedRows()

    def prepare(found: Samples) -> WeighedRows:
        return WeighedRows(NetRows(KIND.inputs(found), KIND.targets(found)), len(found))

    for _ in range(3):
        batches = list(held.batches(rows, 70, prepare))
        assert sum(batch.weight for batch in batches) == 600
        assert all_equal(NetRows.joined([batch.rows for batch in batches]), tensors(np.arange(600)))
    assert rows.reads == reads
    other = CountedRows()
    assert len(list(held.batches(other, 70, prepare))) == 9 and other.reads == 1
