"""The compiled pipeline of a training, kept next to the bytecode: building and compiling it takes most of a
second, and no run changes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path

import shoestring
from shoestring import components, pipelines

KEPT = Path(cache_from_source(__file__)).parent
"""Where it is kept; a folder that cannot be written to keeps none."""
COMPILERS = ("kfp", "kfp-kubernetes")


def compiled_training(folder: Path, kept: Path = KEPT) -> Path:
    """Return the compiled pipeline of a training: the kept one of these sources and compilers, or one that is
    compiled into `folder` and then kept in place of any other.
    """
    found = kept / f"train.{compiled_digest()}.yaml"
    if found.exists():
        return found
    # Imported here, since this is what takes the time.
    from shoestring.pipelines.kubeflow import write
    from shoestring.pipelines.train import train_pipeline

    compiled, whole = write(train_pipeline, folder / "train.yaml"), found.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        kept.mkdir(exist_ok=True)
        shutil.copyfile(compiled, whole)
        whole.replace(found)
        for each in kept.glob("train.*.yaml"):
            if each != found:
                each.unlink(missing_ok=True)
    return compiled


def compiled_digest() -> str:
    """Return a digest of all that the compiled pipeline depends on: the sources of the package and the
    versions of its compilers.
    """
    content = hashlib.sha256(" ".join(map(version, COMPILERS)).encode())
    roots = [Path(each) for package in (shoestring, components, pipelines) for each in package.__path__]
    for file in sorted({file.resolve() for root in roots for file in root.rglob("*.py")}):
        content.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return content.hexdigest()[:32]
