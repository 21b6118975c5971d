"""Reservations of dead pods are settled at what the pods cost, and never above the reserved amount."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import psutil
import pytest
from clocks import NOON, StillClock
from examples import examples
from faulty_stores import fast_folder
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import LocalCluster
from shoestring.core import store_layout
from shoestring.core.errors import DataError, UnknownName
from shoestring.core.interfaces import PodLifetime
from shoestring.core.money import from_microusd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.spending.heartbeat import BROKE, LOST, SILENT, Heartbeat, ended_silent, last_heartbeat
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_ended, settle_lost_pods


def uid_of(pid: int) -> str:
    return f"{socket.gethostname()}.{pid}.{int(psutil.Process(pid).create_time() * 1000)}"


def a_dead_pod() -> str:
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    uid = uid_of(process.pid)
    process.join()
    return uid


@pytest.fixture(scope="module")
def dead() -> str:
    return a_dead_pod()


@pytest.fixture
def store(tmp_path) -> FolderStore:
    return FolderStore(tmp_path)


@pytest.fixture
def ledger(store) -> Ledger:
    ledger = Ledger(store, StillClock())
    ledger.open("run", Decimal("1"))
    ledger.reserve("run", "overhead", "overhead", 1, Decimal("0.01"))
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.05"))
    return ledger


def write_heartbeat(
    store: FolderStore, pod: str, *, after_s: float, usd_per_hour: str = "1.8", reservation: str = "train-1"
) -> Heartbeat:
    stage, _, attempt = reservation.partition("-")
    heartbeat = Heartbeat(
        run_id="run",
        stage=stage,
        attempt=int(attempt),
        pod=PodRef.parse(pod),
        state="running",
        usd_per_hour=Decimal(usd_per_hour),
        started_at=NOON,
        at=NOON + timedelta(seconds=after_s),
        interval_s=2.0,
        spent_usd=Decimal(0),
    )
    store.put(store_layout.heartbeat("run", reservation), record_bytes(heartbeat))
    return heartbeat


def lifetime_in(cluster: LocalCluster) -> Callable[[Heartbeat], PodLifetime]:
    return lambda heartbeat: cluster.lifetime(heartbeat.pod)


def settle_lost(ledger: Ledger, store: FolderStore) -> list[str]:
    return settle_lost_pods(ledger, store, lifetime_in(LocalCluster(())), "run", "run", exclude={"overhead"})


def test_a_pod_that_never_started_costs_nothing(ledger, store):
    assert settle_lost(ledger, store) == [
        "run: train-1 settled at $0.000000 of $0.050000: its pod never started"
    ]
    assert list(ledger.state("run").reservations) == ["overhead"]


def test_a_dead_pod_is_charged_to_one_interval_after_its_last_heartbeat(ledger, store, dead):
    write_heartbeat(store, dead, after_s=18.0)
    assert settle_lost(ledger, store) == [
        "run: train-1 settled at $0.010000 of $0.050000: its pod ended without settling; last "
        "heartbeat after 18.0 s"
    ]
    assert ledger.state("run").settled_usd == {"train-1": Decimal("0.01")}


def test_a_dead_pod_is_never_charged_above_its_reservation(ledger, store, dead):
    write_heartbeat(store, dead, after_s=3600.0)
    settle_lost(ledger, store)
    assert ledger.state("run").settled_usd == {"train-1": Decimal("0.05")}


def test_a_live_pod_is_left_to_settle_itself(ledger, store):
    write_heartbeat(store, uid_of(os.getpid()), after_s=18.0)
    assert settle_lost(ledger, store) == []
    assert ledger.state("run").reservations["train-1"].amount_usd == Decimal("0.05")


def test_settling_lost_pods_twice_reports_nothing_the_second_time(ledger, store, dead):
    write_heartbeat(store, dead, after_s=18.0)
    assert len(settle_lost(ledger, store)) == 1
    assert settle_lost(Ledger(store, StillClock()), store) == []


def test_an_unreadable_heartbeat_is_reported(ledger, store):
    store.put(store_layout.heartbeat("run", "train-1"), b"{}")
    with pytest.raises(DataError, match=r"runs/run/heartbeats/train-1\.json is not a heartbeat"):
        settle_lost(ledger, store)


def test_lost_pods_of_an_unknown_account_are_refused(ledger, store):
    with pytest.raises(UnknownName):
        settle_lost_pods(ledger, store, lifetime_in(LocalCluster(())), "rum", "rum")


def test_an_attempt_without_heartbeats_has_none(store):
    assert last_heartbeat(store, "run", "train-1") is None


ALIVE, DEAD = "host.1.1000", "host.2.1000"
names = st.sampled_from(["a-1", "b-1", "c-2"])


class OnlyAlive(LocalCluster):
    def lifetime(self, pod: PodRef) -> PodLifetime:
        return PodLifetime(alive=str(pod) == ALIVE)


@examples(50)
@given(
    st.dictionaries(names, st.integers(0, 10**6).map(from_microusd)),
    st.dictionaries(
        names, st.tuples(st.booleans(), st.floats(0, 1e5), st.integers(0, 10**7).map(from_microusd))
    ),
)
def test_only_dead_pods_are_settled_between_zero_and_their_reservation(reservations, pods):
    with fast_folder() as folder:
        store = FolderStore(folder)
        ledger = Ledger(store, StillClock())
        ledger.open("run", Decimal(10))
        for name, amount_usd in reservations.items():
            ledger.reserve("run", name, name[0], 1, amount_usd)
        for name, (is_alive, after_s, price) in pods.items():
            pod = ALIVE if is_alive else DEAD
            write_heartbeat(store, pod, after_s=after_s, usd_per_hour=str(price), reservation=name)
        settle_lost_pods(ledger, store, lifetime_in(OnlyAlive(())), "run", "run")
        settled_usd = ledger.state("run").settled_usd
        assert set(settled_usd) == {name for name in reservations if name not in pods or not pods[name][0]}
        for name, actual_usd in settled_usd.items():
            assert 0 <= actual_usd <= reservations[name]
            assert name in pods or actual_usd == 0


def test_while_a_silent_supervisor_read_no_price_on_demand_is_charged(ledger, store, dead):
    last = write_heartbeat(store, dead, after_s=10.0)
    last = last.model_copy(update={"unread_usd_per_hour": Decimal("3.6")})
    ended = ended_silent(last, NOON + timedelta(seconds=20))
    store.put(store_layout.heartbeat("run", "train-1"), record_bytes(ended))
    settle_lost(ledger, store)
    assert ledger.state("run").settled_usd["train-1"] == Decimal("0.005") + Decimal("0.010")
    later = ended_silent(ended, NOON + timedelta(seconds=30))
    assert later.prices == ended.prices


@pytest.mark.parametrize("state", [SILENT, BROKE, LOST])
def test_one_that_was_ended_from_outside_pays_to_its_end_also_beyond_its_reservation(
    ledger, store, dead, state
):
    last = write_heartbeat(store, dead, after_s=90.0).model_copy(update={"state": state})
    ended = last.model_copy(update={"at": NOON + timedelta(seconds=120)})
    assert settle_ended(ledger, "run", ended)
    account = ledger.state("run")
    assert account.settled_usd["train-1"] == Decimal("0.06"), "120 s at $1.80 an hour, of $0.05 reserved"
    assert not settle_ended(ledger, "run", ended), "once"


def test_what_the_account_has_no_money_for_is_an_overrun(store, dead):
    ledger = Ledger(store, StillClock())
    ledger.open("run", Decimal("0.05"))
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.05"))
    last = write_heartbeat(store, dead, after_s=120.0).model_copy(update={"state": BROKE})
    assert settle_ended(ledger, "run", last)
    account = ledger.state("run")
    assert account.settled_usd["train-1"] == Decimal("0.05")
    assert account.overruns_usd["train-1"] == Decimal("0.01")
