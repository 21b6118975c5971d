"""Choose the files of a source of texts, and estimate their size."""

from __future__ import annotations

from collections.abc import Sequence

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.source import TextSettings
from shoestring.data.sources.data_file import DataFile, unpacked_bytes
from shoestring.data.sources.folders.hidden import is_hidden

SUFFIXES = (".txt", ".md", ".rst", ".py")

MIN_DOCUMENTS = 3


def is_text(file: DataFile) -> bool:
    """Return whether a file of a folder holds text, by its name. Hidden files and those of hidden folders do
    not; in Python's packages, names that begin with `_` are ordinary ones."""
    plain = file.name.lower().removesuffix(".gz").removesuffix(".zip")
    return plain.endswith(SUFFIXES) and not is_hidden(file.name)


def require_texts(found: Sequence[DataFile], place: object) -> tuple[DataFile, ...]:
    """Return the files of texts. Raises RecipeError when there are none."""
    if not found:
        raise RecipeError(
            f"{place} does not contain a file whose name ends in {', '.join(SUFFIXES)}, or one of these with "
            ".gz or .zip: change `path` in the recipe, or name one file of text there"
        )
    return tuple(found)


def text_size(settings: TextSettings, files: Sequence[DataFile]) -> tuple[int, int]:
    """Return the expected rows of tokens, and the bytes of all files. Of tables these are those of all
    columns, so there may be fewer rows. Raises DataError."""
    require_documents(settings, files)
    size_bytes = sum(map(unpacked_bytes, files))
    return settings.expected_rows(size_bytes), size_bytes


def require_documents(settings: TextSettings, files: Sequence[DataFile]) -> None:
    """Raise DataError when there are too few documents for training, validation and test."""
    if not settings.separator and not settings.column and len(files) < MIN_DOCUMENTS:
        raise DataError(
            f"there {'is 1 document' if len(files) == 1 else f'are {len(files)} documents'}, a file each: "
            "training, validation and test need at least one each; set `text.separator` to divide files into "
            r'documents, such as "\n\n" for paragraphs'
        )
