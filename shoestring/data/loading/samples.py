"""Samples as models read them: codes and numbers of encoded rows, with the statistics of train applied.

Shape suffixes: B samples of a batch; C categorical features; F numeric features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shoestring.core.datasets import GROUP_COLUMN, TARGET_COLUMN, WEIGHT_COLUMN, Encoding, StoredField, Use
from shoestring.core.errors import DataError
from shoestring.data.loading.block_order import BlockOrder, window_blocks
from shoestring.data.loading.record_columns import CodeTable, ColumnBlock, column_of
from shoestring.data.loading.shuffle import Order, SampleCursor, sample_indices

Array = np.ndarray[Any, np.dtype[Any]]
Codes = np.ndarray[Any, np.dtype[np.int32]]
Positions = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Samples:
    """A batch: an array for each use of the stored fields, with the statistics of train applied.

    - code: int32[B, C]; number: float32[B, F]; in the order of the encoding's features.
    - target: [B], the index of the class, or the value; of texts the bytes of a row. Rows to predict have
      none.
    - weight: float32[B], with a mean of 1 in train. Without a column of weights there are none.
    - group: int32[B]; image: uint8[B, channels, height, width]; tokens: uint8[B, T] or uint16[B, T]: where
      the data set has them. Images and tokens are views of the stored rows.
    """

    fields: Mapping[Use, Array]

    def __getitem__(self, use: Use) -> Array:
        return self.fields[use]

    def __contains__(self, use: Use) -> bool:
        return use in self.fields

    @property
    def weights(self) -> Array | None:
        """The weights of the rows; None: all are 1."""
        return self.fields.get("weight")

    def __len__(self) -> int:
        """The rows of the batch."""
        return len(next(iter(self.fields.values())))

    def part(self, start: int, stop: int) -> Samples:
        """Return the samples from `start` to `stop`, as views."""
        return Samples({use: values[start:stop] for use, values in self.fields.items()})

    @classmethod
    def joined(cls, pieces: Sequence[Samples]) -> Samples:
        """Return one piece as it is, and several as a copy."""
        if len(pieces) == 1:
            return pieces[0]
        return cls({use: np.concatenate([each[use] for each in pieces]) for use in pieces[0].fields})


class Collator:
    """Turns stored records into samples.

    The codes of a record lie side by side, and so do its numbers: each group is read as one view, and an
    image is one. Earlier versions stored features ready to use, in any order.
    """

    def __init__(
        self, encoding: Encoding, record: np.dtype[Any], model_codes: Mapping[str, Codes] | None = None
    ) -> None:
        """`model_codes`: for each stored column with codes, what a model reads for each code; without an
        entry, the codes are stored ready to use. Raises DataError when the records lack a column.
        """
        categories = [each for each in encoding.features if each.kind == "categorical"]
        numeric = [each for each in encoding.features if each.kind == "numeric"]
        values = [each for each in numeric if not each.marks_missing]
        self._shaped = [each for each in encoding.fields if each.shape]
        stored = [column_of(each) for each in (*categories, *numeric)]
        _check(record, encoding, stored)
        self._codes = ColumnBlock(record, [column_of(each) for each in categories])
        self._values = ColumnBlock(record, [column_of(each) for each in values])
        self._model_codes = CodeTable.of(categories, model_codes or {})
        self._target_codes = (model_codes or {}).get(TARGET_COLUMN)
        self.has_groups, self._has_target = (
            name in (record.names or ()) for name in (GROUP_COLUMN, TARGET_COLUMN)
        )
        self._weight = encoding.weight if WEIGHT_COLUMN in (record.names or ()) else None
        self._mean = np.array([each.mean for each in values])
        self._sd = np.array([each.sd for each in values])
        # Where each value and each indicator goes among the numbers, and the value that an indicator marks.
        self._places = [index for index, each in enumerate(numeric) if not each.marks_missing]
        self._marks = [
            (index, [column_of(value) for value in values].index(column_of(each)))
            for index, each in enumerate(numeric)
            if each.marks_missing
        ]
        self._width = len(numeric)

    @property
    def target_codes(self) -> Codes | None:
        """The index of the class of each stored target, -1 for a class that train does not contain; None: the
        target is stored ready to use."""
        return self._target_codes

    def collate(self, records: Array) -> Samples:
        """Return records as samples."""
        codes_BC = self._codes.read(records)
        # Codes that are stored ready are copied: torch warns of views of a mapped file, which is read-only.
        codes_BC = codes_BC.copy() if self._model_codes is None else self._model_codes.look_up(codes_BC)
        fields: dict[Use, Array] = {"code": codes_BC, "number": self._numbers(records)}
        if self._has_target:
            target_B = records[TARGET_COLUMN]
            if self._target_codes is not None:
                target_B = self._target_codes[target_B]
            fields["target"] = np.ascontiguousarray(target_B)
        if self._weight is not None:
            fields["weight"] = (records[WEIGHT_COLUMN] / self._weight.mean).astype(np.float32)
        if self.has_groups:
            fields["group"] = np.ascontiguousarray(records[GROUP_COLUMN])
        fields |= {field.use: _with_shape(records, field) for field in self._shaped}
        return Samples(fields)

    def _numbers(self, records: Array) -> Array:
        values_BV = self._values.read(records)
        scaled_BV = np.subtract(values_BV, self._mean)
        scaled_BV /= self._sd
        missing_BV = np.isnan(scaled_BV)
        np.copyto(scaled_BV, 0, where=missing_BV)
        if not self._marks:
            return np.asarray(scaled_BV, np.float32)
        numbers_BF = np.empty((len(records), self._width), np.float32)
        numbers_BF[:, self._places] = scaled_BV
        for place, value in self._marks:
            numbers_BF[:, place] = missing_BV[:, value]
        return numbers_BF


def _check(record: np.dtype[Any], encoding: Encoding, features: Sequence[str]) -> None:
    """Check that the records hold the fields of an encoding and the columns of its features. Raises
    DataError."""
    fields = {each.name for each in encoding.fields}
    if lacking := sorted({*fields, *features} - {*(record.names or ())}):
        raise DataError(f"the data set has no columns {', '.join(lacking)}: run preprocess again")
    if variable := [each.name for each in encoding.fields if each.storage == "variable"]:
        raise DataError(
            f"rows of {', '.join(variable)} differ in length, which this version of Shoestring cannot read"
        )


def _with_shape(records: Array, field: StoredField) -> Array:
    """Return the values of a field that is stored as bytes, as a view: [B, *shape]."""
    values: Array = records[field.name].view(np.dtype(field.dtype).newbyteorder("<"))
    return values.reshape(len(records), *field.shape)


SCANNED_ROWS = 1 << 17


class StoredRows(Protocol):
    """The encoded rows of a split: mapped, in memory, or streamed."""

    dtype: np.dtype[Any]

    @property
    def block_starts(self) -> Positions | None:
        """The first row of each block that is read as a whole, and the number of rows; None: a row is read
        alone."""
        ...

    def __len__(self) -> int: ...

    def take(self, positions: Positions) -> Array: ...

    def scan(self, batch_rows: int) -> Iterator[Array]: ...


class SampleReader:
    """The samples of a split. Rows of classes that train does not contain are left out."""

    def __init__(self, rows: StoredRows, collator: Collator) -> None:
        self._rows, self._collator = rows, collator
        self._kept = self._kept_rows()
        self._blocks = self._block_order()

    def __len__(self) -> int:
        return len(self._rows) if self._kept is None else len(self._kept)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a stored row."""
        return self._rows.dtype.names or ()

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return self._rows.dtype.itemsize

    def subset(self, positions: Positions) -> SampleReader:
        """Return the samples at `positions` (int64, any order) as samples of their own."""
        subset = copy(self)
        subset._kept = positions if self._kept is None else self._kept[positions]
        subset._blocks = subset._block_order()
        return subset

    @property
    def order(self) -> Order:
        """The version of the order in which a new training reads the samples."""
        return 2 if self._blocks is None else 3

    def positions(self, cursor: SampleCursor, epoch: int, start: int, count: int, step: int = 1) -> Positions:
        """Return the samples at `count` positions of an epoch, from `start` on, `step` apart, in the cursor's
        order: int64[count]. Raises ValueError for positions outside the epoch, DataError for an order of
        shards without shards.
        """
        if cursor.order != 3:
            return sample_indices(len(self), cursor.seed, epoch, start, count, cursor.order, step)
        if self._blocks is None:
            raise DataError(
                "the order of this training is that of shards, and its data set has none: start anew"
            )
        return self._blocks.positions(cursor, epoch, start, count, step)

    def of_few_blocks(self, seed: int, count: int) -> Positions:
        """Return `count` streamed samples of as few blocks as possible, in order: int64. More samples include
        fewer."""
        assert self._blocks is not None, "only streamed samples lie in blocks"
        return np.sort(self._blocks.first_samples(seed, count))

    def shuffle_quality(self, seed: int) -> float:
        """Return how well the order of a training mixes, up to 1, that of a uniform shuffle
        (`BlockOrder.quality`)."""
        return 1.0 if self._blocks is None else self._blocks.quality(seed)

    def _block_order(self) -> BlockOrder | None:
        starts = self._rows.block_starts
        if starts is None:
            return None
        window = window_blocks(starts, self.row_bytes)
        return BlockOrder(starts if self._kept is None else np.searchsorted(self._kept, starts), window)

    @property
    def unit_count(self) -> int:
        """The independent units that the rows are: the groups that the split kept together, or each row."""
        if not self._collator.has_groups:
            return len(self)
        starts = range(0, len(self), SCANNED_ROWS)
        blocks = (np.arange(start, min(start + SCANNED_ROWS, len(self))) for start in starts)
        return len(np.unique(np.concatenate([self.read(each)[GROUP_COLUMN] for each in blocks])))

    def read(self, positions: Positions) -> Array:
        """Return the records at `positions` (int64[B], any order, repeats allowed).

        Raises IndexError for a position outside the samples.
        """
        return self._rows.take(positions if self._kept is None else self._kept[positions])

    def collate(self, records: Array) -> Samples:
        """Return records as samples."""
        return self._collator.collate(records)

    def take(self, positions: Positions) -> Samples:
        """Return the samples at `positions`, like `read`."""
        return self.collate(self.read(positions))

    def scan(self, batch_rows: int) -> Iterator[Samples]:
        """Yield all samples in order, at most `batch_rows` at a time."""
        if self._kept is None:
            yield from map(self._collator.collate, self._rows.scan(batch_rows))
            return
        for start in range(0, len(self._kept), batch_rows):
            yield self._collator.collate(self._rows.take(self._kept[start : start + batch_rows]))

    def targets(self) -> tuple[Array, Array | None]:
        """Return the targets of all samples in order, and their weights; None: all are 1."""
        found = [(each["target"], each.weights) for each in self.scan(SCANNED_ROWS)]
        weights = [weights for _, weights in found if weights is not None]
        return np.concatenate([target for target, _ in found]), np.concatenate(weights) if weights else None

    def _kept_rows(self) -> Positions | None:
        codes = self._collator.target_codes
        if codes is None or not (codes < 0).any():
            return None
        known = np.concatenate(
            [codes[records[TARGET_COLUMN]] >= 0 for records in self._rows.scan(SCANNED_ROWS)]
        )
        return None if known.all() else np.flatnonzero(known)
