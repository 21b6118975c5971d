"""The use of GPUs: idle money, counters in actuals, FOCUS rows, the report and the live view."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from recorded_run import RUN_ID, Recording
from run_stories import done, running
from test_html import Page
from test_live import rendered

from shoestring.core.money import from_microusd
from shoestring.core.receipt import GpuUse, Receipt, ResourceUsage, TimeShares
from shoestring.core.record import record_bytes
from shoestring.core.types import Pool
from shoestring.reporting.actuals import GpuActuals, compute_actuals
from shoestring.reporting.charges import Charge, read_charges, split_charge
from shoestring.reporting.exports.focus import focus_rows
from shoestring.reporting.html.page import page
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.terminal.live import LiveView
from shoestring.reporting.terminal_text import actuals_text
from shoestring.spending.heartbeat import Heartbeat

POOL = Pool(name="g2", cores=8, memory_gb=32, gpu="L4", gpu_count=1, gpu_memory_gb=24, gpu_tflops=120)
USE = GpuUse(
    busy=0.75,
    memory_bytes=24 * 10**9,
    peak_memory_bytes=18 * 10**9,
    received_bytes=3 * 10**9,
    joules=244.0,
    watts=40.0,
    energy_from="counter",
)


def using(charge: Charge, **changes: object) -> Charge:
    """Return a charge whose GPUs were used so."""
    assert charge.receipt is not None
    use = USE.model_copy(update=changes)
    return replace(charge, receipt=charge.receipt.model_copy(update={"gpu": use}))


def charge_on_gpu(folder: Path) -> Charge:
    run = Recording(folder, "4", (POOL,))
    run.start()
    run.route("ingest")
    run.end(6.1, rows=1)
    return next(each for each in read_charges(run.store)[0] if each.entry.reservation == "ingest-1")


def test_gpus_without_a_kernel_are_idle_money(tmp_path: Path) -> None:
    charge = charge_on_gpu(tmp_path)
    parts, unknown = split_charge(using(charge)), split_charge(using(charge, busy=None))
    assert unknown.idle_gpus_microusd == 0 < unknown.compute_microusd
    assert parts.idle_gpus_microusd == unknown.compute_microusd // 4
    assert parts.compute_microusd + parts.idle_gpus_microusd == unknown.compute_microusd
    assert parts.idle_microusd == parts.idle_gpus_microusd + parts.startup_microusd


def test_actuals_have_the_counters_of_each_group(tmp_path: Path) -> None:
    charge = charge_on_gpu(tmp_path)
    found = compute_actuals([using(charge), using(charge, busy=None, watts=None, joules=None)], ("gpu",))
    (group,) = found.groups
    assert group.gpu == GpuActuals(
        attempts=2,
        seconds=6.1,
        kernel_s=4.575,
        received_gb=6.0,
        peak_memory_share=0.75,
        joules=244.0,
        watts=40.0,
    )
    text = actuals_text(found)
    assert re.search(r"L4 +2 +4\.\d+ s +1\.\d+ s, 25% +6\.0 GB +75\S*% +40 W +0\.2 kJ", text), text
    unread = compute_actuals([charge], ("gpu",))
    assert unread.total.gpu is None and "by their own counters" not in actuals_text(unread)


def test_a_focus_row_has_the_idle_gpus_and_the_first_one_their_counters(tmp_path: Path) -> None:
    charge = using(charge_on_gpu(tmp_path), joules=None)
    rows = list(focus_rows([charge], "laptop"))
    assert [row["x_Kind"] for row in rows] == ["compute", "idle_gpus"]
    assert sum(Decimal(row["BilledCost"]) for row in rows) == from_microusd(charge.paid_microusd)
    found = [[row.get(f"x_Gpu{name}") for name in ("Busy", "Joules", "MemoryPeak")] for row in rows]
    assert found == [["0.75", None, "18000000000"], [None, None, None]]


def test_the_page_has_the_use_of_gpus_where_they_were_read(tmp_path: Path) -> None:
    run = done(tmp_path)
    assert "GPU busy" not in Page(page(read_run_story(run.store, RUN_ID))).text
    path = tmp_path / "runs" / RUN_ID / "receipts" / "train-1.json"
    receipt = Receipt.model_validate_json(path.read_bytes())
    used = {"gpu": USE, "usage": ResourceUsage(joules=244.0)}
    run.put("receipts/train-1.json", receipt.model_copy(update=used))
    found = " ".join(Page(page(read_run_story(run.store, RUN_ID))).text.split())
    assert "GPU busy GPU memory, peak Moved to GPU GPU watts" in found
    assert "75.0% 18.0 of 24.0 GB 3.0 GB 40" in found


def test_the_gpus_of_a_running_stage_are_in_the_live_view(tmp_path: Path) -> None:
    run = running(tmp_path)
    (path,) = tmp_path.glob("runs/*/heartbeats/train-1.json")
    beat = Heartbeat.model_validate_json(path.read_bytes())
    shares = TimeShares(read=0.0, decode=0.0, transfer=0.0, compute=1.0)
    changed = beat.model_copy(update={"time_shares": shares, "gpu": USE})
    run.store.put(str(path.relative_to(tmp_path)), record_bytes(changed))
    assert f"running ({beat.phase}; compute 100%; GPU 75%)" in rendered(run, 160)
    (line,) = [each for each in LiveView(run.store, RUN_ID, run.clock).stage_lines if each.gpu]
    assert line.as_json()["gpu"] == USE.model_dump()
