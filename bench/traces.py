"""Find recorded prices, spot availability and throughputs. They are read in place, never copied."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_FOLDER = Path(__file__).parents[2] / "shared" / "traces"


def trace(name: str) -> Path:
    """Return the path of a recording in the folder of traces ($SHOESTRING_TRACES, or shared/traces next to
    the project).

    If the recording is missing, the process prints the reason and exits with code 0, so the bench is skipped.
    """
    folder = Path(os.environ.get("SHOESTRING_TRACES", DEFAULT_FOLDER))
    path = folder / name
    if not path.exists():
        print(f"skipped: {name} is not in {folder}; set SHOESTRING_TRACES to the folder of recorded traces")
        raise SystemExit(0)
    return path
