"""A model that predicts raw rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import Encoding
from shoestring.core.errors import DataError, UsageError
from shoestring.core.types import Format
from shoestring.data.formats.readers import read_table
from shoestring.data.loading.samples import Samples
from shoestring.models.features import Features, Unknown, unknown_notes
from shoestring.models.folder.read_folder import ModelFolder, read_folder
from shoestring.models.folder.record import DICTIONARIES_FILE, TABLES_FOLDER
from shoestring.models.raw_columns import RawColumn
from shoestring.models.row_inputs import RowInputs, read_joined_table
from shoestring.training.contracts import Predictor
from shoestring.training.families.registry import family_of
from shoestring.training.losses.scores import Array, calibrated, class_weights

PREDICTION, PROBABILITY = "prediction", "probability_"


class FittedModel:
    """A model of a folder. It predicts a class for each row, with the probability of each, or a number."""

    def __init__(self, folder: ModelFolder) -> None:
        """Raises DataError: the weights cannot be read; UsageError: a library is missing, or the model is one
        of texts."""
        self.folder, self.record = folder, folder.record
        self.encoding: Encoding = self.record.model.encoding
        if self.encoding.vocabulary is not None:
            raise UsageError(
                f"{folder.path} is a model of texts, which predicts the next token: rows are predicted by "
                "models of tables and images"
            )
        self._predictor, inputs = _predictor(folder), self.record.inputs
        dictionaries, most = folder.path / DICTIONARIES_FILE, self.record.recipe.max_categories
        self._features = Features.of(self.encoding, inputs, dictionaries, most)
        self._tables = {
            name: read_table(folder.path / TABLES_FOLDER / f"{name}.parquet", Format.PARQUET)
            for name in self.record.tables
        }

    def read_table(self, name: str, table: pa.Table) -> pa.Table:
        """Return a table for a join as the model knows it. Raises UsageError for a table that no join names;
        DataError for a column that is missing or of another type."""
        joined = self.record.inputs.joined
        if name not in joined:
            raise UsageError(f"the model joins no table {name!r}: it joins {', '.join(joined) or 'none'}")
        return read_joined_table(self.record.inputs, name, table)

    def reader(self, columns: Sequence[str], place: str, tables: Mapping[str, pa.Table]) -> Rows:
        """Return what predicts the rows of one file or frame. `tables`: read by `read_table`, instead of
        those of the folder. Raises DataError for missing columns."""
        inputs = self.record.inputs
        rows = RowInputs(inputs, columns, place, {**self._tables, **tables}, self.record.recipe.image)
        return Rows(self, rows)

    def predict(self, rows: pa.Table, unknown: Unknown) -> Array:
        """Return the predictions of joined raw rows, and add to the counts of unknown values."""
        return self.predict_samples(self.encode(rows, unknown))

    def encode(self, rows: pa.Table, unknown: Unknown) -> Samples:
        """Return joined raw rows as the model reads them, and add to the counts of unknown values."""
        return self._features.read(rows, unknown)

    def predict_samples(self, samples: Samples) -> Array:
        """Return the predictions of encoded rows, as `Predictor` does, calibrated."""
        step = self._predictor.rows_at_once
        if not len(samples):
            return np.zeros((0, len(self.encoding.classes)) if self.encoding.classes else 0)
        found = [
            self._predictor.predict(samples.part(start, start + step))
            for start in range(0, len(samples), step)
        ]
        return calibrated(np.concatenate(found), self.encoding, self.record.model.inverse_temperature)

    def as_columns(self, predicted: Array) -> dict[str, pa.Array]:
        """Return predictions as columns: the class or the number, and the probability of each class."""
        if self.encoding.task == "regression":
            return {PREDICTION: pa.array(predicted)}
        classes = self._classes()
        chosen = pa.array(self._judged(predicted).argmax(axis=1))
        return {
            PREDICTION: classes.take(chosen),
            **{
                f"{PROBABILITY}{name}": pa.array(np.ascontiguousarray(predicted[:, at]))
                for at, name in enumerate(self.encoding.classes)
            },
        }

    def _judged(self, predicted_BK: Array) -> Array:
        """Return probabilities as they are compared: where classes count the same, relative to their shares
        in train."""
        return predicted_BK * class_weights(self.encoding) if self.encoding.loss.balanced else predicted_BK

    def _classes(self) -> pa.Array:
        """Return the classes in the type that the target has in the source; whether it is above a number, and
        classes that are written otherwise, as text."""
        names = pa.array(self.encoding.classes, pa.string())
        try:
            return names.cast(RawColumn(name="", type=self.record.target_type).arrow_type)
        except pa.ArrowException:
            return names


class Rows:
    """Predicts the rows of one file or frame, batch by batch."""

    def __init__(self, model: FittedModel, inputs: RowInputs) -> None:
        self._model, self._inputs = model, inputs
        self.unknown: Unknown = {}

    def predict(self, table: pa.Table) -> dict[str, pa.Array]:
        """Return the predictions of a batch as columns. Raises DataError for a column of another type."""
        return self._model.as_columns(self._model.predict(self._inputs.read(table), self.unknown))

    def encode(self, table: pa.Table) -> Samples:
        """Return a batch as the model reads it. Raises DataError for a column of another type."""
        return self._model.encode(self._inputs.read(table), self.unknown)

    def check(self) -> None:
        """Raise DataError when the values of a column were too often of another kind."""
        self._inputs.check()

    @property
    def notes(self) -> list[str]:
        """Sentences about values that were read as missing."""
        return [*self._inputs.notes, *unknown_notes(self.unknown, self._model.record.inputs.texts)]


def joined_columns(kept: Mapping[str, Any], predicted: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns that are kept, and those of predictions. Raises UsageError for a name that is both."""
    if both := kept.keys() & predicted.keys():
        raise UsageError(f"{min(both)} is the name of a column of predictions: rename it to keep it")
    return {**kept, **predicted}


def _predictor(folder: ModelFolder) -> Predictor:
    model = folder.record.model
    family = family_of(model.settings)
    try:
        return family.predictor(model.encoding, family.from_files(folder.weights))
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a model of the family {model.settings.family} needs {error.name}: "
            "pip install 'shoestring[train]'"
        ) from None
    except Exception as error:
        # Each library has its own errors for damaged files.
        raise DataError(
            f"the weights in {folder.path} cannot be read as those of the family {model.settings.family}: "
            f"{error}"
        ) from None


def model_at(path: Path) -> FittedModel:
    """Return the model of a folder. Raises UsageError and DataError."""
    return FittedModel(read_folder(path))
