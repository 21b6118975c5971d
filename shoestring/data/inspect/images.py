"""The sizes of the images of a recipe, and a guess which column of a table has images, from a few of them."""

from __future__ import annotations

import warnings
from collections import Counter
from statistics import median

import numpy as np

from shoestring.data.inspect.page_records import ImageEntry
from shoestring.data.source import ImageSettings
from shoestring.data.sources.images.image_bytes import ImageBytes
from shoestring.data.sources.images.image_tables import IdxImages, ImageFolder, ImagePaths
from shoestring.data.sources.parquet_reader import TypedTable
from shoestring.data.sources.table import SourceTable
from shoestring.data.transforms.image_field import NoImage, decode_image, image_size

LOOKED_AT = 32
MAX_SIZES_SHOWN = 5

MAX_SIDE = 64
"""A guessed size has at most so many pixels a side, which `image_net` trains on at a small cost."""

MIN_SHARE = 0.5
"""A column of bytes holds images if at least this share of those looked at are some."""


def image_entry(settings: ImageSettings, table: SourceTable) -> ImageEntry:
    """Decode a few images, and return their sizes and why some cannot be used. Raises DataError."""
    assert isinstance(table, ImageFolder | IdxImages | ImagePaths)
    sizes, unusable = Counter[str](), Counter[str]()
    found = table.images(LOOKED_AT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in found:
            try:
                decode_image(data, settings)
                width, height = image_size(data)
                sizes[f"{height} x {width}"] += 1
            except NoImage as error:
                unusable[str(error)] += 1
    return ImageEntry(
        shape=settings.shape,
        looked_at=len(found),
        sizes=dict(sizes.most_common(MAX_SIZES_SHOWN)),
        unusable=dict(unusable),
    )


def guess_images(table: SourceTable) -> ImageSettings | None:
    """Return how the images in the first column of images of a table are read; None: it has none.

    The size is the median of the images looked at, or less; one channel is enough where all are grey. Raises
    DataError.
    """
    left_out = table.left_out if isinstance(table, TypedTable) else {}
    for column in (name for name, why in left_out.items() if why.holds_bytes):
        assert isinstance(table, TypedTable)
        found = ImageBytes(table, (), column).images(LOOKED_AT)
        sizes, is_grey = [], True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for data in found:
                try:
                    sizes.append(image_size(data)[::-1])
                    pixels = decode_image(data, ImageSettings(size=(MAX_SIDE, MAX_SIDE)))
                except NoImage:
                    continue
                is_grey &= bool(np.all(pixels == pixels[:1]))
        if sizes and len(sizes) >= MIN_SHARE * len(found):
            sides = [median(side) for side in zip(*sizes, strict=True)]
            scale = min(1.0, MAX_SIDE / max(sides))
            height, width = (max(1, round(side * scale)) for side in sides)
            return ImageSettings(size=(height, width), channels=1 if is_grey else 3, column=column)
    return None
