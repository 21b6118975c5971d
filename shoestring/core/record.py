"""Frozen records, their one way of being written down, and the version of everything that is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from shoestring.core.canonical_json import json_text
from shoestring.core.errors import RecipeError
from shoestring.core.store_layout import MAX_PART_BYTES, is_key

SCHEMA_VERSION: Final = 5
"""The version of every stored object, world file and compiled pipeline.

It rises when one of them changes its form.
"""
SchemaVersion = Literal[4, 5]
"""The versions that are read: this one and the one before.

A record of version 4 needs no translation, but for a training: its curve is read as it is, and its checkpoint
is refused.
"""


class Record(BaseModel):
    """A frozen value. Unknown fields are refused, so that a misspelt setting is never ignored."""

    # Validators are built at first use: a process builds those of the records that it handles, not all.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class StoredRecord(Record):
    """A record that is stored or compiled, with the version in which it was written."""

    schema_version: SchemaVersion = SCHEMA_VERSION


Count = Annotated[int, Field(ge=0, le=10**15)]
"""A number of rows or samples as a stage reports it: none has so many that arithmetic on it overflows."""


def check_name(name: str) -> str:
    """Return a name that people write and that becomes a part of keys. Raises ValueError."""
    if not is_key(name):
        raise ValueError(
            f"{name[:MAX_PART_BYTES]!r} cannot be a name: it becomes a part of the store's keys, so no '..', "
            "backslash, double slash or control character"
        )
    return name


KeyName = Annotated[str, AfterValidator(check_name)]
"""A name that may be any text, as long as keys of the store can contain it."""


def utc_text(moment: datetime) -> str:
    """Return a moment in the form that all records use: UTC, milliseconds, Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def record_bytes(record: BaseModel) -> bytes:
    """Return a record as JSON with sorted keys: equal values give equal bytes."""
    return (json_text(record.model_dump(mode="json")) + "\n").encode()


def digest(data: bytes) -> str:
    """Return the SHA-256 digest, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def validation_message(
    error: ValidationError, sentence: Callable[[ErrorDetails], str] = lambda found: found["msg"]
) -> str:
    """Return the errors of a validation as `field: message`, joined by semicolons.

    `sentence` makes the message of one error. A record of another schema version differs in many fields: then
    the version is all that the message names.
    """
    for found in error.errors():
        if found["loc"] and found["loc"][-1] == "schema_version":
            return other_version("2 or older" if found["type"] == "missing" else found["input"])
    return "; ".join(
        f"{'.'.join(str(step) for step in found['loc']) or 'the file'}: {sentence(found)}"
        for found in error.errors()
    )


def other_version(found: object) -> str:
    """Return the sentence that refuses what another version of Shoestring wrote."""
    return (
        f"schema version {found} is not readable: this version of Shoestring reads schema versions "
        f"{' and '.join(map(str, get_args(SchemaVersion)))}"
    )


def argument_json(value: BaseModel | Mapping[str, Any], *, exclude_defaults: bool = False) -> str:
    """Return a value as JSON that an engine passes on as it is.

    It holds no `{{`, at which Argo and KFP begin a template of their own: in JSON, only strings can have one.
    """
    text = (
        value.model_dump_json(exclude_defaults=exclude_defaults)
        if isinstance(value, BaseModel)
        else json.dumps(value, separators=(",", ":"))
    )
    return text.replace("{{", r"{\u007b")


Argument = TypeVar("Argument", bound=Record)


def parse_argument(name: str, text: str, record_type: type[Argument]) -> Argument:
    """Return the record that an engine passed as JSON. Raises RecipeError."""
    try:
        return record_type.model_validate_json(text)
    except ValidationError as error:
        raise RecipeError(f"{name}, as JSON: {validation_message(error)}") from None
