"""The sizes of the images of a recipe, from a few of them."""

from __future__ import annotations

import warnings
from collections import Counter

from shoestring.data.inspect.page_records import ImageEntry
from shoestring.data.source import ImageSettings
from shoestring.data.sources.images.image_tables import IdxImages, ImageFolder, ImagePaths
from shoestring.data.sources.table import SourceTable
from shoestring.data.transforms.image_field import NoImage, decode_image, image_size

LOOKED_AT = 32
MAX_SIZES_SHOWN = 5


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
