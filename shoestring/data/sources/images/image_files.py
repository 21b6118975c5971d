"""Find the files of a source of images: a folder of them, IDX files, or tables with images or their paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shoestring.core.errors import RecipeError
from shoestring.core.interfaces import RemoteSources
from shoestring.data.source import Source
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.folders.hidden import is_visible
from shoestring.data.sources.parquet_reader import typed_columns
from shoestring.data.sources.remote.fetch import FetchFolder
from shoestring.data.sources.remote.remote_file import RemoteFile

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")

TYPED = ("parquet", "arrow")

IDX = re.compile(r"idx\d-ubyte(\.gz)?$")
"""The names of IDX files, such as train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz."""


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """The files of a source of images, by what they hold. Names are relative to the folder."""

    tables: tuple[DataFile, ...]
    idx_images: tuple[DataFile, ...]
    idx_labels: tuple[DataFile, ...]
    images: tuple[DataFile, ...]

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> ImageFiles:
        idx = [file for file in files if IDX.search(file.name)]
        return cls(
            tables=tuple(file for file in files if file.kind),
            idx_images=tuple(file for file in idx if "images" in file.name),
            idx_labels=tuple(file for file in idx if "labels" in file.name),
            images=tuple(file for file in files if file.suffix in SUFFIXES),
        )


def list_image_files(
    source: Source, remote: RemoteSources, fetched: FetchFolder | None
) -> tuple[DataFile, ...]:
    """Return the files of a source of images: images; IDX files; or a table, or the Parquet and Arrow files
    of a folder, and all images in the folder.

    Raises RecipeError when there are none, DataError, and what RemoteSources raises.
    """
    if source.url is not None and source.url.startswith("http"):
        return (_web_file(source, remote, fetched),)
    place, named, found = (
        _remote_files(source.url, remote, fetched) if source.url is not None else _local_files(source)
    )
    files = ImageFiles.of(sorted(found, key=lambda file: file.name))
    if named and DataFile(named.place, named.name).kind:
        return (named, *files.images)
    if named and IDX.search(named.name):
        pair = [each for each in (*files.idx_images, *files.idx_labels) if _pair(each) == _pair(named)]
        return tuple(pair)
    typed = [each for each in files.tables if each.kind in TYPED]
    if not named and typed and (not files.images or _holds_images(typed[0], source)):
        return (*typed, *files.images)
    if files.idx_images:
        return (*files.idx_images, *files.idx_labels)
    if named or not files.images:
        raise RecipeError(
            f"{place} is no folder of images ({', '.join(SUFFIXES)}), of IDX files or of Parquet files with "
            "images in a column, and no table with a column of paths: correct `path` or `url`, or remove "
            "`image`"
        )
    return files.images


def idx_pairs(files: ImageFiles) -> Iterator[tuple[DataFile, DataFile]]:
    """Yield each IDX file of images with its labels. Raises RecipeError where one has none."""
    labels = {_pair(file): file for file in files.idx_labels}
    for images in files.idx_images:
        if (found := labels.get(_pair(images))) is None:
            raise RecipeError(
                f"{images.name} has no file of labels beside it: put "
                f"{images.name.replace('images', 'labels').replace('idx3', 'idx1')} into the same folder"
            )
        yield images, found


def _pair(file: DataFile) -> str:
    plain = file.name.removesuffix(".gz").replace("labels", "images")
    return re.sub(r"idx\d", "idx", plain)


def _local_files(source: Source) -> tuple[object, DataFile | None, list[DataFile]]:
    """Return the place, the file that it is (None: a folder), and all files of its folder."""
    place = source.locate()
    if not place.exists():
        raise RecipeError(
            f"there is no file or folder {place}: change `path` in the recipe, or put the data there"
        )
    folder = place if place.is_dir() else place.parent
    found = [
        DataFile(path, path.relative_to(folder).as_posix())
        for path in folder.rglob("*")
        if path.is_file() and is_visible(path.relative_to(folder).as_posix())
    ]
    return place, None if place.is_dir() else DataFile(place, place.name), found


def _holds_images(file: DataFile, source: Source) -> bool:
    """Return whether the column of images has their bytes, and not their paths. Raises DataError."""
    assert source.image is not None
    why = typed_columns(file).left_out.get(source.image.column)
    return why is not None and why.holds_bytes


def _web_file(source: Source, remote: RemoteSources, fetched: FetchFolder | None) -> DataFile:
    """Return the table of a web server, which has the images in it. Raises RecipeError, DataError."""
    assert source.url is not None
    if DataFile(Path(), source.url).kind in TYPED:
        (found,) = remote.list(source.url)
        file = DataFile(RemoteFile(found, remote, fetched), found.name)
        if _holds_images(file, source):
            return file
    raise RecipeError(
        f"{source.url}: a web server does not list its files, so images cannot be found there, but for those "
        "in a Parquet or Arrow file, in the column of bytes that `image.column` names: use s3:// or gs://, "
        "or download them, and name their `path`"
    )


def _remote_files(
    url: str, remote: RemoteSources, fetched: FetchFolder | None
) -> tuple[str, DataFile | None, list[DataFile]]:
    found = [DataFile(RemoteFile(each, remote, fetched), each.name) for each in remote.list(url)]
    if len(found) != 1 or not isinstance(place := found[0].place, RemoteFile) or place.found.url != url:
        return url, None, [file for file in found if is_visible(file.name)]
    folder = url.rpartition("/")[0]
    beside = [DataFile(RemoteFile(each, remote, fetched), each.name) for each in remote.list(folder)]
    return url, replace(found[0], name=url.rpartition("/")[2]), beside
