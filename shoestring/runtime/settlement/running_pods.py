"""Running pods, as the reaper reads them at each look: what they cost, what pays for them, and how long they
have been silent.

A look reads one listing and one account for each run with a running pod, and one heartbeat for each attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId, declared_stage
from shoestring.core.errors import DataError, NotInStore, ShoestringError, StoreError, UnknownName
from shoestring.core.interfaces import StagePod, StoreTimes
from shoestring.core.pod_ref import LabelledPod
from shoestring.core.receipt import PricePoint
from shoestring.data.run_records import Run, open_run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.stage_budgets import account_states
from shoestring.runtime.records.run_setup import run_id_of_label
from shoestring.runtime.route_step.external_components import is_between, pods_since
from shoestring.runtime.settlement.external_pods import ExternalStage
from shoestring.spending.heartbeat import (
    BROKE,
    RUNNING_STATES,
    SILENT,
    UNSUPERVISED,
    Heartbeat,
    attempt_heartbeat,
    last_heartbeat,
)
from shoestring.spending.ledger.account import AccountState, Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_between_usd


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A running pod with a supervisor, and the attempt whose reservation pays for it.

    `heartbeat` None: it wrote none yet. `heartbeat_at`: when that was written, by the store's clock.
    `left_usd`: what its account can still add to its reservation; None: without limit.
    """

    pod: StagePod
    run: Run
    name: str
    decision: Decision
    reservation: Reservation
    left_usd: Decimal | None
    heartbeat: Heartbeat | None
    heartbeat_at: datetime | None
    now: datetime

    @property
    def is_metered(self) -> bool:
        """Whether a supervisor writes heartbeats for this attempt."""
        return self.heartbeat is not None and self.heartbeat.state in (*RUNNING_STATES, SILENT, BROKE)

    @property
    def cost_usd(self) -> Decimal:
        """What the pod has cost since a node accepted it, by the cluster's clock, with the fees that it owes.

        Without a meter, the price of its decision counts.
        """
        began = self.pod.lifetime.started_at or self.now
        prices = self.heartbeat.prices if self.heartbeat else ()
        if not prices:
            price = self.heartbeat.usd_per_hour if self.heartbeat else self._decided_usd_per_hour
            prices = (PricePoint(at=began, usd_per_hour=price),)
        fees_usd = self.heartbeat.fees_usd if self.heartbeat and self.is_metered else Decimal(0)
        return cost_between_usd(prices, began, self.now) + fees_usd

    @property
    def most_usd(self) -> Decimal | None:
        """The most that its account could pay for it; None: without limit."""
        return None if self.left_usd is None else self.reservation.amount_usd + self.left_usd

    @property
    def is_out_of_money(self) -> bool:
        return self.most_usd is not None and self.cost_usd > self.most_usd

    def ended_broke(self) -> Heartbeat:
        """Return the heartbeat that says that the pod ends now for its money; the first if it wrote none."""
        if self.heartbeat:
            return self.heartbeat.model_copy(update={"state": BROKE, "at": self.now})
        began = self.pod.lifetime.started_at or self.now
        return attempt_heartbeat(self.decision, self.pod.ref, BROKE, began, self.now, spent_usd=self.cost_usd)

    @property
    def _decided_usd_per_hour(self) -> Decimal:
        assert self.decision.choice is not None
        return self.decision.choice.usd_per_hour


@dataclass(frozen=True, slots=True)
class UnpaidPod:
    """A running pod of an external component whose attempts are all settled; `name`: the newest of them, and
    `labels`: those that it names its pod by.
    """

    pod: StagePod
    run: Run
    name: str
    labels: LabelledPod
    settled_usd: Decimal

    @property
    def reason(self) -> str:
        settled, run_id = f"{self.name} was settled at ${self.settled_usd}", self.run.run_id
        return f"{settled}, and no open attempt pays for it: run {run_id} again to get a new attempt"


