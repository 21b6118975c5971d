"""Read the folder of a model, and check that it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from shoestring.core.errors import DataError, UsageError
from shoestring.core.record import validation_message
from shoestring.data.storage.blobs import file_digest
from shoestring.models.folder.record import DIGESTS_FILE, MODEL_FILE, WEIGHTS_FOLDER, ModelFolderRecord

PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
"""The first bytes of a pickle, and of torch's files, which hold one."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A whole folder."""

    path: Path
    record: ModelFolderRecord
    weights: Mapping[str, bytes]
    """The files of the weights by name."""


def find_folder(path: Path) -> Path | None:
    """Return the folder of the model at `path`, or of the run whose files are there; None without one."""
    found = (each for each in (path, path / "model") if (each / DIGESTS_FILE).is_file())
    return next(found, None)


def read_folder(path: Path) -> ModelFolder:
    """Read a model's folder.

    Raises UsageError: there is none; DataError: a file is missing or changed, or is a pickle, which could run
    any program when it is loaded.
    """
    folder = find_folder(path)
    if folder is None:
        raise UsageError(f"{path} is no folder of a model: it has no file {DIGESTS_FILE}")
    digests = read_digests(folder / DIGESTS_FILE)
    for name, sha256 in digests.items():
        if not (folder / name).is_file():
            raise DataError(f"{folder} lacks {name}: copy the whole folder again, or export the run again")
        if name.startswith(f"{WEIGHTS_FOLDER}/") and _is_pickle(folder / name):
            raise DataError(
                f"{folder / name} is a pickle, which can run any program when it is loaded: none is ever "
                "loaded"
            )
        if file_digest(folder / name) != sha256:
            raise DataError(
                f"{folder / name} was changed after it was written: its digest is not that in "
                f"{DIGESTS_FILE}; copy the folder again, or export the run again"
            )
    try:
        record = ModelFolderRecord.model_validate_json((folder / MODEL_FILE).read_bytes())
    except ValidationError as error:
        raise DataError(
            f"{folder / MODEL_FILE} is not readable: {validation_message(error)}; use the version of "
            "Shoestring that wrote it"
        ) from None
    start = f"{WEIGHTS_FOLDER}/"
    weights = {
        name.removeprefix(start): (folder / name).read_bytes() for name in digests if name.startswith(start)
    }
    return ModelFolder(folder, record, weights)


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(9)
    # A file of safetensors begins with the size of its JSON, in eight bytes, which may be any.
    return start.startswith(PICKLES) and start[8:] != b"{"


def read_digests(path: Path) -> dict[str, str]:
    """Return the digest of each file. Raises DataError."""
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        sha256, _, name = line.partition("  ")
        if not name or ".." in Path(name).parts or Path(name).is_absolute():
            raise DataError(f"{path} is damaged: {line[:80]!r} is no digest of a file")
        found[name] = sha256
    if MODEL_FILE not in found:
        raise DataError(f"{path} is damaged: it does not list {MODEL_FILE}")
    return found
