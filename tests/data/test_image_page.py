from __future__ import annotations

import csv
from pathlib import Path

from image_sources import idx_files, image_folder, image_recipe, noise

from shoestring.data.inspect.page import inspect_data
from shoestring.reporting.data_text import plain_lines


def test_the_page_counts_images_classes_and_sizes_and_what_is_set_aside(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "photos", noise(30))
    (folder / "dark" / "0004.png").write_bytes(b"a text")
    page = inspect_data(image_recipe(folder))
    assert (page.rows, page.refusal, page.warnings) == (30, "", ())
    assert page.images is not None
    assert page.images.model_dump() == {
        "shape": (1, 4, 6),
        "looked_at": 30,
        "sizes": {"4 x 6": 29},
        "unusable": {"not an image of a known format": 1},
    }
    assert {each.name: (each.use, each.reason) for each in page.columns} == {
        "label": ("target", "`target`"),
        "path": ("not used", "the paths of the images"),
    }
    assert page.target is not None and [each.share for each in page.target.classes] == [0.5, 0.5]
    assert (
        "images: stored as 4 x 6, 1 channel; of 30 looked at: 4 x 6 (29); "
        "1 set aside: not an image of a known format"
    ) in plain_lines(page)


def test_the_page_of_idx_files_and_of_a_table_shows_their_images(tmp_path: Path) -> None:
    idx = inspect_data(image_recipe(idx_files(tmp_path / "idx", noise(80))))
    assert idx.images is not None and idx.images.sizes == {"4 x 6": 32} and idx.rows == 80
    folder = image_folder(tmp_path / "photos", noise(40))
    with (folder / "labels.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["file", "age", "sick"])
        for number, path in enumerate(sorted(folder.rglob("*.png"))):
            lines.writerow([path.relative_to(folder), number % 4, number % 2])
    page = inspect_data(image_recipe(folder / "labels.csv", "sick", "file"))
    assert page.images is not None and page.images.sizes == {"4 x 6": 20}
    assert {each.name: each.use for each in page.columns} == {
        "file": "not used",
        "age": "numeric",
        "sick": "target",
    }
    assert page.refusal == ""
