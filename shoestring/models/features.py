"""Compute the features of raw rows, with the functions that encoded the rows of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.datasets import IMAGE_COLUMN, Encoding
from shoestring.data.formats.dictionaries import read_dictionaries, read_model_codes
from shoestring.data.formats.packed import pack, record_type
from shoestring.data.loading.record_columns import column_of
from shoestring.data.loading.samples import Collator, Samples
from shoestring.data.transforms.dates import with_date_parts, with_elapsed
from shoestring.data.transforms.encode import Dictionary, encoded_name, number_values
from shoestring.data.transforms.hashing.hashed_text import with_hashed_texts
from shoestring.models.inputs import ModelInputs

MAX_UNKNOWN_SHARE = 0.05
"""A larger share of values that the model does not know is worth a sentence."""


@dataclass(slots=True)
class UnknownValues:
    """The values of a category that the model does not know: it has code 0 for them, as for a missing one."""

    rows: int = 0
    unknown: int = 0
    example: str = ""

    @property
    def share(self) -> float:
        return self.unknown / self.rows if self.rows else 0.0


Unknown = dict[str, UnknownValues]
"""By category."""


@dataclass(frozen=True, slots=True)
class Features:
    """Computes the features of one model."""

    encoding: Encoding
    inputs: ModelInputs
    collator: Collator
    numbers: tuple[str, ...]
    dictionaries: Mapping[str, Dictionary]

    @classmethod
    def of(cls, encoding: Encoding, inputs: ModelInputs, dictionaries: Path, most: int) -> Features:
        """`dictionaries`: the file. `most`: values of a category that have a code of their own. Raises
        DataError for a damaged file."""
        values, codes = read_dictionaries(dictionaries), read_model_codes(dictionaries)
        of_kind = {
            kind: tuple(dict.fromkeys(column_of(each) for each in encoding.features if each.kind == kind))
            for kind in ("numeric", "categorical")
        }
        categories = of_kind["categorical"]
        known = {name: values[name].values if name in values else () for name in categories}
        columns: list[tuple[str, pa.DataType]] = [(name, pa.float64()) for name in of_kind["numeric"]]
        columns += [(name, pa.int32()) for name in categories]
        images = encoding.of_use("image")
        columns += [(IMAGE_COLUMN, pa.binary(int(np.prod(each.shape)))) for each in images]
        read = encoding.model_copy(update={"fields": images})
        return cls(
            encoding,
            inputs,
            Collator(read, record_type(pa.schema(columns)), codes),
            of_kind["numeric"],
            {name: Dictionary(known[name], most, grows=False) for name in categories},
        )

    def read(self, table: pa.Table, unknown: Unknown) -> Samples:
        """Return the samples of joined raw rows, without a target, and add to the counts of unknown
        values."""
        table = with_elapsed(with_date_parts(table, self.inputs.dates), self.inputs.dates, self.numbers)
        table = with_hashed_texts(table, self.inputs.texts)
        stored = {encoded_name(name): table[name] for name in table.column_names}
        columns: dict[str, pa.Array] = {name: pa.array(number_values(stored[name])) for name in self.numbers}
        columns |= {
            name: pa.array(dictionary.encode(stored[name])) for name, dictionary in self.dictionaries.items()
        }
        if IMAGE_COLUMN in stored:
            columns[IMAGE_COLUMN] = stored[IMAGE_COLUMN]
        encoded = pa.table(columns)
        records = np.empty(table.num_rows, record_type(encoded.schema))
        pack(encoded, records)
        samples = self.collator.collate(records)
        self._count(stored, samples, unknown)
        return samples

    def _count(self, stored: Mapping[str, pa.ChunkedArray], samples: Samples, found: Unknown) -> None:
        names = [each.name for each in self.encoding.features if each.kind == "categorical"]
        for at, name in enumerate(names):
            values, counted = stored[name], found.setdefault(name, UnknownValues())
            unknown = (samples["code"][:, at] == 0) & np.asarray(pc.is_valid(values).combine_chunks())
            counted.rows += len(unknown)
            if unknown.any():
                counted.unknown += int(unknown.sum())
                counted.example = counted.example or str(values[int(np.flatnonzero(unknown)[0])].as_py())


def unknown_notes(unknown: Unknown, texts: Sequence[str]) -> list[str]:
    """Return a sentence for each category of which the model does not know enough values. `texts`: the
    columns whose words it reads, too."""
    return [
        f"column {name}: {100 * each.share:.1f}% of {each.rows:,} values are unknown to the model, such "
        f"as {each.example!r}: read {'by their words alone' if name in texts else 'as missing'}"
        for name, each in unknown.items()
        if each.share > MAX_UNKNOWN_SHARE
    ]
