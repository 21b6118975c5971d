"""The report's tables of changes during stages and of resource usage."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from recorded_run import RUN_ID
from run_stories import done

from shoestring.core.receipt import AdaptationChange, PricePoint, Receipt, ResourceUsage
from shoestring.core.record import record_bytes
from shoestring.data.run_records import read_record
from shoestring.reporting.html.page import page
from shoestring.reporting.run_reader import read_run_story


def test_price_changes_adaptations_and_joules_are_on_the_page_in_order(
    tmp_path: Path,
) -> None:
    store = done(tmp_path).store
    assert "Changes while a stage ran" not in page(read_run_story(store, RUN_ID))
    key = f"runs/{RUN_ID}/receipts/train-1.json"
    receipt = read_record(store, key, Receipt)
    at = [receipt.started_at + timedelta(seconds=seconds) for seconds in (-60, 0, 5, 6)]
    changes = [
        AdaptationChange(
            at=changed_at,
            samples=500,
            lever="length",
            before="900 samples",
            after=f"{700 - number} samples",
            reason="a reason",
        )
        for number, changed_at in enumerate((at[0], at[3]))
    ]
    prices = (
        PricePoint(at=at[1], usd_per_hour=Decimal("0.04")),
        PricePoint(at=at[2], usd_per_hour=Decimal("0.12")),
    )
    usage = ResourceUsage(joules=1234.4, core_minutes=5.5)
    store.put(
        key,
        record_bytes(
            receipt.model_copy(update={"prices": prices, "changes": tuple(changes), "usage": usage})
        ),
    )
    html = page(read_run_story(store, RUN_ID))
    assert 0 < html.index("$0.12") < html.index("699 samples")
    assert "700 samples" not in html, "a change of an earlier attempt is listed with that attempt only"
    assert "1,234" in html
    assert "CO2" not in html, "no column says that the grid is not known"
    carbon = receipt.model_copy(update={"usage": usage.model_copy(update={"co2_g": 0.25})})
    store.put(key, record_bytes(carbon))
    assert "0.250" in page(read_run_story(store, RUN_ID))