@dataclass(frozen=True, slots=True)
class FoundAttempts:
    """The attempts that have a running pod, the pods that no attempt pays for, and a message for each run
    whose records cannot be read.
    """

    supervised: list[RunningPod] = field(default_factory=list)
    external: list[ExternalStage] = field(default_factory=list)
    unpaid: list[UnpaidPod] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RunningPods:
    """Reads running pods. `runs` and `decisions` are what earlier looks read: by uid of a pod, and by key."""

    world: World
    times: StoreTimes
    ledger: Ledger
    runs: dict[str, Run | None] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)

    def read(self, pods: Sequence[StagePod]) -> FoundAttempts:
        """Return the attempts of the running ones of these pods, and what could not be read.

        A pod of an unknown run is left out, and one with a supervisor whose attempt was settled: that
        supervisor ends it. Raises StoreError.
        """
        runs: dict[str, Run] = {}
        labels: dict[str, str] = {}
        for pod in filter(is_running, pods):
            if run := self._run_of(pod):
                # A pod of an earlier start may still run, and its run was read before the newest start.
                newest = max(runs.get(run.run_id, run), run, key=lambda each: each.start.number)
                runs[run.run_id], labels[pod.run_id] = newest, run.run_id
        found = FoundAttempts()
        for run_id, run in runs.items():
            own = [pod for pod in pods if labels.get(pod.run_id) == run_id]
            try:
                each = self._read_run(run, own)
            except ShoestringError as error:
                if isinstance(error, StoreError) and not isinstance(error, NotInStore):
                    raise
                found.messages.append(f"the running pods of {run_id} cannot be judged: {error}")
                continue
            found.supervised.extend(each.supervised)
            found.external.extend(each.external)
            found.unpaid.extend(each.unpaid)
        return found

    def _run_of(self, pod: StagePod) -> Run | None:
        """Return the run of a pod. It is read once: a new start of a run has new pods."""
        if pod.ref.uid not in self.runs:
            try:
                run = open_run(self.world.store, run_id_of_label(self.world.store, pod.run_id))
                self.runs[pod.ref.uid] = run if run.starts else None
            except (UnknownName, DataError):
                self.runs[pod.ref.uid] = None
        return self.runs[pod.ref.uid]

    def _read_run(self, run: Run, pods: Sequence[StagePod]) -> FoundAttempts:
        """Return the attempts of a run. `pods`: all of the run's, those that ended too."""
        state = self.ledger.state(run.start.account)
        written = self.times.modified(store_layout.heartbeats(run.run_id))
        found = FoundAttempts()
        for name, reservation in state.reservations.items():
            own = [pod for pod in pods if pod.stage == reservation.stage]
            if not any(map(is_running, own)):
                continue
            key = store_layout.heartbeat(run.run_id, name)
            heartbeat = last_heartbeat(self.world.store, run.run_id, name) if key in written else None
            if heartbeat and heartbeat.state == UNSUPERVISED:
                found.external.append(self._external_stage(run, own, name, reservation, heartbeat))
                continue
            found.supervised.extend(
                self._running_pod(run, pod, name, state, heartbeat, written.get(key))
                for pod in filter(is_running, own)
                if is_attempts_pod(pod, reservation, heartbeat)
            )
        paid = {reservation.stage for reservation in state.reservations.values()}
        if others := [pod for pod in pods if is_running(pod) and pod.stage not in paid]:
            found.unpaid.extend(self._unpaid_pods(run.run_id, others))
        return found

    def _unpaid_pods(self, run_id: str, pods: Sequence[StagePod]) -> list[UnpaidPod]:
        """Return those of these running pods of a run that belong to an external component whose attempts are
        all settled, in all starts.

        A router reserves before its component's pod exists, so a pod that was listed has its attempt. The run
        is read again: a start that is newer than the pod may have an open attempt.
        """
        run = open_run(self.world.store, run_id)
        states = account_states(self.ledger, run.starts)
        paid = {each.stage for state in states for each in state.reservations.values()}
        settled_usd = {
            AttemptId.parse(run_id, name): usd for state in states for name, usd in state.settled_usd.items()
        }
        found = []
        for pod in (each for each in pods if each.stage not in paid):
            newest = max((each for each in settled_usd if each.stage == pod.stage), default=None)
            heartbeat = last_heartbeat(self.world.store, run_id, newest) if newest else None
            # A supervisor's heartbeat names its own pod, and a supervisor ends once its attempt is settled.
            if newest and heartbeat and isinstance(heartbeat.pod, LabelledPod):
                found.append(UnpaidPod(pod, run, str(newest), heartbeat.pod, settled_usd[newest]))
        return found

    def _external_stage(
        self,
        run: Run,
        pods: Sequence[StagePod],
        name: str,
        reservation: Reservation,
        heartbeat: Heartbeat,
    ) -> ExternalStage:
        """Return an attempt at an external component. `pods`: the stage's, also those of earlier attempts."""
        decision, running = self._decision_of(run, name, reservation), tuple(filter(is_running, pods))
        ended = [pod for pod in pods if not pod.lifetime.alive]
        of_others = [pod for pod in ended if not is_between(pod.lifetime, pods_since(decision))]
        return ExternalStage(
            run=run,
            name=name,
            decision=decision,
            reservation=reservation,
            heartbeat=heartbeat,
            pods=tuple(pod for pod in pods if pod not in of_others),
            running=running,
            now=running[0].lifetime.asked_at or self.world.clock.now(),
        )

    def _running_pod(
        self,
        run: Run,
        pod: StagePod,
        name: str,
        state: AccountState,
        heartbeat: Heartbeat | None,
        heartbeat_at: datetime | None,
    ) -> RunningPod:
        reservation = state.reservations[name]
        return RunningPod(
            pod=pod,
            run=run,
            name=name,
            decision=self._decision_of(run, name, reservation),
            reservation=reservation,
            left_usd=left_for(state, reservation.stage),
            heartbeat=heartbeat,
            heartbeat_at=heartbeat_at,
            now=pod.lifetime.asked_at or self.world.clock.now(),
        )

    def _decision_of(self, run: Run, name: str, reservation: Reservation) -> Decision:
        key = reservation.decision_key or store_layout.decision(run.run_id, name)
        if key not in self.decisions:
            self.decisions[key] = read_record(self.world.store, key, Decision)
        return self.decisions[key]


def is_running(pod: StagePod) -> bool:
    """Return whether a pod runs and nobody has ended it."""
    return pod.lifetime.alive and not (pod.pending or pod.ending)


def is_attempts_pod(pod: StagePod, reservation: Reservation, heartbeat: Heartbeat | None) -> bool:
    """Return whether a pod is the one that this reservation pays for."""
    if heartbeat:
        return heartbeat.pod == pod.ref
    return pod.lifetime.began_since(reservation.reserved_at)


def left_for(state: AccountState, stage: str) -> Decimal | None:
    """Return what an account can still give a stage, within the stage's own cap; None: without limit."""
    found = state.stages.get(declared_stage(stage))
    cap_usd = found.cap_usd if found else None
    stage_left = [] if found is None or cap_usd is None else [cap_usd - found.spent_usd - found.held_usd]
    limits = [*stage_left, *([] if state.left_usd is None else [state.left_usd])]
    return max(Decimal(0), min(limits)) if limits else None
