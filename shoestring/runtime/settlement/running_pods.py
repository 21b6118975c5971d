"""Running pods, as the reaper reads them at each look: what they cost, and how long they have been silent.

A look reads one listing and one account for each run with a running pod, and one heartbeat for each pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore, ShoestringError, StoreError, UnknownName
from shoestring.core.interfaces import StagePod, StoreTimes
from shoestring.core.pod_ref import LabelledPod
from shoestring.core.receipt import PricePoint
from shoestring.data.run_records import Run, open_run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.run_setup import run_id_of_label
from shoestring.spending.heartbeat import BROKE, RUNNING_STATES, SILENT, Heartbeat, last_heartbeat
from shoestring.spending.ledger.account import AccountState, Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_between_usd


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A running pod, and the attempt whose reservation pays for it.

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
        question, began = self.decision.question, self.pod.lifetime.started_at or self.now
        first = Heartbeat(
            run_id=self.run.run_id,
            stage=question.stage,
            attempt=question.attempt,
            pod=self.pod.ref,
            state=BROKE,
            usd_per_hour=self._decided_usd_per_hour,
            started_at=began,
            at=self.now,
            interval_s=1.0,
            spent_usd=self.cost_usd,
        )
        return (self.heartbeat or first).model_copy(update={"state": BROKE, "at": self.now})

    @property
    def _decided_usd_per_hour(self) -> Decimal:
        assert self.decision.choice is not None
        return self.decision.choice.usd_per_hour


@dataclass(slots=True)
class RunningPods:
    """Reads running pods. `runs` and `decisions` are what earlier looks read: by uid of a pod, and by key."""

    world: World
    times: StoreTimes
    ledger: Ledger
    runs: dict[str, Run | None] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)

    def read(self, pods: Sequence[StagePod]) -> tuple[list[RunningPod], list[str]]:
        """Return the attempts of these pods, and a message for each run whose records cannot be read.

        A pod of an unknown run, or one whose attempt was settled, is left out. Raises StoreError.
        """
        runs: dict[str, tuple[Run, list[StagePod]]] = {}
        for pod in pods:
            if run := self._run_of(pod):
                runs.setdefault(run.run_id, (run, []))[1].append(pod)
        found: list[RunningPod] = []
        messages: list[str] = []
        for run, own in runs.values():
            try:
                found += self._read_run(run, own)
            except ShoestringError as error:
                if isinstance(error, StoreError) and not isinstance(error, NotInStore):
                    raise
                messages.append(f"the running pods of {run.run_id} cannot be judged: {error}")
        return found, messages

    def _run_of(self, pod: StagePod) -> Run | None:
        """Return the run of a pod. It is read once: a new start of a run has new pods."""
        if pod.ref.uid not in self.runs:
            try:
                run = open_run(self.world.store, run_id_of_label(self.world.store, pod.run_id))
                self.runs[pod.ref.uid] = run if run.starts else None
            except (UnknownName, DataError):
                self.runs[pod.ref.uid] = None
        return self.runs[pod.ref.uid]

    def _read_run(self, run: Run, pods: Sequence[StagePod]) -> Iterator[RunningPod]:
        state = self.ledger.state(run.start.account)
        written = self.times.modified(store_layout.heartbeats(run.run_id))
        for pod in pods:
            for name, reservation in state.reservations.items():
                if reservation.stage == pod.stage:
                    found = self._read_attempt(run, pod, name, state, written)
                    yield from [found] if found else []

    def _read_attempt(
        self, run: Run, pod: StagePod, name: str, state: AccountState, written: Mapping[str, datetime]
    ) -> RunningPod | None:
        """Return the attempt of this name if it is this pod's."""
        key, reservation = store_layout.heartbeat(run.run_id, name), state.reservations[name]
        heartbeat = last_heartbeat(self.world.store, run.run_id, name) if key in written else None
        began = pod.lifetime.started_at
        if heartbeat and heartbeat.pod != pod.ref and not isinstance(heartbeat.pod, LabelledPod):
            return None
        if heartbeat is None and (began is None or began < reservation.reserved_at):
            return None
        return RunningPod(
            pod=pod,
            run=run,
            name=name,
            decision=self._decision(reservation.decision_key or store_layout.decision(run.run_id, name)),
            reservation=reservation,
            left_usd=left_for(state, reservation.stage),
            heartbeat=heartbeat,
            heartbeat_at=written.get(key),
            now=pod.lifetime.asked_at or self.world.clock.now(),
        )

    def _decision(self, key: str) -> Decision:
        if key not in self.decisions:
            self.decisions[key] = read_record(self.world.store, key, Decision)
        return self.decisions[key]


def left_for(state: AccountState, stage: str) -> Decimal | None:
    """Return what an account can still give a stage, within the stage's own cap; None: without limit."""
    found = state.stages.get(stage)
    cap_usd = found.cap_usd if found else None
    stage_left = [] if found is None or cap_usd is None else [cap_usd - found.spent_usd - found.held_usd]
    limits = [*stage_left, *([] if state.left_usd is None else [state.left_usd])]
    return max(Decimal(0), min(limits)) if limits else None
