"""Open the files of a source as a table, by their kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoestring.data.source import ImageSettings, Source, TextSettings
from shoestring.data.sources.csv_reader import open_csv_table
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.documents.table_texts import TableTexts
from shoestring.data.sources.documents.text_documents import TextDocuments
from shoestring.data.sources.images.image_bytes import ImageBytes
from shoestring.data.sources.images.image_files import ImageFiles
from shoestring.data.sources.images.image_tables import IdxImages, ImageFolder, ImagePaths
from shoestring.data.sources.json_reader import open_json_table
from shoestring.data.sources.parquet_reader import TypedTable
from shoestring.data.sources.table import FilesTable, SourceTable
from shoestring.data.sources.text.fixed_kinds import NOT_FIXED, FixedKinds
from shoestring.data.sources.typed.arrow_types import LeftOut


def open_source(source: Source, files: Sequence[DataFile], fixed: FixedKinds = NOT_FIXED) -> SourceTable:
    """Open the files of a source, which are a table, images or texts. Raises RecipeError, DataError."""
    if source.image is not None:
        return open_images(source.image, files, fixed)
    if source.text is not None:
        return open_texts(source.text, files)
    return open_table(files, fixed)


def open_images(
    settings: ImageSettings, files: Sequence[DataFile], fixed: FixedKinds = NOT_FIXED
) -> SourceTable:
    """Open image files, IDX files, or a table with a column of images or their paths. Raises RecipeError,
    DataError.
    """
    found = ImageFiles.of(files)
    if not found.tables:
        return IdxImages(found) if found.idx_images else ImageFolder(found.images)
    table = open_table(found.tables, fixed)
    left_out = left_out_of({"": table}).get(settings.column)
    if isinstance(table, TypedTable) and left_out is not None and left_out.holds_bytes:
        return ImageBytes(table, found.images, settings.column)
    return ImagePaths(table, found.images, settings.column)


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


def left_out_of(tables: Mapping[str, object]) -> dict[str, LeftOut]:
    """Return the columns that are left out of these tables."""
    own = [table.table if isinstance(table, ImagePaths) else table for table in tables.values()]
    typed = (table for table in own if isinstance(table, TypedTable))
    return {name: why for table in typed for name, why in table.left_out.items()}
