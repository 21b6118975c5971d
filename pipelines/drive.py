"""Run the compiled pipeline with KFP's local runner: the very file that a cluster is given, in processes of this machine."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from kfp import components, local

from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.train import train_pipeline


def drive(arguments: dict[str, Any], log: Path, pipeline: Any = train_pipeline) -> bool:
    """Compile, load and run; what the steps print goes to `log`. Returns whether every step succeeded.

    The runner deletes its workspace and its artifacts go with the temporary folder: all that matters is in our store by then.
    """
    with (
        tempfile.TemporaryDirectory(prefix="shoestring-kfp-") as folder,
        log.open("a", encoding="utf-8", buffering=1) as out,
        quiet(out),
    ):
        compiled = write(pipeline, Path(folder) / "pipeline.yaml")
        local.init(
            runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(Path(folder) / "artifacts")
        )
        run = components.load_component_from_file(str(compiled))
        try:
            run(**arguments)
        except RuntimeError as error:
            # The runner has no error of its own: a failed step is a RuntimeError, and what failed is in the receipts.
            print(error, file=out)
            return False
        return True


@contextlib.contextmanager
def quiet(out: TextIO) -> Iterator[None]:
    """Send the runner's prints and logs to `out`, and drop its warnings: they are about image names, which it does not use."""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
