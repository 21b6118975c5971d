"""Where recorded prices, spot availability and throughputs lie: read in place, never copied here."""

from __future__ import annotations

import os
from pathlib import Path

BESIDE = Path(__file__).parents[2] / "shared" / "traces"


def trace(name: str) -> Path:
    """A recording, by its name in the folder of traces ($SHOESTRING_TRACES, or shared/traces beside the project).

    Ends the process well, with the reason, where it is not there: a claim that rests on it is then skipped.
    """
    folder = Path(os.environ.get("SHOESTRING_TRACES", BESIDE))
    path = folder / name
    if not path.exists():
        print(f"skipped: {name} is not in {folder}; set SHOESTRING_TRACES to the folder of recorded traces")
        raise SystemExit(0)
    return path
