"""Run a compiled pipeline with KFP's local runner: the same file that a cluster runs, in processes of this
machine.
"""

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


def run_locally(arguments: dict[str, Any], log: Path, pipeline: Any = train_pipeline) -> bool:
    """Compile and run a pipeline; append what its steps print to `log`.

    Return True if every step succeeded.
    """
    with (
        tempfile.TemporaryDirectory(prefix="shoestring-kfp-") as folder,
        log.open("a", encoding="utf-8") as out,
    ):
        with redirect_output(out):
            compiled = write(pipeline, Path(folder) / "pipeline.yaml")
        return run_compiled(compiled, arguments, log)


def run_compiled(compiled: Path, arguments: dict[str, Any], log: Path) -> bool:
    """Run a compiled pipeline; append what its steps print to `log`. Return True if every step succeeded.

    The runner deletes its workspace, and its artifacts are in a temporary folder: all results are in
    Shoestring's store by then.
    """
    with (
        tempfile.TemporaryDirectory(prefix="shoestring-kfp-") as folder,
        log.open("a", encoding="utf-8", buffering=1) as out,
        redirect_output(out),
    ):
        local.init(
            runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(Path(folder) / "artifacts")
        )
        run = components.load_component_from_file(str(compiled))
        try:
            run(**arguments)
        except RuntimeError as error:
            # The runner raises RuntimeError for a failed step. The receipts say what failed.
            print(error, file=out)
            return False
        return True


@contextlib.contextmanager
def redirect_output(out: TextIO) -> Iterator[None]:
    """Send the runner's prints and logs to `out`, and drop its warnings about image names, which it does not
    use.
    """
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
