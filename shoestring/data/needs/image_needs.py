"""The needs of stages that read images: by the bytes of a file and the pixels that are stored."""

from __future__ import annotations

from typing import Any

from shoestring.core.types import Need
from shoestring.data.source import ImageSettings

INGEST_US, INGEST_US_PER_BYTE = 12.0, 0.005
DECODE_US, DECODE_US_PER_BYTE = 110.0, 0.08
"""Microseconds of a reference core for an image, and for each byte of its file. Measured on 70,000 images of
28 x 28 in IDX files (160 us to decode and encode), and on JPEG files of 256 x 256 and 10 kB (950 us). The
bytes of PNG and IDX files take less."""

OTHER_BYTES = 60
"""Bytes of the label and the path."""


def with_images(need: Need, image: ImageSettings, file_bytes: int) -> Need:
    """Return the need of a stage that reads files of images of about `file_bytes` each; that of another stage
    as it is."""
    changed: dict[str, Any] = {}
    if need.stage == "ingest":
        changed["cpu_us_per_row"] = INGEST_US + INGEST_US_PER_BYTE * file_bytes
        changed["writes_bytes_per_row"] = file_bytes + OTHER_BYTES
    if need.stage == "predict":
        changed["cpu_us_per_row"] = need.cpu_us_per_row + DECODE_US + DECODE_US_PER_BYTE * file_bytes
    if need.stage == "preprocess":
        changed["cpu_us_per_row"] = DECODE_US + DECODE_US_PER_BYTE * file_bytes
        changed["writes_bytes_per_row"] = image.size_bytes + OTHER_BYTES
    return need.model_copy(update=changed)
