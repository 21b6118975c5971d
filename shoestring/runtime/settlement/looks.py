"""The reaper's looks at running pods, every few seconds: it ends silent pods, pods beyond their money, and
pods that no attempt pays for.

It is the second line of defence, outside the pod: a supervisor that is stopped or hangs can neither meter nor
stop its stage. Heartbeats are objects of a store, and a store that is away silences every pod, so silence
counts only while the reaper itself can write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import NotInStore, ShoestringError, StoreError
from shoestring.core.interfaces import Clock, EndReason, PendingPods, StagePod, StoreTimes
from shoestring.runtime.records.world_ledger import forget_accounts, world_ledger
from shoestring.runtime.settlement.external_pods import ExternalStage, out_of_money
from shoestring.runtime.settlement.reap import reap
from shoestring.runtime.settlement.retried_components import why_unpaid
from shoestring.runtime.settlement.running_pods import RunningPod, RunningPods, UnpaidPod, is_running
from shoestring.spending.heartbeat import SILENT, ended_silent, put_heartbeat, silence_limit_s

SLOW_PROBE_S = 3.0
"""A store that takes longer to accept the reaper's probe may have been away meanwhile."""
MAX_PROBE_GAP_SHARE = 0.8
"""Share of the silence limit. If two probes are further apart, the store may have been away meanwhile, or no
reaper ran.
"""


@dataclass(slots=True)
class StoreProbe:
    """Writes an object at each look, which tells the store's own time and whether the store is there.

    `steady_since`: since when every probe was accepted at once, by the store's clock. The object holds it,
    for the reaper of the next minute. `probed_at`: when the last one was written; None: not by this process.
    """

    world: World
    times: StoreTimes
    steady_since: datetime | None = None
    probed_at: datetime | None = None

    def write(self) -> datetime:
        """Write a probe, and return the store's time. Raises StoreError."""
        key, began_s = store_layout.REAPER_PROBE, self.world.clock.monotonic_s()
        try:
            if self.probed_at is None:
                self._read_last(key)
            before, since = self.probed_at, self.steady_since
            # If this write fails, the next one is the first.
            self.probed_at = self.steady_since = None
            now = self._put(key, since)
            took_s = self.world.clock.monotonic_s() - began_s
            if since is None or before is None or took_s > SLOW_PROBE_S or now - before > self._max_gap:
                since = now
                self._put(key, since)
        except (StoreError, KeyError) as error:
            raise StoreError(f"the store does not keep the reaper's probe: {error}") from error
        self.probed_at, self.steady_since = now, since
        return now

    def _put(self, key: str, since: datetime | None) -> datetime:
        self.world.store.put(key, since.isoformat().encode() if since else b"")
        return self.times.modified(key)[key]

    def _read_last(self, key: str) -> None:
        """Read the probe of the reaper before this one, if it wrote one."""
        with suppress(NotInStore, ValueError):
            self.steady_since = datetime.fromisoformat(self.world.store.fetch(key).read_text())
            self.probed_at = self.times.modified(key).get(key)

    @property
    def _max_gap(self) -> timedelta:
        policy = self.world.policy
        limit_s = silence_limit_s(policy.heartbeat_s, policy.silent_intervals)
        return timedelta(seconds=limit_s * MAX_PROBE_GAP_SHARE)

    def silent_s(self, each: RunningPod, now: datetime) -> float:
        """Return for how long a pod has been silent while the store took the probes."""
        assert each.heartbeat_at is not None and self.steady_since is not None
        return (now - max(each.heartbeat_at, self.steady_since)).total_seconds()


