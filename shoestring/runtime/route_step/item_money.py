"""The route step of an item of a loop: it waits for money that other items of its loop may leave."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import declared_stage, item_of
from shoestring.core.errors import ClusterError, Refused
from shoestring.data.run_records import Run, read_record
from shoestring.routing.decision import Decision
from shoestring.routing.loop_items import LoopItem
from shoestring.runtime.records.lifetimes import is_silent, lifetime_of
from shoestring.runtime.route_step.concurrent_stages import last_attempt
from shoestring.runtime.route_step.external_components import ended_components, settle_external
from shoestring.runtime.route_step.shared_result import SharedResult
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.account import Reservation
from shoestring.spending.ledger.ledger import Ledger

MIN_POLL_S, MAX_POLL_S, POLL_SHARE = 0.5, 10.0, 0.1
"""The time between two looks at the other items is this share of the wait so far, between the two limits."""


def check_item(world: World, run: Run, stage: str, item: LoopItem | None) -> None:
    """Raise Refused if an earlier attempt at an item worked on another value."""
    last = last_attempt(world, run, stage) if item else None
    if item is None or last is None:
        return
    decision = read_record(world.store, store_layout.decision(run.run_id, last), Decision)
    if decision.question.digests.get("item") != item.sha256:
        raise Refused(
            f"item {item.name} of {declared_stage(stage)} is another than the one that {run.run_id} began "
            "with: the list of its loop has changed, so start a run with a new id"
        )


@dataclass(slots=True)
class ItemMoney:
    """Waits in the route step of `stage`. `shared`: has its pod, and the notes for its decision. `seen`: the
    reservations of other items when it asked last. `waited_s`, and `note`: of the waits so far.
    """

    world: World
    run: Run
    ledger: Ledger
    stage: str
    shared: SharedResult
    seen: frozenset[str] = frozenset()
    waited_s: float = 0.0
    note: str = ""

    def look(self) -> None:
        """See which other items of the loop hold money, before a question is asked."""
        self.seen = frozenset(self._others())

    def may_come(self) -> bool:
        """Wait until the other items hold other reservations than at the last look, and return True; False:
        none of them may leave any money, or the deadline has passed.
        """
        came = True
        while came and self._others().keys() == self.seen:
            left_s = self.run.deadline_left_s(self.world.clock.now())
            came = self._may_leave_some() and (left_s is None or left_s > 0)
            if came:
                self._wait()
        if self.waited_s:
            before = tuple(each for each in self.shared.notes if each != self.note)
            self.note = f"waited {self.waited_s:.1f} s for money that other items of its loop held"
            self.shared.notes = (*before, self.note)
        return came

    def _wait(self) -> None:
        """Sleep, and settle external components that are done, since nothing in their pods does."""
        clock = self.world.clock
        began_s = clock.monotonic_s()
        clock.sleep(min(MAX_POLL_S, max(MIN_POLL_S, POLL_SHARE * self.waited_s)))
        if ended := ended_components(self.world, self.run, self.ledger, self.stage):
            settle_external(self.world, self.run, self.run.start, ended)
        passed_s = clock.monotonic_s() - began_s
        self.waited_s += passed_s
        self.shared.pod.waited_s += passed_s

    def _others(self) -> dict[str, Reservation]:
        """Return the open reservations of the other items of the loop; none outside of loops."""
        if not item_of(self.stage):
            return {}
        name, state = declared_stage(self.stage), self.ledger.state(self.run.start.account)
        return {
            reservation: each
            for reservation, each in state.reservations.items()
            if each.stage != self.stage and declared_stage(each.stage) == name and item_of(each.stage)
        }

    def _may_leave_some(self) -> bool:
        """Return whether the pod of another item runs, or may still begin."""
        for name, reservation in self._others().items():
            heartbeat = last_heartbeat(self.world.store, self.run.run_id, name)
            if not is_silent(self.world, reservation, heartbeat):
                return True
            with suppress(ClusterError):
                if heartbeat and lifetime_of(self.world, heartbeat).alive:
                    return True
        return False
