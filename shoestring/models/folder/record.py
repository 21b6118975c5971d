"""The record of a model's folder, and the digests of its files."""

from __future__ import annotations

from pydantic import Field

from shoestring.core.record import StoredRecord
from shoestring.data.recipe import Recipe
from shoestring.models.inputs import ModelInputs
from shoestring.training.model_record import ModelRecord

MODEL_FILE, DICTIONARIES_FILE, LINEAGE_FILE, DIGESTS_FILE = (
    "model.json",
    "dictionaries.arrow",
    "lineage.json",
    "SHA256SUMS",
)
WEIGHTS_FOLDER, TABLES_FOLDER = "weights", "tables"

MAX_TABLES_BYTES = 50_000_000
"""Joined tables of more bytes together stay out of the folder, the largest first."""


class ModelFolderRecord(StoredRecord):
    """A model with all that it needs to predict raw rows. `model.json` of its folder."""

    model: ModelRecord
    recipe: Recipe
    inputs: ModelInputs
    target_type: str = Field(description="Arrow type of the target's column in the source")
    tables: tuple[str, ...] = Field((), description="the joined tables that are in the folder")
