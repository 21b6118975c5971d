"""Stages that try to spend more than they may. `stopwatch.py` runs each in place of a stage of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from shoestring.core.types import StageOutcome
from shoestring.runtime.supervisor.child import PROGRESS_FILE, RESULT_FILE
from shoestring.runtime.supervisor.spend_limits import LIMITS_FILE
from shoestring.stages.work import Work

LONG_S = 600
SPIN = f"import time\nend = time.time() + {LONG_S}\nwhile time.time() < end: pass"
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
