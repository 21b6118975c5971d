"""Records of version 4 are read in the form of today."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from shoestring.core.datasets import Encoding, Manifest, StoredField
from shoestring.core.record import SCHEMA_VERSION, record_bytes
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.model_record import ModelRecord

IMAGE = {"name": "_image", "dtype": "uint8", "shape": [1, 4, 6], "role": "image"}
TOKENS = {"name": "_tokens", "dtype": "uint16", "shape": [16], "role": "tokens"}


def manifest(columns: dict[str, str], fields: list[dict[str, Any]]) -> dict[str, Any]:
    encoding = {"features": [], "task": "binary", "classes": ["a", "b"]} | (
        {"fields": fields} if fields else {}
    )
    return {
        "schema_version": 4,
        "name": "old",
        "format": "packed",
        "columns": columns,
        "splits": {},
        "rows": 0,
        "row_bytes": 32,
        "size_bytes": 0,
        "settings_sha256": "",
        "encoding": encoding,
    }


def test_the_columns_of_an_encoded_data_set_become_fields() -> None:
    columns = {"size": "double", "old": "float", "kind": "int32", "y": "int32", "_group": "int32"}
    found = Manifest.model_validate(manifest(columns, []))
    assert found.encoding is not None and not found.columns
    assert [(each.name, each.dtype, each.use) for each in found.encoding.fields] == [
        ("size", "float64", "number"),
        ("old", "float32", "number"),
        ("kind", "int32", "code"),
        ("y", "int32", "target"),
        ("_group", "int32", "group"),
    ]
    assert found.schema_version == SCHEMA_VERSION
    assert Manifest.model_validate_json(record_bytes(found)) == found


@pytest.mark.parametrize("field", [IMAGE, TOKENS])
def test_fields_with_a_shape_keep_it_and_their_role_is_their_use(field: dict[str, Any]) -> None:
    columns = {"y": "float", field["name"]: "fixed_size_binary[24]"}
    found = Manifest.model_validate(manifest(columns, [field])).encoding
    assert found is not None
    (shaped,) = found.of_use(field["role"])
    assert shaped == StoredField(
        name=field["name"], dtype=field["dtype"], shape=field["shape"], use=field["role"]
    )
    assert Encoding.model_validate(manifest(columns, [field])["encoding"]).fields == (shaped,)


def test_raw_data_keeps_its_columns() -> None:
    raw = manifest({"rows.when": "timestamp[us]"}, []) | {"encoding": None}
    assert Manifest.model_validate(raw).columns == {"rows.when": "timestamp[us]"}


def test_a_column_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="column size is of type string: encoded columns are int32"):
        Manifest.model_validate(manifest({"size": "string"}, []))


def test_a_model_of_texts_is_of_the_family_of_texts() -> None:
    vocabulary = {"kind": "bytes", "size": 256, "start": 1, "padding": 2, "bytes_per_token": 1.0}
    encoding = {"features": [], "fields": [TOKENS], "task": "next_token", "vocabulary": vocabulary}
    found = ModelRecord.model_validate(
        {
            "schema_version": 4,
            "run_id": "old",
            "weights_sha256": "",
            "dataset_key": "",
            "encoding": encoding,
            "settings": {"hidden": [16, 16], "bins": 16, "dropout": 0.1},
            "seed": 0,
            "samples": 0,
            "epochs": 0,
            "training_s": 0,
            "cores": 1,
            "val_loss": None,
            "weights_source": "prior",
            "stop_reason": "",
            "data_wait_share": 0,
            "sample_ranges": [],
        }
    )
    assert found.settings == TextNetSettings(hidden=(16, 16), dropout=0.1)
    assert ModelRecord.model_validate_json(record_bytes(found)) == found
