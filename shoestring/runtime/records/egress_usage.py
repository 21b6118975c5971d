"""What this store's runs have moved over each route in a month, so that their tiers go on from there.

A stage that begins leaves one small object a route, whose name holds its megabytes: a month is summed by listing names. What an attempt
moves is what its decision reckoned; one that is tried again moves it again. Of two that are routed at once, neither knows of the other's.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import datetime

from shoestring.config.tariffs import Tariffs
from shoestring.core.canonical_json import json_text
from shoestring.core.errors import StoreError
from shoestring.core.interfaces import Store
from shoestring.core.record import digest
from shoestring.routing.decision import Decision
from shoestring.routing.offers.egress import transferred_gb_by_route

EGRESS = "learned/moved/"
MB_PER_GB = 1000


def route_folder(route: str, now: datetime) -> str:
    """Routes hold characters that keys may not."""
    return f"{EGRESS}{now:%Y-%m}/{digest(route.encode())[:16]}/"


def record_egress(store: Store, decision: Decision, now: datetime) -> None:
    """Leave word of what a stage that begins will move. A store that fails at it loses a month's volume, not the stage."""
    question = decision.question
    if decision.choice is None or decision.choice.cached or not question.tariffs.is_tiered:
        return
    for route, gb in transferred_gb_by_route(question, decision.choice).items():
        key = f"{route_folder(route, now)}{question.run_id}.{question.attempt_id}.{round(gb * MB_PER_GB)}"
        with suppress(StoreError):
            store.put(key, json_text({"route": route, "gb": gb}).encode(), if_absent=True)


def with_egress_usage(store: Store, tariffs: Tariffs, now: datetime) -> Tariffs:
    """Tariffs that know what this store's runs have moved this month, beside what is declared of others."""
    if not tariffs.is_tiered:
        return tariffs
    transferred_gb: dict[str, float] = defaultdict(float, tariffs.transferred_gb)
    for route in tariffs.egress_usd_per_gb:
        names = [key.rpartition(".")[2] for key in store.list(route_folder(route, now))]
        if names:
            transferred_gb[route] += sum(int(megabytes) for megabytes in names if megabytes.isdigit()) / MB_PER_GB
    return tariffs.model_copy(update={"transferred_gb": dict(transferred_gb)})
