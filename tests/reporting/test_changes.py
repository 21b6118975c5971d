"""The report's tables of what moved while a stage ran, and of what it used."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from recorded import RUN_ID
from stories import done

from shoestring.core.receipt import AdaptationChange, PricePoint, Receipt, ResourceUsage
from shoestring.core.record import record_bytes
from shoestring.data.run_records import read_record
from shoestring.reporting.html.page import page
from shoestring.reporting.run_story import read_run_story


def test_prices_that_moved_changes_and_joules_are_on_the_page_in_the_order_in_which_they_came(
    tmp_path: Path,
) -> None:
    store = done(tmp_path).store
    assert "moved while a stage ran" not in page(read_run_story(store, RUN_ID))
    key = f"runs/{RUN_ID}/receipts/train-1.json"
    receipt = read_record(store, key, Receipt)
    at = [receipt.started_at + timedelta(seconds=seconds) for seconds in (-60, 0, 5, 6)]
    changes = [
        AdaptationChange(
            at=moment,
            samples=500,
            lever="length",
            before="900 samples",
            after=f"{700 - number} samples",
            reason="said why",
        )
        for number, moment in enumerate((at[0], at[3]))
    ]
    prices = (PricePoint(at=at[1], usd_per_hour=Decimal("0.04")), PricePoint(at=at[2], usd_per_hour=Decimal("0.12")))
    used = ResourceUsage(joules=1234.4, core_minutes=5.5)
    store.put(
        key, record_bytes(receipt.model_copy(update={"prices": prices, "changes": tuple(changes), "usage": used}))
    )
    said = page(read_run_story(store, RUN_ID))
    assert 0 < said.index("$0.12") < said.index("699 samples")
    assert "700 samples" not in said, "an earlier attempt's change is told there"
    assert "1,234" in said
    assert "grid not known" in said
