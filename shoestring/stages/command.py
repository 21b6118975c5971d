"""The command stage: a user's command, in any language, inside its budget.

It runs in a process group of its own. In its environment are the names of three places: a file with its
budget, a folder whose files are kept between attempts, and a file to which it may write its progress.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shoestring.commands.budget_writer import BudgetWriter, earlier_attempts
from shoestring.commands.checkpoint_files import CheckpointFiles
from shoestring.commands.command_outputs import read_outputs
from shoestring.commands.group import CommandGroup, keyboard_of
from shoestring.commands.progress_file import ProgressReader
from shoestring.commands.readers import BudgetReaders
from shoestring.core import store_layout
from shoestring.core.errors import CommandFailed, ShoestringError, StageStopped
from shoestring.core.types import Need, StageOutcome
from shoestring.data.job import DEFAULT_GRACE_S, Command
from shoestring.data.scratch.scratch_files import remove_folder
from shoestring.data.scratch.temporary_folders import hold_folder
from shoestring.spending.budget_file import BUDGET_VARIABLE, CHECKPOINTS_VARIABLE, PROGRESS_VARIABLE
from shoestring.stages.work import CommandWork, StageProgress
from shoestring.training.profiling.profile_file import ProfileFile

COMMAND_STAGE = "command"
"""The stage of a command that runs alone."""
NEED = Need(
    stage=COMMAND_STAGE,
    elastic=True,
    by_time=True,
    setup_s=1.0,
    cpu_us_per_row=1e6,
    parallel_fraction=1.0,
    min_passes=1e-9,
    memory_fixed_gb=0.1,
    workload="compute",
)
LOOK_EVERY_S = 0.1
WRITE_EVERY_S = 1.0
COPY_EVERY_S = 5.0
MIN_NOTICE_S, NOTICE_SHARE = 2.0, 1 / 6
"""From `should_stop` in the budget file to SIGTERM, the second as a share of the grace: a command that reads
it ends by itself."""
ASKED = "it was asked to stop"
ENDED_BY_DEADLINE = "ended by its deadline"
END_S = 1.0
"""Seconds from the end of a command to the end of its run, which is settled and reported in that time."""
LAUNCHER_REQUESTS = 58
"""Requests to the store, one after another, from the settlement of a command to the end of `shoestring exec`:
the close of its account, its report and its summary. Counted by bench/exec_books.py."""
MIN_COPY_S, COPY_MARGIN = 0.2, 1.5


def run(work: CommandWork) -> StageOutcome:
    """Run the command to its end, or until its money or time is over.

    Raises:
        StageStopped: it was asked to end.
        CommandFailed: it ended by itself with another exit code than 0.
        UsageError: it cannot be started.
        DataError: the stored copy of its files is damaged; or an output is missing, or is no short text.
    """
    return CommandRun(work).run()


def need_of(command: Command, request_s: float = 0.0) -> Need:
    """Return the need of a command that runs alone: its grace, and the end of its run, are kept back from its
    budget. `request_s`: of a request to the store; 0: that is near."""
    need = command_need(COMMAND_STAGE, grace_s=command.grace_s, memory_gb=NEED.memory_fixed_gb)
    return need.model_copy(update={"checkpoint_s": need.checkpoint_s + LAUNCHER_REQUESTS * request_s})


def launcher_end_s(need: Need, command: Command | None) -> float:
    """Return what the launcher of a command takes from its settlement to its own end, as its need has it."""
    return max(0.0, need.checkpoint_s - command.grace_s - END_S) if command else 0.0


def command_need(
    stage: str,
    *,
    seconds: float | None = None,
    memory_gb: float = 1.0,
    gpu: bool = False,
    grace_s: float = DEFAULT_GRACE_S,
    after: tuple[str, ...] | None = None,
) -> Need:
    """Return the need of a command as a stage of a pipeline.

    `seconds`: what it takes on a reference core, an estimate; None: as much as the run's money buys, for at
    most one stage of a pipeline. `gpu`: only pools with a GPU. `grace_s`: seconds from SIGTERM to SIGKILL,
    which its budget keeps back. `after`: the stages that it waits for; None: the one before it.
    """
    more = {"stage": stage, "after": after, "memory_fixed_gb": memory_gb, "checkpoint_s": grace_s + END_S}
    if gpu:
        # With a GPU, a sample is 1e12 operations.
        more |= {"gpu": "must", "gpu_flop_per_row": 1e12}
    if seconds is not None:
        more |= {"elastic": False, "by_time": False, "min_passes": 0.0, "cpu_us_per_row": 0.0}
        more |= {"gpu_flop_per_row": 0.0, "setup_s": seconds}
    return NEED.model_copy(update=more)


def grace_of(need: Need) -> float:
    """Return the seconds from SIGTERM to SIGKILL that the need of a command keeps back."""
    return need.checkpoint_s - END_S


class CommandRun:
    """One attempt at a command, until it has ended. `stopped`: why it was asked to end, and the cause."""

    def __init__(self, work: CommandWork) -> None:
        self.work, self.command = work, work.command
        places = work.scratch / "command"
        places.mkdir()
        self.folder = places / "checkpoints"
        self.files = CheckpointFiles(work.store, work.run_id, work.stage, work.attempt, self.folder)
        self.progress = ProgressReader(places / "progress.json")
        self.budget_path = places / "budget.json"
        earlier = earlier_attempts(work.store, work.run_id, work.stage, work.attempt)
        self.budget = BudgetWriter(
            self.budget_path, work.run_id, work.attempt, work.meter, earlier, work.command.grace_s
        )
        self.readers = BudgetReaders(self.budget_path)
        self.variables = {
            BUDGET_VARIABLE: str(self.budget_path),
            CHECKPOINTS_VARIABLE: str(self.folder),
            PROGRESS_VARIABLE: str(places / "progress.json"),
        }
        self.profile = ProfileFile(work.store, work.run_id, places, work.command.profile)
        self.stopped = ("", "")
        self.copy_fault = ""
        self.told_to_stop = False
        self._terminated_s: float | None = None
        self._written_s = float("-inf")
        self._copy_size = 0

    def run(self) -> StageOutcome:
        self.files.restore()
        self.write_budget()
        folder = Path(self.command.folder) if self.command.folder else None
        # It may outlive this process, and needs its files until it ends.
        held = hold_folder(self.work.scratch)
        group = CommandGroup(self.command.argv, self.variables | self.profile.variables, folder, [held])
        with keyboard_of(group), self.copied_while_running(group):
            try:
                while not group.ended.wait(LOOK_EVERY_S):
                    self.look(group)
                while self.is_ending(group):
                    self.look(group)
                    self.work.clock.sleep(LOOK_EVERY_S)
            finally:
                # What its processes left in the group does not outlive it, whatever happened here.
                group.kill()
        self.save_at_end()
        self.profile.keep()
        # On a disk that these files filled, the result of this attempt would find no place.
        remove_folder(self.folder)
        return self.outcome(group)

    def look(self, group: CommandGroup) -> None:
        """Stop the command when it is time to; write its budget and report its progress."""
        self.readers.reap_adopted(group.pid)
        now_s = self.work.clock.monotonic_s()
        if self._terminated_s is None and (reason := self.stop_reason(now_s)) != ("", ""):
            self.stopped, self._terminated_s = reason, now_s
            self.write_budget()
            self.readers.note_term(group.command_lines())
            group.terminate(self.readers.asked, self.readers.ending())
        elif self._terminated_s is not None and now_s - self._terminated_s >= self.command.grace_s:
            group.kill()
        if now_s - self._written_s >= WRITE_EVERY_S:
            self.write_budget()
            self.report()

    def is_ending(self, group: CommandGroup) -> bool:
        """Return whether what was asked to end still does: a shell ends at once, and not what it has started.

        A command that ends by itself is over, whatever it has left running.
        """
        if self._terminated_s is None:
            return False
        is_in_time = self.work.clock.monotonic_s() - self._terminated_s < self.command.grace_s
        return is_in_time and bool(group.processes() or self.readers.asked & self.readers.running())

    def stop_reason(self, now_s: float) -> tuple[str, str]:
        """Return why the command has to end now, and the cause; two empty strings: not yet."""
        meter = self.work.meter
        if self.work.should_stop():
            return ASKED, "stop-requested"
        if now_s < self.ends_s:
            return "", ""
        if meter.ends_s == meter.deadline_s:
            return ENDED_BY_DEADLINE, "money"
        return "ended by money", "money"

    @property
    def ends_s(self) -> float:
        """When the command is asked to end: what it leaves has to be copied within the money, too."""
        copy_s = COPY_MARGIN * self._copy_size / self.files.bytes_per_s
        return self.work.meter.ends_s - max(MIN_COPY_S, copy_s)

    def write_budget(self) -> None:
        """Write the budget file. A disk that is full now may not be at the next call."""
        now_s = self._written_s = self.work.clock.monotonic_s()
        self._copy_size = self.files.size_to_copy()
        asked_s = self.ends_s - max(MIN_NOTICE_S, NOTICE_SHARE * self.command.grace_s)
        should_stop = self._terminated_s is not None or now_s >= asked_s
        self.told_to_stop = self.told_to_stop or should_stop
        try:
            self.budget.write(self.work.clock, asked_s, should_stop=should_stop, reason=self.stopped[0])
        except OSError as error:
            self.copy_fault = f"the budget file cannot be written: {error.strerror}"

    def report(self) -> None:
        """Report the command's own progress, if it wrote any."""
        # Its disk may be full.
        with suppress(OSError):
            self.work.report_progress(self.stage_progress())

    def stage_progress(self) -> StageProgress:
        found = self.progress.read()
        if found is None:
            return StageProgress(phase="running")
        quality = {} if found.loss is None else {"loss": found.loss}
        return StageProgress(phase="running", samples=found.samples, total=found.total, quality=quality)

    @contextmanager
    def copied_while_running(self, group: CommandGroup) -> Iterator[None]:
        """Copy the files to the store from time to time while the block runs."""

        def copy() -> None:
            while not group.ended.wait(COPY_EVERY_S):
                try:
                    self.files.save_when_quiet(group.ended.wait)
                except (ShoestringError, OSError) as error:
                    # The next copy may succeed, and the last one reports what is wrong.
                    self.copy_fault = str(error)

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def save_at_end(self) -> None:
        """Copy the last files. A failure becomes a part of the reason."""
        try:
            is_whole = self.files.save() or not self.files.size_to_copy()
            self.copy_fault = "" if is_whole else "a process that it left behind still changes them"
        except (ShoestringError, OSError) as error:
            self.copy_fault = str(error)

    def outcome(self, group: CommandGroup) -> StageOutcome:
        """Return how the command ended. Raises StageStopped, CommandFailed."""
        (reason, cause), code = self.stopped, group.code or 0
        if code and not reason and self.work.should_stop():
            # One signal has reached this process and the command: a node that shuts down ends all at once.
            reason, cause = ASKED, "stop-requested"
        if cause == "money":
            own_code = self.readers.code_after_term(code, group.pid, was_read=self.budget.was_read)
            # None: the signal has ended it.
            reason, code = (reason, code) if own_code is None else ("", own_code)
        fault = f"its files could not be copied: {self.copy_fault}" if self.copy_fault else ""
        notes = [note for note in (fault, self.files.left_out) if note]
        if reason:
            # Its supervisor has a reason of its own.
            why = "" if reason == ASKED else f"{reason}: "
            raise StageStopped("; ".join((f"{why}{self.what_is_kept()}", *notes)), cause)
        if code:
            raise CommandFailed("; ".join((f"the command ended with exit code {code}", *notes)), code)
        progress, outputs = self.stage_progress(), read_outputs(self.command)
        was_told = self.told_to_stop and (self.budget.was_read or self.stopped[0] != "")
        own_end = ["it stopped by itself when its budget was used up"] if was_told else []
        key = store_layout.checkpoint_pointer(self.work.run_id, self.work.stage)
        return StageOutcome(
            key=key if self.files.kept.files else "",
            artifact=outputs.save(self.work.store),
            samples=progress.samples,
            metrics=progress.quality | outputs.metrics,
            stop_reason="; ".join((*own_end, *notes)),
            only_its_run=True,
        )

    def what_is_kept(self) -> str:
        """Return what is left of a command that was asked to end."""
        if files := len(self.files.kept.files):
            return f"it resumes from its {files} checkpoint file{'s'[: files != 1]}"
        neither = " and did not read $SHOESTRING_BUDGET (docs/own-training.md shows both)"
        # The other files of a pod end with it.
        elsewhere = ", with what it wrote elsewhere as it is" if self.command.folder else ""
        return (
            f"it left no file in $SHOESTRING_CHECKPOINTS{'' if self.budget.was_read else neither}: "
            f"a resumed run starts it from its beginning{elsewhere}"
        )
