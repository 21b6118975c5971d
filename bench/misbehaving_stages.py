"""Stages that try to spend more than they may. `stopwatch.py` runs each in place of a stage of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.core.types import StageOutcome
from shoestring.runtime.supervisor.child import PROGRESS_FILE, RESULT_FILE
from shoestring.runtime.supervisor.spend_limits import LIMITS_FILE
from shoestring.spending.heartbeat import Heartbeat, last_heartbeat
from shoestring.stages.work import Work

LONG_S = int(os.environ.get("LONG_S", "600"))
SPIN = f"import time\nend = time.time() + {LONG_S}\nwhile time.time() < end: pass"
SLOW_VARIABLE = "STOPWATCH_SLOW"
"""Names a file. For `SLOW_FOR_S` from when it is made, the store answers each call after `SLOW_STORE_S`."""
SLOW_STORE_S, SLOW_FOR_S = 3.0, 90.0
SLEEP = f"import time; time.sleep({LONG_S})"


def start(code: str, **options: object) -> None:
    subprocess.Popen([sys.executable, "-S", "-c", code], **options)  # type: ignore[call-overload]


def sleep(work: Work) -> None:
    time.sleep(LONG_S)


def spin(work: Work) -> None:
    end_s = time.time() + LONG_S
    while time.time() < end_s:
        pass


def obey(work: Work) -> None:
    """Wait until it is asked to stop, as a good stage does."""
    while not work.should_stop():
        time.sleep(0.02)


def fail(work: Work) -> None:
    raise RuntimeError("a stage that fails")


def ignore_term(work: Work) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    spin(work)


def block_signals(work: Work) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    sleep(work)


def spin_in_a_child(work: Work) -> None:
    start(SPIN)
    sleep(work)


def leave_a_daemon(work: Work) -> StageOutcome:
    detach(SPIN)
    return StageOutcome(key="none", rows=1)


def leave_a_daemon_without_environment(work: Work) -> None:
    detach(SLEEP, env={})
    sleep(work)


def detach(code: str, **options: object) -> None:
    if os.fork() == 0:
        os.setsid()
        start(code, **options)
        os._exit(0)
    os.wait()


def stop_the_supervisor(work: Work) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    sleep(work)


def stop_the_supervisor_and_ignore_term(work: Work) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(os.getppid(), signal.SIGSTOP)
    spin(work)


def stop_the_supervisor_and_forge(work: Work, forge: Callable[[Path, Heartbeat], object]) -> None:
    """Stop the supervisor, and then change its heartbeat ten times a second."""
    assert isinstance(work.store, FolderStore)
    name = f"{work.stage}-{work.attempt}"
    last = last_heartbeat(work.store, work.run_id, name)
    assert last is not None
    os.kill(os.getppid(), signal.SIGSTOP)
    end_s = time.time() + LONG_S
    while time.time() < end_s:
        forge(work.store.root / store_layout.heartbeat(work.run_id, name), last)
        time.sleep(0.1)
    # Where nobody has ended it by now, its supervisor does.
    os.kill(os.getppid(), signal.SIGCONT)


def stop_the_supervisor_and_garble_its_heartbeat(work: Work) -> None:
    stop_the_supervisor_and_forge(work, lambda path, _: path.write_text('{"pod": 7'))


def stop_the_supervisor_and_forge_its_heartbeat(work: Work) -> None:
    def forge(path: Path, last: Heartbeat) -> None:
        now = datetime.now(UTC)
        forged = {"at": now + timedelta(days=1), "started_at": now, "spent_usd": Decimal(0)}
        path.write_bytes(record_bytes(last.model_copy(update=forged)))

    stop_the_supervisor_and_forge(work, forge)


def stop_the_supervisor_and_end_its_heartbeat(work: Work) -> None:
    def end(path: Path, last: Heartbeat) -> None:
        path.write_bytes(record_bytes(last.model_copy(update={"state": "done"})))

    stop_the_supervisor_and_forge(work, end)


def stop_the_supervisor_and_remove_its_heartbeat(work: Work) -> None:
    stop_the_supervisor_and_forge(work, lambda path, _: path.unlink(missing_ok=True))


def slow_down_stores() -> None:
    """Let each call to a folder's store wait while the file that `SLOW_VARIABLE` names is new."""

    def slowed(call: Callable[..., object]) -> Callable[..., object]:
        def wait_and_call(*arguments: object, **options: object) -> object:
            flag = Path(os.environ[SLOW_VARIABLE])
            if flag.exists() and time.time() - flag.stat().st_mtime < SLOW_FOR_S:
                time.sleep(SLOW_STORE_S)
            return call(*arguments, **options)

        return wait_and_call

    for name in ("fetch", "put", "list"):
        setattr(FolderStore, name, slowed(getattr(FolderStore, name)))


