"""Measures a few steps of a training loop, and then leaves it alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from decimal import Decimal
from typing import NamedTuple, Protocol

from shoestring.core.money import usd
from shoestring.training.profiling.advice import advised, badly_conditioned
from shoestring.training.profiling.profile import (
    DeviceMemory,
    Lever,
    Operator,
    OperatorKind,
    Profile,
    Trial,
    WeightStep,
)

WARM_STEPS, TIMED_STEPS, PROFILED_STEPS, TRIED_STEPS = 5, 10, 3, 8
MOST_ACCUMULATED = 32
"""Steps of a loop in which one of its optimizer is expected: some loops add up the gradients of several
batches."""

PROFILED_FACTOR, PROFILER_S = 2.0, 0.3
"""What a step takes with the profiler, as a multiple, and what the profiler takes besides: assumed for the
check for time."""

MOST_OPERATORS = 20
LIMIT_SHARE = 0.02
"""Of a budget: what a profile takes beyond the steps that would be made anyway."""


class OperatorTime(NamedTuple):
    """An operator in one step, or in several."""

    name: str
    kind: OperatorKind
    calls: int
    host_s: float
    device_s: float
    bytes: int


class Tools(Protocol):
    """The part of a framework in the profile of a loop."""

    framework: str

    @property
    def would_use_bf16(self) -> bool:
        """Whether the device computes in bf16, and the loop does not."""
        ...

    @property
    def device(self) -> str:
        """The name of the device that computes the steps."""
        ...

    def wait(self) -> None:
        """Wait for the steps that the device was given."""
        ...

    def start(self) -> None:
        """Start to record the operators of a step."""
        ...

    def stop(self) -> list[OperatorTime]: ...

    def watch_weights(self) -> None:
        """Record the next step of each optimizer."""
        ...

    def weights(self) -> list[WeightStep]:
        """Stop that. Return the weights of the steps since."""
        ...

    def threads(self) -> int: ...

    def memory(self) -> DeviceMemory | None: ...


class Setting(NamedTuple):
    """A change that is tried for some steps."""

    lever: Lever
    name: str
    apply: Callable[[], object]
    undo: Callable[[], object]


class Pace(NamedTuple):
    """Steps without the profiler."""

    rows: int
    seconds: float
    loading_s: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / max(1e-9, self.seconds)


class LoopProfile:
    """The profile of a loop, which calls `begin_step` and `end_step` at each step until `profile` is there.

    What is measured beyond the steps themselves takes at most `limit_s`. What the loop does between two
    steps, such as a validation, is in no measurement. `usd_per_hour`: the price of the machine. `settings`:
    what is tried, each for a few steps that are steps of the training, too.
    """

    def __init__(
        self,
        tools: Tools,
        limit_s: float,
        usd_per_hour: Decimal,
        settings: Sequence[Setting] = (),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.profile: Profile | None = None
        self._tools, self._limit_s, self._usd_per_hour, self._now_s = tools, limit_s, usd_per_hour, now_s
        self._settings = settings
        self._rows = 0
        self._loading_s = self._spent_s = 0.0
        self._left_out = list[str]()
        self._moments = self._run()

    def begin_step(self, rows: int, loading_s: float) -> None:
        """Begin a step over some rows, for which the loop has waited some seconds."""
        self._rows, self._loading_s = rows, loading_s
        next(self._moments, None)

    def end_step(self) -> None:
        next(self._moments, None)

    def _run(self) -> Generator[None]:
        """Run from the first step's begin, and yield until each end and each begin in turn."""
        yield from self._made(WARM_STEPS)
        plain = yield from self._timed(TIMED_STEPS)
        step_s = plain.seconds / TIMED_STEPS
        operators, weights = dict[str, OperatorTime](), list[WeightStep]()
        if self._has_time("operators", PROFILER_S + PROFILED_STEPS * (PROFILED_FACTOR - 1) * step_s):
            operators = yield from self._profiled(plain)
        if self._has_time("weights", step_s):
            weights = yield from self._watched(plain)
        trials = list[Trial]()
        for setting in self._settings:
            # A slower setting costs up to a few times as much.
            if self._has_time(f"{setting.lever} ({setting.name})", TRIED_STEPS * step_s):
                setting.apply()
                yield from self._made(2)
                pace = yield from self._timed(TRIED_STEPS)
                setting.undo()
                self._spent_s += max(0.0, pace.seconds - pace.rows / plain.rows_per_s)
                gain = pace.rows_per_s / plain.rows_per_s
                trials.append(
                    Trial(
                        lever=setting.lever,
                        setting=setting.name,
                        rows_per_s=round(pace.rows_per_s, 3),
                        gain=round(gain, 3),
                    )
                )
        self.profile = self._found(plain, list(operators.values()), weights, trials)

    def _made(self, steps: int) -> Generator[None]:
        for _ in range(2 * steps):
            yield

    def _timed(self, steps: int) -> Generator[None, None, Pace]:
        """Make steps, and return their pace."""
        self._tools.wait()
        rows, seconds, loading_s = 0, 0.0, 0.0
        for step in range(steps):
            began_s = self._now_s() - self._loading_s
            rows += self._rows
            loading_s += self._loading_s
            yield
            if step == steps - 1:
                self._tools.wait()
            seconds += self._now_s() - began_s
            yield
        return Pace(rows, seconds, loading_s)

    def _profiled(self, plain: Pace) -> Generator[None, None, dict[str, OperatorTime]]:
        """Make steps with the profiler, and return the operators of all. A validation between is in none."""
        found = dict[str, OperatorTime]()
        for _ in range(PROFILED_STEPS):
            began_s = self._now_s()
            self._tools.start()
            yield
            for each in self._tools.stop():
                found[each.name] = added(found[each.name], each) if each.name in found else each
            self._note_spent(began_s, plain)
            yield
        return found

    def _watched(self, plain: Pace) -> Generator[None, None, list[WeightStep]]:
        """Make steps until one of them is a step of an optimizer, and return the weights of that one."""
        weights = list[WeightStep]()
        for _ in range(MOST_ACCUMULATED):
            began_s = self._now_s()
            self._tools.watch_weights()
            yield
            weights = self._tools.weights()
            self._note_spent(began_s, plain)
            yield
            if weights:
                break
        return weights

    def _note_spent(self, began_s: float, plain: Pace) -> None:
        """Count what a step took longer than one without a measurement."""
        computing_s = (plain.seconds - plain.loading_s) / TIMED_STEPS
        self._spent_s += max(0.0, self._now_s() - began_s - computing_s)

    def _has_time(self, what: str, seconds: float) -> bool:
        has_time = self._spent_s + seconds <= self._limit_s
        if not has_time:
            self._left_out.append(what)
        return has_time

    def _found(
        self,
        plain: Pace,
        times: Sequence[OperatorTime],
        weights: Sequence[WeightStep],
        trials: Sequence[Trial],
    ) -> Profile:
        tools, step_s = self._tools, plain.seconds / TIMED_STEPS
        memory, rows = tools.memory(), max(1, round(plain.rows / TIMED_STEPS))
        host_s = sum(each.host_s for each in times) / PROFILED_STEPS
        device_s = sum(each.device_s for each in times) / PROFILED_STEPS
        # With the profiler the host is slower; of a device, only the host waits.
        whole_s = max(step_s, host_s if memory is None else device_s)
        operators = tuple(self._operators(times, whole_s, rows, memory is not None))
        loading_share = plain.loading_s / plain.seconds if plain.seconds else 0.0
        device_share = None if memory is None else min(1.0, device_s / step_s)
        return Profile(
            device=tools.device,
            framework=tools.framework,
            threads=tools.threads(),
            rows=rows,
            step_s=round(step_s, 6),
            loading_share=round(loading_share, 4),
            usd_per_hour=self._usd_per_hour,
            operators=operators[:MOST_OPERATORS],
            host_s=round(host_s, 6),
            device_s=None if memory is None else round(device_s, 6),
            memory=memory,
            trials=tuple(trials),
            advice=advised(operators, trials, loading_share, device_share, tools.would_use_bf16),
            badly_conditioned=badly_conditioned(weights),
            profile_s=round(self._spent_s, 3),
            limit_s=round(self._limit_s, 3),
            left_out=tuple(self._left_out),
        )

    def _operators(
        self, times: Sequence[OperatorTime], whole_s: float, rows: int, on_device: bool
    ) -> list[Operator]:
        found = []
        for each in times:
            seconds = (each.device_s if on_device else each.host_s) / PROFILED_STEPS
            hours = Decimal(repr(seconds)) * 1_000_000 / rows / 3600
            found.append(
                Operator(
                    name=each.name,
                    kind=each.kind,
                    calls=each.calls / PROFILED_STEPS,
                    seconds=round(seconds, 9),
                    share=round(seconds / whole_s, 4),
                    usd=usd(hours * self._usd_per_hour),
                    bytes=max(0, round(each.bytes / PROFILED_STEPS)),
                )
            )
        return sorted(found, key=lambda each: -each.seconds)


def added(first: OperatorTime, second: OperatorTime) -> OperatorTime:
    """Return the sum of one operator's two records."""
    return first._replace(
        calls=first.calls + second.calls,
        host_s=first.host_s + second.host_s,
        device_s=first.device_s + second.device_s,
        bytes=first.bytes + second.bytes,
    )
