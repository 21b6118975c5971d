"""Open the files of a source as a table, by their kind."""

from __future__ import annotations

from collections.abc import Sequence

from shoestring.data.source import Source, TextSettings
from shoestring.data.sources.csv_reader import open_csv_table
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.documents.table_texts import TableTexts
from shoestring.data.sources.documents.text_documents import TextDocuments
from shoestring.data.sources.images.image_tables import open_image_table
from shoestring.data.sources.json_reader import open_json_table
from shoestring.data.sources.parquet_reader import TypedTable
from shoestring.data.sources.table import FilesTable, SourceTable
from shoestring.data.sources.text.fixed_kinds import NOT_FIXED, FixedKinds


def open_source(source: Source, files: Sequence[DataFile], fixed: FixedKinds = NOT_FIXED) -> SourceTable:
    """Open the files of a source, which are a table, images or texts. Raises RecipeError, DataError."""
    if source.image is not None:
        return open_image_table(source.image, files, lambda found: open_table(found, fixed))
    if source.text is not None:
        return open_texts(source.text, files)
    return open_table(files, fixed)


def open_texts(settings: TextSettings, files: Sequence[DataFile]) -> TextDocuments:
    """Open the documents in files of text, or in a column of tables. Raises RecipeError, DataError."""
    if settings.column:
        return TableTexts(settings, files, lambda file: open_table([file]))
    return TextDocuments(settings, files)


def open_table(files: Sequence[DataFile], fixed: FixedKinds = NOT_FIXED) -> FilesTable:
    """Open the files of one table, which are all of one kind. Columns of text may have `fixed` kinds. Raises
    DataError.
    """
    match files[0].kind:
        case "parquet" | "arrow":
            return TypedTable(files, fixed)
        case "json":
            return open_json_table(files, fixed)
        case _:
            return open_csv_table(files, fixed)
