"""Reservations of dead pods are settled at what the pods cost, and never above the reserved amount."""

from __future__ import annotations

import multiprocessing
import os
import socket
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
from shoestring.core.money import from_microusd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.spending.heartbeat import Heartbeat, ended_silent, last_heartbeat
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import lost_reservations, settle_lost_pods


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


def settle_lost(ledger: Ledger, store: FolderStore) -> list[str]:
    return settle_lost_pods(ledger, store, LocalCluster(()), "run", "run", exclude={"overhead"})


def test_a_pod_that_never_started_costs_nothing(ledger, store):
    assert settle_lost(ledger, store) == [
        "run: train-1 settled at $0.000000 of $0.050000: no heartbeat: its pod never started"
    ]
    assert list(ledger.state("run").reservations) == ["overhead"]


def test_a_dead_pod_is_charged_to_one_interval_after_its_last_heartbeat(ledger, store, dead):
    write_heartbeat(store, dead, after_s=18.0)
    assert settle_lost(ledger, store) == [
        "run: train-1 settled at $0.010000 of $0.050000: its pod is gone; last heartbeat after 18.0 s"
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
        settle_lost_pods(ledger, store, LocalCluster(()), "rum", "rum")


def test_an_attempt_without_heartbeats_has_none(store):
    assert last_heartbeat(store, "run", "train-1") is None


ALIVE, DEAD = "host.1.1000", "host.2.1000"
names = st.sampled_from(["a-1", "b-1", "c-2"])


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
        heartbeats = {
            name: write_heartbeat(
                store, ALIVE if is_alive else DEAD, after_s=after_s, usd_per_hour=str(price), reservation=name
            )
            for name, (is_alive, after_s, price) in pods.items()
        }
        settled = {
            found.reservation: found.actual_usd
            for found in lost_reservations(ledger.state("run"), heartbeats, lambda pod: str(pod) == ALIVE)
        }
        assert set(settled) == {name for name in reservations if name not in pods or not pods[name][0]}
        for name, actual_usd in settled.items():
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
