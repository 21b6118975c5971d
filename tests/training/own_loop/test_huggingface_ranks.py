"""Two processes of Hugging Face's Trainer end at the same step, and resume from one checkpoint."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from warm_scripts import ONE_THREAD, start_script

pytest.importorskip("transformers")

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("huggingface_ranks_script.py")
PATHS = os.pathsep.join(map(str, (SCRIPT.parent, SCRIPT.parents[2])))


def train_both(folder: Path, seconds: float) -> list[list[str]]:
    """Run two ranks; return what each printed of its end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": PATHS}
    started = [
        start_script(
            *(SCRIPT, seconds, folder),
            variables=shared | ONE_THREAD | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            modules="torch.distributed,transformers.trainer,shoestring.budget",
        )
        for rank in range(2)
    ]
    try:
        outputs = [each.communicate(timeout=60) for each in started]
    finally:
        for each in started:
            each.kill()
    assert [each.returncode for each in started] == [0, 0], outputs
    lines = [line for out, _ in outputs for line in out.splitlines() if line.startswith("found")]
    return [line.split() for line in lines]


def test_two_ranks_of_trainer_end_together_and_resume(tmp_path: Path) -> None:
    first, second = train_both(tmp_path, 4.0)
    assert first == second
    assert int(first[2]) > 10 and float(first[4]) < 0.01
    assert first[5] == f"checkpoint-{first[1]}"
    assert (tmp_path / "kept" / first[5] / "rng_state_1.pth").exists()
    rest, other = train_both(tmp_path, 9.0)
    assert rest == other
    assert int(rest[1]) == int(first[1]) + int(rest[2]) and int(rest[2]) > 5
