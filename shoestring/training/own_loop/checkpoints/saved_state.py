"""The checkpoints of a training as files in a folder, and how a later attempt finds them.

Two are kept. Each is written whole or not at all.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from shoestring.training.own_loop.checkpoints.checkpoint_folder import LOOP, checkpoints_in, delete_old
from shoestring.training.own_loop.loop_state import LoopPosition, LoopState
from shoestring.training.own_loop.ranks import Ranks, check_same
from shoestring.training.own_loop.rates.decay import DecayStart

FORMAT = 1


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, newest first."""
    return checkpoints_in(folder, LOOP)


def read_state(path: Path) -> dict[str, Any] | None:
    """Return the state in a file, or None where it is damaged, or of another format.

    Only tensors and plain values are read: a checkpoint runs no code.
    """
    try:
        # PyTorch does not check the sums of its records; the zip module does.
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return None
        state = torch.load(path, map_location="cpu", weights_only=True)
    # A damaged file fails anywhere in the unpickler, with any error.
    except Exception:
        return None
    return state if isinstance(state, dict) and state.get("format") == FORMAT else None


def newest_checkpoint(folder: Path, say: Callable[[str], None]) -> tuple[str, dict[str, Any] | None]:
    """Return name and state of the newest checkpoint that can be read, or an empty name and None.

    Damaged ones are deleted, and named in a warning.
    """
    for path in checkpoint_files(folder):
        if (state := read_state(path)) is not None:
            return path.name, state
        say(f"the checkpoint {path} is damaged: the one before it is used, else training starts over")
        path.unlink(missing_ok=True)
    return "", None


def write_state(folder: Path, number: int, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint durably, and delete those before the last two. Raises OSError."""
    path = folder / f"checkpoint-{number:012d}.pt"
    temporary = folder / "checkpoint.new"
    try:
        with temporary.open("wb") as file:
            torch.save({"format": FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    # PyTorch reports a full disk as a RuntimeError of its zip writer.
    except RuntimeError as error:
        raise OSError(str(error).splitlines()[0]) from None
    finally:
        temporary.unlink(missing_ok=True)
    delete_old(folder, LOOP)
    return path


@dataclass(slots=True)
class LoopResume:
    """The ranks of a training, and the state of an earlier attempt until it is loaded."""

    ranks: Ranks
    state: dict[str, Any] | None = None


def ranks_of(loop: LoopState) -> Ranks:
    """Return the processes that train together, which the loop asks from here on."""
    ranks = Ranks()
    loop.rank, loop.world_size, loop.agree = ranks.rank, ranks.world_size, ranks.agree
    return ranks


def find_checkpoint(loop: LoopState) -> LoopResume:
    """Return what an earlier attempt has saved. The first call looks for it, and sets the loop's position."""
    if isinstance(loop.resume, LoopResume):
        return loop.resume
    ranks = ranks_of(loop)
    resume = loop.resume = LoopResume(ranks)
    if loop.folder is None:
        return resume
    own_name, state = newest_checkpoint(loop.folder, loop.say) if ranks.rank == 0 else ("", None)
    if not (name := ranks.text_from_first(own_name)):
        return resume
    state = state or read_state(loop.folder / name)
    check_same(state is not None, f"the checkpoint {loop.folder / name}")
    assert state is not None
    resume.state = state
    restore_loop(loop, state)
    return resume


def restore_loop(loop: LoopState, state: Mapping[str, Any]) -> None:
    """Restore position and measurements that `state_of_loop` returned."""
    loop.position = LoopPosition(**state["position"])
    loop.began_share = state["began_share"]
    # A checkpoint of an earlier version has none.
    loop.decay_start = DecayStart(**state.get("decay_start", {}))
    measured = state["measured"]
    loop.reserve.validations_s.extend(measured["validations_s"])
    loop.reserve.checkpoints_s.extend(measured["checkpoints_s"])
    loop.reserve.steps_s.extend(measured["steps_s"])


def state_of_loop(loop: LoopState) -> dict[str, Any]:
    """Return what `restore_loop` restores, as plain values."""
    reserve = loop.reserve
    return {
        "position": asdict(loop.position),
        "began_share": loop.began_share,
        "decay_start": asdict(loop.decay_start),
        "measured": {
            "validations_s": list(reserve.validations_s),
            "checkpoints_s": list(reserve.checkpoints_s),
            "steps_s": list(reserve.steps_s),
        },
    }