def stop_the_supervisor_while_the_store_is_slow(work: Work) -> None:
    Path(os.environ[SLOW_VARIABLE]).touch()
    stop_the_supervisor(work)


def kill_the_supervisor(work: Work) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    spin(work)


def stop_the_supervisor_when_told_to_stop(work: Work) -> None:
    signal_the_supervisor_at_term(signal.SIGSTOP)
    spin(work)


def kill_the_supervisor_when_told_to_stop(work: Work) -> None:
    signal_the_supervisor_at_term(signal.SIGKILL)
    spin(work)


def signal_the_supervisor_at_term(number: int) -> None:
    supervisor = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: os.kill(supervisor, number))


def stop_itself(work: Work) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def start_many(work: Work) -> None:
    for _ in range(50):
        start(SLEEP)
    sleep(work)


def keep_forking(work: Work) -> None:
    for _ in range(300):
        start("import time; time.sleep(3)")
        time.sleep(0.1)
    sleep(work)


def take_memory(work: Work) -> None:
    data = bytearray(1 << 30)
    spin(work)
    del data


def delete_its_limits(work: Work) -> None:
    (work.scratch / LIMITS_FILE).unlink(missing_ok=True)
    sleep(work)


def raise_its_limits(work: Work) -> None:
    while True:
        (work.scratch / LIMITS_FILE).write_text(
            '{"limit_usd": "999", "rate_changes": [], "deadline_s": null}'
        )
        time.sleep(0.05)


def write_garbage(work: Work) -> None:
    (work.scratch / PROGRESS_FILE).write_text('{"phase": 7')
    sleep(work)


def pretend_to_be_done(work: Work) -> None:
    (work.scratch / RESULT_FILE).write_text('{"status": "done", "outcome": {"key": "none", "rows": 1}}')
    spin(work)


def exit_and_leave_a_daemon(work: Work) -> None:
    detach(SPIN)
    os._exit(0)


def spin_in_threads(work: Work) -> None:
    for _ in range(100):
        threading.Thread(target=spin, args=(work,), daemon=True).start()
    sleep(work)


MISBEHAVIOURS: tuple[Callable[[Work], object], ...] = (
    sleep,
    spin,
    ignore_term,
    block_signals,
    spin_in_a_child,
    leave_a_daemon,
    leave_a_daemon_without_environment,
    stop_the_supervisor,
    stop_the_supervisor_and_ignore_term,
    stop_the_supervisor_and_garble_its_heartbeat,
    stop_the_supervisor_and_forge_its_heartbeat,
    stop_the_supervisor_and_end_its_heartbeat,
    stop_the_supervisor_and_remove_its_heartbeat,
    stop_the_supervisor_while_the_store_is_slow,
    stop_the_supervisor_when_told_to_stop,
    kill_the_supervisor,
    kill_the_supervisor_when_told_to_stop,
    stop_itself,
    start_many,
    keep_forking,
    take_memory,
    delete_its_limits,
    raise_its_limits,
    write_garbage,
    pretend_to_be_done,
    exit_and_leave_a_daemon,
    spin_in_threads,
)
BY_NAME = {stage.__name__: stage for stage in (obey, fail, *MISBEHAVIOURS)}
