"""Decode images to a field of fixed shape: uint8 of channels x height x width.

- An image is turned as its EXIF orientation says, before anything else.
- A palette is replaced by its colours. What is transparent becomes white. CMYK becomes RGB.
- Of 16 bits a channel, the upper 8 are kept. Other depths (32 bits, floats) have no fixed range, and are set
  aside.
- The size is that of the recipe, whatever the ratio of the sides. Of an animation, the first picture is used.
- A file that is damaged, truncated, no image, or of too many pixels is set aside.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import IMAGE_COLUMN, StoredField
from shoestring.data.source import ImageSettings
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.transforms.split import SplitAssignment

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 1 << 26
"""An image of more pixels is quarantined: decoded, it would take more than 256 MB."""

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""Pillow reads more; some of these start other programs."""

DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
)
"""What Pillow's readers raise on damaged files."""

DEPTH_16 = ("I;16", "I;16L", "I;16B", "I;16N")
WHITE = (255, 255, 255, 255)

BATCH_BYTES = 64 << 20
"""The decoded images of a batch take at most this much memory."""

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def batch_images(settings: ImageSettings) -> int:
    """Return how many images are decoded at once."""
    return max(1, BATCH_BYTES // settings.size_bytes)


class NoImage(Exception):
    """Why a file cannot be used as an image. It never leaves this module."""


class ImageField:
    """Decodes the images of tables, and quarantines rows whose image cannot be decoded."""

    def __init__(self, settings: ImageSettings, table: str) -> None:
        self.settings, self._rows = settings, 0
        self._lines = io.StringIO()
        self._quarantine = Quarantine(table, self._lines)

    @property
    def field(self) -> StoredField:
        return StoredField(name=IMAGE_COLUMN, dtype="uint8", shape=self.settings.shape, use="image")

    @property
    def counts(self) -> Mapping[str, int]:
        """The rows that were set aside, by reason."""
        return self._quarantine.counts

    @property
    def lines(self) -> bytes:
        """The rows that were set aside, one line of JSON each."""
        return self._lines.getvalue().encode()

    def check(self, quarantined: int) -> None:
        """Raise DataError for too many rows without an image, and those that ingest has `quarantined`."""
        self._quarantine.check(self._rows - self._quarantine.counts.total(), quarantined)

    def decode(self, table: pa.Table, assigned: SplitAssignment) -> tuple[pa.Table, SplitAssignment]:
        """Return the rows whose image can be decoded, with its pixels as bytes; and their splits."""
        paths = table[self.settings.column].cast(pa.string())
        found: list[bytes] = []
        good = np.ones(table.num_rows, bool)
        with warnings.catch_warnings():
            # Pillow warns about large images, and about damaged metadata, which is not used.
            warnings.simplefilter("ignore")
            for index, data in enumerate(table[IMAGE_COLUMN]):
                try:
                    found.append(decode_image(data.as_py() or b"", self.settings).tobytes())
                except NoImage as error:
                    good[index] = False
                    path = paths[index].as_py() or ""
                    self._quarantine.add(path, self._rows + index + 1, str(error), "")
        self._rows += table.num_rows
        place = table.column_names.index(IMAGE_COLUMN)
        pixels = pa.array(found, pa.binary(self.settings.size_bytes))
        kept = table.filter(pa.array(good)).set_column(place, IMAGE_COLUMN, pixels)
        groups = None if assigned.groups is None else assigned.groups[good]
        return kept, SplitAssignment(assigned.split_indices[good], groups)


def image_size(data: bytes) -> tuple[int, int]:
    """Return the width and the height that an image file names. Raises NoImage."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return image.size
    except (*DAMAGE, Image.DecompressionBombError):
        raise NoImage("not an image of a known format") from None


def decode_image(data: bytes, settings: ImageSettings) -> Pixels:
    """Return the pixels of an image file: uint8[channels, height, width]. Raises NoImage."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    height, width = settings.size
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise NoImage(f"an image of more than {MAX_PIXELS >> 20} megapixels")
            # A JPEG file is decoded at a fraction of its size where that is enough.
            image.draft(None, (2 * max(height, width),) * 2)
            upright = ImageOps.exif_transpose(image)
            flat = _without_alpha(_of_8_bits(upright, image.format)).convert(
                "L" if settings.channels == 1 else "RGB"
            )
            if flat.size != (width, height):
                flat = flat.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    except Image.DecompressionBombError:
        raise NoImage(f"an image of more than {MAX_PIXELS >> 20} megapixels") from None
    except UnidentifiedImageError:
        raise NoImage("not an image of a known format") from None
    except DAMAGE:
        raise NoImage("a damaged or truncated image") from None
    pixels: Pixels = np.asarray(flat, np.uint8).reshape(height, width, settings.channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _of_8_bits(image: Image, format: str | None) -> Image:
    from PIL import Image

    # Pillow reads a grey PGM file of 16 bits as whole numbers of 32 bits.
    if image.mode in DEPTH_16 or (image.mode == "I" and format in ("PPM", "PNG")):
        return Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise NoImage(f"an image of depth {'32 bits' if image.mode == 'I' else 'float'}, without a range")
    return image


def _without_alpha(image: Image) -> Image:
    from PIL import Image

    if image.mode == "P" or image.has_transparency_data:
        image = image.convert("RGBA")
    if image.mode not in ("RGBA", "LA", "PA", "La", "RGBa"):
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
