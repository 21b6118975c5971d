"""How much this store's runs have transferred over each route in a month, so that tiered egress prices
continue from there.

A stage that begins leaves one small object a route. The object's name ends with the megabytes, so a month is
summed by listing names. The volume is the one that the decision expects. A stage that is tried again
transfers its data again. Of two stages that are routed at the same moment, neither counts the other's volume.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import datetime

from shoestring.config.tariffs import Tariffs
from shoestring.core import store_layout
from shoestring.core.canonical_json import json_text
from shoestring.core.errors import StoreError
from shoestring.core.interfaces import Store
from shoestring.core.record import digest
from shoestring.routing.decision import Decision

MB_PER_GB = 1000


def route_prefix(route: str, now: datetime) -> str:
    """Return the prefix of a route's objects in this month. The route is hashed: it holds characters that
    keys may not.
    """
    return store_layout.transferred(f"{now:%Y-%m}", digest(route.encode())[:16])


def record_egress(store: Store, decision: Decision, now: datetime) -> None:
    """Record what a stage that begins will transfer. A failure of the store loses only that record."""
    question = decision.question
    if decision.choice is None or decision.choice.cached or not question.tariffs.is_tiered:
        return
    # Imported here: most stores have no tiered prices, and a pod is paid for while it imports.
    from shoestring.routing.offers.egress import transferred_gb_by_route

    for route, gb in transferred_gb_by_route(question, decision.choice).items():
        name = f"{question.run_id}.{question.attempt_id}.{round(gb * MB_PER_GB)}"
        with suppress(StoreError):
            content = json_text({"route": route, "gb": gb}).encode()
            store.put(f"{route_prefix(route, now)}{name}", content, if_absent=True)


def with_egress_usage(store: Store, tariffs: Tariffs, now: datetime) -> Tariffs:
    """Return the tariffs with this month's transfers of this store's runs added to those that the tariffs
    declare.
    """
    if not tariffs.is_tiered:
        return tariffs
    transferred_gb: dict[str, float] = defaultdict(float, tariffs.transferred_gb)
    for route in tariffs.egress_usd_per_gb:
        sizes_mb = [key.rpartition(".")[2] for key in store.list(route_prefix(route, now))]
        if sizes_mb:
            transferred_gb[route] += sum(int(size) for size in sizes_mb if size.isdigit()) / MB_PER_GB
    return tariffs.model_copy(update={"transferred_gb": dict(transferred_gb)})
