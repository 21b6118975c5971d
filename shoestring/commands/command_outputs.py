"""The outputs of a command: short texts in files, which its pipeline passes on."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from shoestring.config.engines import Engine
from shoestring.core import store_layout
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.data.job import Command
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import put_blob

MAX_BYTES = 65_536
"""Kubeflow and Argo keep outputs in records of the cluster, which hold 256 KiB or a megabyte in all."""


class CommandOutputs(StoredRecord):
    """The outputs of a command that has ended well, by name."""

    texts: dict[str, str] = Field({})

    @property
    def metrics(self) -> dict[str, float]:
        """Those that are finite numbers."""
        return {name: number for name, text in self.texts.items() if (number := as_number(text)) is not None}

    def save(self, store: Store) -> str:
        """Store them and return the key; an empty one where there are none. Raises StoreFull."""
        return store_layout.blob(put_blob(store, record_bytes(self))) if self.texts else ""


def as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def read_outputs(command: Command) -> CommandOutputs:
    """Return the outputs that a command has written.

    Raises DataError: one is missing, or is no short text.
    """
    texts = {name: read_output(name, Path(path)) for name, path in command.outputs.items()}
    return CommandOutputs(texts=texts)


def read_output(name: str, path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"the command ended without its output {name}: it has to write the file {path} ({error.strerror})"
        ) from None
    if len(data) > MAX_BYTES:
        raise DataError(
            f"the output {name} has {len(data):,} bytes, and at most {MAX_BYTES:,} can be passed on: write a "
            "file to $SHOESTRING_CHECKPOINTS or to a store, and pass its name"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"the output {name} is no text in UTF-8: {error}") from None


def write_outputs(command: Command, store: Store, key: str, engine: Engine) -> None:
    """Write the outputs that an attempt has stored under `key` to the files of this pod's command, for its
    engine to read: the next stage gets each text without one newline at its end.

    Another pod of the same attempt may have run it.
    """
    if not command.outputs:
        return
    texts = read_record(store, key, CommandOutputs).texts
    for name, path in command.outputs.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Argo takes a newline off what it reads, and Kubeflow does not.
        Path(path).write_text(texts[name] if engine == "argo" else texts[name].removesuffix("\n"))
