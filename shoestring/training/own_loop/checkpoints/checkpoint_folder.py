"""The checkpoints in a budget's folder: which one is the newest whole one, and how one gets there whole.

A checkpoint is a file, or a folder with a list of its files. It appears by a rename.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path

KEPT = 2
HUGGINGFACE, LIGHTNING, LOOP, LIGHTGBM, XGBOOST = "", ".ckpt", ".pt", ".txt", ".ubj"
"""The endings of a checkpoint's name, by what has written it."""
NAME = re.compile(r"checkpoint-(\d+)(|\.ckpt|\.pt|\.txt|\.ubj)")
LISTED = "shoestring-files.json"


def checkpoints_in(folder: Path, ending: str | None) -> list[Path]:
    """Return the checkpoints in a folder, newest first. `ending`: None for those of all kinds."""
    found = list[tuple[int, Path]]()
    for path in folder.iterdir() if folder.is_dir() else ():
        match = NAME.fullmatch(path.name)
        if match and ending in (None, match[2]) and path.is_dir() == (match[2] == HUGGINGFACE):
            found.append((int(match[1]), path))
    return [path for _, path in sorted(found, reverse=True)]


def newest_whole(folder: Path, ending: str | None) -> Path | None:
    """Return the newest checkpoint that is not damaged as far as its sizes and sums show, or None."""
    return next((path for path in checkpoints_in(folder, ending) if is_whole(path)), None)


def is_whole(path: Path) -> bool:
    try:
        if path.is_dir():
            sizes = json.loads((path / LISTED).read_bytes())
            return all((path / name).stat().st_size == size for name, size in sizes.items())
        if path.suffix in (LIGHTGBM, XGBOOST):
            return path.stat().st_size > 0
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    # A damaged file fails in many ways.
    except Exception:
        return False


def place_folder(source: Path, folder: Path) -> Path:
    """Put a framework's checkpoint into the folder of a budget, and delete those before the last two.

    The files are linked where the file system can, else copied. Raises OSError.
    """
    if source.parent.resolve() == folder.resolve():
        write_list(source)
        return source
    path, temporary = folder / source.name, folder / f"{source.name}.new"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary, copy_function=link_or_copy)
    write_list(temporary)
    if path.exists():
        shutil.rmtree(path)
    temporary.rename(path)
    delete_old(folder, HUGGINGFACE)
    return path


def link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def write_list(checkpoint: Path) -> None:
    """Write names and sizes of a checkpoint's files into it."""
    names = (path for path in checkpoint.rglob("*") if path.is_file() and path.name != LISTED)
    sizes = {str(path.relative_to(checkpoint)): path.stat().st_size for path in names}
    temporary = checkpoint / f"{LISTED}.new"
    temporary.write_text(json.dumps(sizes))
    temporary.replace(checkpoint / LISTED)


def delete_old(folder: Path, ending: str) -> None:
    """Delete the checkpoints before the last two."""
    for old in checkpoints_in(folder, ending)[KEPT:]:
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)
