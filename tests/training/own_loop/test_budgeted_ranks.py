"""Processes that train together end at the same step, with the same rates."""

from __future__ import annotations

from pathlib import Path

import pytest
from warm_scripts import start_script

from shoestring.training.own_loop.checkpoints.saved_state import checkpoint_files

SCRIPT = Path(__file__).parent / "ranks_script.py"
BATCHES_PER_PASS = 8


def train(folder: Path, seconds: float, name: str) -> list[list[str]]:
    """Run two ranks; return what each printed."""
    started = [
        start_script(
            *(SCRIPT, rank, folder / name, seconds, folder / "checkpoints"),
            variables={},
            modules="torch.utils.data,torch.distributed",
        )
        for rank in range(2)
    ]
    outputs = [each.communicate(timeout=120) for each in started]
    assert [each.returncode for each in started] == [0, 0], outputs
    found = [out.splitlines() for out, _ in outputs]
    for _, before, at_exit in found:
        assert 2 * int(at_exit) == int(before) > 0, "the threads of the Budget's group have not ended"
    return [result.split() for result, _, _ in found]


def test_both_ranks_end_at_the_same_step_with_the_same_rates(tmp_path: Path) -> None:
    first, second = train(tmp_path, 2.5, "rendezvous")
    assert first == second
    assert int(first[0]) > 10
    assert float(first[4]) < 0.05
    # The losses of the first rank stall.
    assert float(first[6]) < 0.8


@pytest.mark.slow
def test_both_ranks_resume_from_one_checkpoint(tmp_path: Path) -> None:
    first = train(tmp_path, 1.0, "first")
    steps = int(checkpoint_files(tmp_path / "checkpoints")[0].stem.split("-")[1])
    assert steps == int(first[0][0])
    rest = train(tmp_path, 3.0, "rest")
    assert rest[0] == rest[1]
    assert int(rest[0][0]) > 5
    # A pass whose batches had ended is not resumed: the next one begins.
    assert int(rest[0][1]) == steps // BATCHES_PER_PASS
    newest = checkpoint_files(tmp_path / "checkpoints")[0]
    assert int(newest.stem.split("-")[1]) == steps + int(rest[0][0])
