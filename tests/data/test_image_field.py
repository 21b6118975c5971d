"""One rule a test: how a file of any kind becomes pixels of a fixed shape, or why it does not."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shoestring.data.source import ImageSettings
from shoestring.data.transforms.image_field import NoImage, decode_image

GREY = ImageSettings(size=(4, 6), channels=1)
COLOUR = ImageSettings(size=(4, 6), channels=3)
RED, BLUE = (255, 0, 0), (0, 0, 255)


def file_of(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def halves(mode: str, left: Any, right: Any) -> Image.Image:
    """Return an image of 6 x 4 pixels with a left and a right half."""
    image = Image.new(mode, (6, 4), left)
    image.paste(right, (3, 0, 6, 4))
    return image


def test_an_image_of_the_right_size_keeps_its_pixels_in_the_order_channel_height_width() -> None:
    values = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    found = decode_image(file_of(Image.fromarray(values)), COLOUR)
    assert found.shape == (3, 4, 6) and found.dtype == np.uint8 and found.flags.c_contiguous
    assert np.array_equal(found, values.transpose(2, 0, 1))


def test_an_image_of_another_size_is_resized_to_the_whole_field() -> None:
    large = halves("L", 10, 200).resize((600, 100), Image.Resampling.NEAREST)
    assert decode_image(file_of(large), GREY)[0, :, [0, 1, 4, 5]].T.tolist() == [[10, 10, 200, 200]] * 4


def test_a_colour_image_becomes_grey_by_its_brightness_and_a_grey_one_three_equal_channels() -> None:
    assert decode_image(file_of(halves("RGB", RED, BLUE)), GREY)[0, 0, [0, 5]].tolist() == [76, 29]
    assert decode_image(file_of(halves("L", 7, 9)), COLOUR)[:, 0, 0].tolist() == [7, 7, 7]


@pytest.mark.parametrize(("orientation", "left"), [(1, RED), (3, BLUE), (2, BLUE)])
def test_exif_rotation_is_applied(orientation: int, left: tuple[int, int, int]) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = file_of(halves("RGB", RED, BLUE), "PNG", exif=exif)
    assert decode_image(data, COLOUR)[:, 0, 0].tolist() == list(left)


def test_exif_rotation_by_a_quarter_comes_before_the_size() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = file_of(halves("L", 0, 255).resize((60, 40), Image.Resampling.NEAREST), "JPEG", exif=exif)
    found = decode_image(data, ImageSettings(size=(6, 4), channels=1))[0]
    assert found[0].max() < 9 and found[-1].min() > 246


def test_a_palette_is_replaced_by_its_colours() -> None:
    image = halves("RGB", RED, BLUE).quantize(2)
    assert image.mode == "P"
    found = decode_image(file_of(image), COLOUR)
    assert found[:, 0, 0].tolist() == list(RED) and found[:, 0, 5].tolist() == list(BLUE)


def test_a_transparent_entry_of_a_palette_becomes_white() -> None:
    image = halves("P", 0, 1)
    image.putpalette([*RED, *BLUE])
    found = decode_image(file_of(image, transparency=0), COLOUR)
    assert found[:, 0, 0].tolist() == [255] * 3 and found[:, 0, 5].tolist() == list(BLUE)


@pytest.mark.parametrize(
    ("mode", "clear", "half"), [("RGBA", (0, 0, 0, 0), (0, 0, 0, 128)), ("LA", (0, 0), (0, 128))]
)
def test_what_is_transparent_becomes_white(mode: str, clear: Any, half: Any) -> None:
    found = decode_image(file_of(halves(mode, clear, half)), GREY)[0, 0]
    assert found[0] == 255 and 126 <= found[5] <= 128


def test_cmyk_becomes_rgb() -> None:
    found = decode_image(file_of(halves("CMYK", (0, 255, 255, 0), (255, 255, 0, 0)), "TIFF"), COLOUR)
    assert found[:, 0, 0].tolist() == list(RED) and found[:, 0, 5].tolist() == list(BLUE)


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_of_16_bits_the_upper_8_are_kept(format: str) -> None:
    values = np.full((4, 6), 0x1234, np.uint16)
    values[:, 3:] = 0xFEDC
    found = decode_image(file_of(Image.fromarray(values), format), GREY)[0, 0]
    assert found[[0, 5]].tolist() == [0x12, 0xFE]


@pytest.mark.parametrize("mode", ["I", "F"])
def test_a_depth_without_a_range_is_no_image(mode: str) -> None:
    with pytest.raises(NoImage, match="without a range"):
        decode_image(file_of(Image.new(mode, (6, 4)), "TIFF"), GREY)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP"])
def test_a_truncated_file_is_no_image_at_any_length(format: str) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (40, 40, 3), np.uint8)
    data = file_of(Image.fromarray(noise), format)
    decode_image(data, COLOUR)
    for length in range(0, len(data) // 2, max(1, len(data) // 40)):
        with pytest.raises(NoImage, match=r"damaged or truncated|not an image"):
            decode_image(data[:length], COLOUR)


def bomb(side: int) -> bytes:
    """Return a PNG file of side x side black pixels in a few bytes: 900 million of 30,000 x 30,000."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


@pytest.mark.parametrize("side", [8_193, 10_000, 30_000])
def test_a_pixel_bomb_is_refused_by_its_header(side: int) -> None:
    with warnings.catch_warnings(), pytest.raises(NoImage, match="more than 64 megapixels"):
        warnings.simplefilter("ignore")
        decode_image(bomb(side), GREY)


def test_a_format_that_starts_another_program_is_not_read() -> None:
    with pytest.raises(NoImage, match="not an image of a known format"):
        decode_image(file_of(Image.new("L", (6, 4)), "EPS"), GREY)


def test_any_changed_byte_gives_an_image_or_a_reason() -> None:
    rng = np.random.default_rng(2)
    noise = Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8))
    for format in ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM"):
        data = np.frombuffer(file_of(noise, format), np.uint8)
        for place in rng.integers(0, len(data), 60):
            changed = data.copy()
            changed[place] ^= rng.integers(1, 256)
            try:
                assert decode_image(changed.tobytes(), GREY).shape == (1, 4, 6)
            except NoImage:
                continue