@dataclass(slots=True)
class RunningPodsWatch:
    """The state of one reaper process between its looks. `has_judged`: the last look could judge all pods."""

    world: World
    pending: PendingPods
    probe: StoreProbe
    reader: RunningPods
    has_judged: bool = False

    def look(self) -> list[str]:
        """End the running pods that are silent, have cost more than their accounts can pay, or that no
        attempt pays for; return what was done.

        A store that fails is a message: nothing is ended without it. Raises ClusterError.
        """
        self.has_judged = False
        try:
            messages = self._judge()
        except StoreError as error:
            return [f"no running pod was judged: {error}"]
        self.has_judged = True
        return messages

    def _judge(self) -> list[str]:
        pods = self.pending.pods()
        if not any(map(is_running, pods)):
            return []
        now, found = self.probe.write(), self.reader.read(pods)
        running, messages = found.supervised, found.messages
        messages += [message for each in found.external for message in self._judge_external(each)]
        for unpaid in found.unpaid:
            messages += self._judge_unpaid(unpaid)
        broke = [each for each in running if each.is_out_of_money]
        messages += [message for each in broke for message in self._end_broke(each)]
        metered = [each for each in running if each.is_metered]
        silent = [each for each in metered if self._is_silent(each, now)]
        if len(metered) > 1 and len(silent) * 2 > len(metered):
            return [*messages, all_silent(silent, metered)]
        for each in silent:
            messages += [] if each in broke else self._end_silent(each)
        return messages

    def _is_silent(self, each: RunningPod, now: datetime) -> bool:
        """Return whether a pod wrote no heartbeat for too long, or was found silent at an earlier look."""
        assert each.heartbeat is not None
        limit_s = silence_limit_s(each.heartbeat.interval_s, self.world.policy.silent_intervals)
        return each.heartbeat.state == SILENT or self.probe.silent_s(each, now) > limit_s

    def _end_silent(self, each: RunningPod) -> list[str]:
        """End a silent pod. Its last heartbeat is written first, so that it pays up to its end."""
        heartbeat = each.heartbeat
        assert heartbeat is not None
        lasted_s = (each.now - heartbeat.at).total_seconds()
        put_heartbeat(self.world.store, ended_silent(heartbeat, each.now))
        interval = f"its interval is {heartbeat.interval_s:g} s"
        return self._end(each, "Silent", f"its last heartbeat is {lasted_s:.0f} s old, and {interval}")

    def _end_broke(self, each: RunningPod) -> list[str]:
        """End a pod that has cost more than its account can pay."""
        if each.heartbeat is None or each.is_metered:
            put_heartbeat(self.world.store, each.ended_broke())
        message = f"it cost ${each.cost_usd}, and its account has ${each.most_usd} for it"
        return self._end(each, "OutOfMoney", message)

    def _judge_external(self, stage: ExternalStage) -> list[str]:
        """End the pods of an external component whose money is used up, after the ledger refused more."""
        try:
            reason = out_of_money(self.world, self.reader.ledger, stage)
        except ShoestringError as error:
            if isinstance(error, StoreError) and not isinstance(error, NotInStore):
                raise
            return [f"{stage.name} of {stage.run.run_id} cannot be judged: {error}"]
        pods = stage.running if reason else ()
        return [message for pod in pods for message in self._end_pod(pod, stage, "OutOfMoney", reason)]

    def _judge_unpaid(self, unpaid: UnpaidPod) -> list[str]:
        """End a pod that no attempt pays for, unless it gets one, which the next look finds."""
        if reason := why_unpaid(self.world, unpaid):
            return self._end_pod(unpaid.pod, unpaid, "Unpaid", reason)
        del self.reader.runs[unpaid.pod.ref.uid]
        return []

    def _end(self, each: RunningPod, reason: EndReason, message: str) -> list[str]:
        return self._end_pod(each.pod, each, reason, message)

    def _end_pod(
        self,
        pod: StagePod,
        each: RunningPod | ExternalStage | UnpaidPod,
        reason: EndReason,
        message: str,
    ) -> list[str]:
        if not self.pending.end(pod, reason, message):
            return []
        return [f"{pod.ref.name} was ended ({each.name} of {each.run.run_id}): {message}"]


def all_silent(silent: Sequence[RunningPod], metered: Sequence[RunningPod]) -> str:
    """Return the alert that no silent pod is ended."""
    names = ", ".join(each.pod.ref.name for each in silent)
    return (
        f"alert: {len(silent)} of {len(metered)} running pods are silent together, so none of them is ended: "
        f"check whether pods can reach the store, and end by hand those that hang ({names})"
    )


def open_watch(world: World, pending: PendingPods, times: StoreTimes) -> RunningPodsWatch:
    """Return the watch of one reaper process."""
    forget_accounts(world)
    ledger = world_ledger(world)
    return RunningPodsWatch(world, pending, StoreProbe(world, times), RunningPods(world, times, ledger))


def reap_once(world: World, pending: PendingPods, times: StoreTimes) -> Iterator[str]:
    """Look at running pods once, and reap; yield what was done."""
    yield from open_watch(world, pending, times).look()
    yield from reap(world, pending)


def look_for(
    watch: RunningPodsWatch, for_s: float, every_s: float, ready_file: Path | None = None
) -> Iterator[str]:
    """Look at running pods every `every_s` for `for_s` seconds; yield what was done.

    An error of one look does not end the others; the last one's is raised. `ready_file` is touched after each
    look that judged all pods.
    """
    failed = None
    for _ in look_numbers(watch.world.clock, for_s, every_s):
        if failed:
            yield f"a look failed: {failed}"
        failed = None
        try:
            yield from watch.look()
        except ShoestringError as error:
            failed = error
        if ready_file and watch.has_judged:
            ready_file.touch()
    if failed:
        raise failed


def look_numbers(clock: Clock, for_s: float, every_s: float) -> Iterator[int]:
    """Yield a number when each look is due. One that took longer is followed at once: none is made up for."""
    began_s = due_s = clock.monotonic_s()
    for number in count():
        yield number
        due_s = max(due_s + every_s, clock.monotonic_s())
        if due_s > began_s + for_s:
            return
        clock.sleep(due_s - clock.monotonic_s())
