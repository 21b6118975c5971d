"""A model's folder is written as a whole, and one that is missing a file, or has another one, is refused."""

from __future__ import annotations

import hashlib
import pickle
import shutil
from pathlib import Path

import pytest
from trained_models import Trained

import shoestring as package
from shoestring.core.errors import DataError, UsageError
from shoestring.models.folder.write_folder import write_model
from shoestring.models.model import model_at


def changed(folder: Path, name: str, data: bytes, digests: bool) -> Path:
    (folder / name).write_bytes(data)
    sums = folder / "SHA256SUMS"
    if digests:
        lines = [line.split("  ") for line in sums.read_text().splitlines()]
        sha256 = hashlib.sha256(data).hexdigest()
        sums.write_text("".join(f"{sha256 if each == name else old}  {each}\n" for old, each in lines))
    return folder


def test_a_folder_is_written_over_without_touching_what_else_is_there(
    blend: Trained, linear: Trained, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "mine.pt").write_bytes(b"mine")
    for made in (blend, linear):
        write_model(made.store, made.model, made.recipe, b"{}", folder)
    assert (folder / "weights" / "mine.pt").read_bytes() == b"mine"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith("weights")} == {
        "weights/weights.json",
        "weights/mine.pt",
    }
    found = package.load(folder).predict(linear.sealed)
    assert found["prediction"].to_numpy() == pytest.approx(linear.predicted, rel=1e-5)


def test_a_folder_that_is_not_whole_is_refused(blend: Trained, tmp_path: Path) -> None:
    def copy(number: int) -> Path:
        return Path(shutil.copytree(blend.folder / "model", tmp_path / str(number)))

    net = "weights/2-table_net/weights.safetensors"
    missing = copy(1)
    (missing / net).unlink()
    with pytest.raises(DataError, match=r"lacks weights/2-table_net/weights\.safetensors"):
        model_at(missing)
    with pytest.raises(DataError, match=r"forest\.txt was changed after it was written"):
        model_at(changed(copy(2), "weights/1-boosted/forest.txt", b"tree", digests=False))
    with pytest.raises(DataError, match="is a pickle, which can run any program"):
        model_at(changed(copy(3), net, pickle.dumps({"a": 1}), digests=True))
    header = (640).to_bytes(8, "little") + b"{"
    assert header[:2] == pickle.dumps({}, 2)[:2], "the size of a header may look like a pickle"
    with pytest.raises(DataError, match="cannot be read as those of the family blend"):
        model_at(changed(copy(7), net, header, digests=True))
    with pytest.raises(DataError, match="cannot be read as those of the family blend"):
        model_at(changed(copy(4), net, b"no tensors", digests=True))
    with pytest.raises(DataError, match=r"model\.json is not readable"):
        model_at(changed(copy(5), "model.json", b"{}", digests=True))
    with pytest.raises(DataError, match="is no digest of a file"):
        model_at(changed(copy(6), "SHA256SUMS", b"00  ../../etc/passwd\n", digests=False))
    with pytest.raises(UsageError, match="is no folder of a model: it has no file SHA256SUMS"):
        model_at(tmp_path)
