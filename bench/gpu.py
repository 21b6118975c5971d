"""Claim: on a GPU a network trains with at least 90% of the rows a second of a loop written by hand.

The data is drawn (bench/gpu_cases.py). The loop by hand has its rows on the device as tensors, the same
network, loss, fused AdamW and average. On a GPU also: no step waits for it, its losses are those of cores
within the spread of seeds, and how far the router's formula (training/families/gpu_needs.py) is from what was
measured.

python bench/gpu.py [--device cuda] [--quick] [--tflops 989]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
import torch
from gpu_cases import Case, gpu_cases
from loop_overhead import idle_task
from machine import describe

from shoestring.backends.local import WallClock
from shoestring.core.types import Need, Pool
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.pricing.throughput import PoolArrays, row_seconds
from shoestring.spending.meter import Meter
from shoestring.training.contracts import StepPlan
from shoestring.training.families.data_shape import encoded_shape
from shoestring.training.families.registry import family_of
from shoestring.training.frameworks.torch_.device import Device
from shoestring.training.frameworks.torch_.net_kind import NetRows
from shoestring.training.frameworks.torch_.net_learner import MAX_GRADIENT_NORM, NetLearner
from shoestring.training.loop import Training

WINDOW_STEPS = 16
CLAIM = 0.9


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def trained_rows_per_s(case: Case, device: str, seconds: float) -> tuple[float, NetLearner, float]:
    """Return the rows a second of the loader and the learner, and the seconds of the first step."""
    train, _ = case.split()
    began_s = time.monotonic()
    learner = NetLearner(
        case.kind, train.take(np.arange(min(1000, len(train)))), len(train), Device(device, 0)
    )
    plan, batch = StepPlan(learner.batch_rows, 1.0), learner.batch_rows
    with Loader(train, SampleCursor(seed=0), gather=learner.gather, threads=2) as loader:
        float(learner.advance(plan, loader).loss)
        first_s = time.monotonic() - began_s
        # An epoch moves the rows to the device.
        for _ in range(-(-len(train) // batch)):
            learner.advance(plan, loader)
        wait(device)
        began_s, done = time.monotonic(), 0
        while time.monotonic() - began_s < seconds:
            learner.mark()
            losses = [learner.advance(plan, loader) for _ in range(WINDOW_STEPS)]
            float(sum(each.loss for each in losses))
            done += sum(each.samples for each in losses)
        return done / (time.monotonic() - began_s), learner, first_s


def by_hand_rows_per_s(case: Case, device: str, seconds: float) -> float:
    """Return the rows a second of a loop written by hand, with all rows on the device."""
    train, _ = case.split()
    samples, kind = train.take(np.arange(len(train))), case.kind
    rows = NetRows(kind.inputs(samples), kind.targets(samples)).to(torch.device(device))
    net = kind.new(samples.part(0, min(1000, len(samples)))).to(device)
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    batch, done, at, order = case.settings.batch_rows, 0, 0, torch.randperm(len(rows), device=device)
    began_s = time.monotonic()
    for step in range(1 << 30):
        if step == 3 * WINDOW_STEPS:
            wait(device)
            began_s, done = time.monotonic(), 0
        if step % WINDOW_STEPS == 0:
            wait(device)
            if step > 3 * WINDOW_STEPS and time.monotonic() - began_s >= seconds:
                break
        if at + batch > len(rows):
            at, order = 0, torch.randperm(len(rows), device=device)
        part = rows.take(order[at : at + batch])
        loss = kind.losses(net(*kind.augmented(part.inputs, 0.0)), part.targets, "mean")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        average.update_parameters(net)
        at, done = at + batch, done + batch
    return done / (time.monotonic() - began_s)


def waits(learner: NetLearner, case: Case) -> str:
    """Return how often a step waits for the device, of its own accord and by the profiler."""
    train, _ = case.split()
    rows = learner.prepare(train.take(np.arange(learner.batch_rows)))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(WINDOW_STEPS):
            learner.step(rows, 1e-4)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiled:
        for _ in range(WINDOW_STEPS):
            learner.step(rows, 1e-4)
    names = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "Memcpy DtoH")
    found = [each for each in profiled.events() if each.name.startswith(names)]
    # The profiler waits once at its own end.
    return f"{max(0, len(found) - 1)} waits in {WINDOW_STEPS} steps"


def validated(case: Case, device: str, seed: int, folder: Path) -> float:
    """Return the validation loss of a whole training by the loop."""
    clock = WallClock()
    train, validation = case.split()
    meter = Meter(Decimal(0), clock.monotonic_s(), Decimal(0), clock.monotonic_s() + 600)
    task = replace(
        idle_task(folder, clock, 64, 1, meter),
        run_id=f"{device}-{seed}",
        seed=seed,
        encoding=case.encoding,
        settings=case.settings.model_copy(update={"max_epochs": 2}),
        train=train,
        validation=validation,
        device=device,
        cores=2,
    )
    loss = Training(task, family_of(task.settings).learner(task)).run().val_loss
    assert loss is not None, "no time was left for the last validation"
    return loss


def agree(case: Case, device: str, seeds: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        here, there = (
            [validated(case, each, seed, Path(name)) for seed in range(seeds)] for each in ("cpu", device)
        )
    spread = stdev([*here, *there])
    verdict = "within" if abs(mean(here) - mean(there)) <= 2 * spread else "OUTSIDE"
    return (
        f"validation loss {mean(here):.4f} on cores, {mean(there):.4f} on {device}, of {seeds} seeds each: "
        f"{verdict} two standard deviations of {spread:.4f}"
    )


def estimated_rows_per_s(case: Case, tflops: float) -> float:
    """Return what the router expects of the device before there are receipts."""
    shape = encoded_shape(case.encoding, len(case.rows))
    need = family_of(case.settings).train_need(Need(stage="train"), shape)
    gpu = {"gpu": "GPU", "gpu_count": 1, "gpu_memory_gb": 80, "gpu_tflops": tflops}
    pool = Pool(name="gpu", cores=16, memory_gb=64, markets={}, **gpu)
    return float(1 / row_seconds(need, PoolArrays.from_pools([pool]))[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tflops", type=float, default=989, help="of 16-bit numbers, by the data sheet")
    args = parser.parse_args()
    seconds, rounds, seeds = (1.0, 1, 2) if args.quick else (4.0, 3, 5)
    print(describe(), f"PyTorch {torch.__version__}", flush=True)
    if args.device != "cpu":
        print(torch.cuda.get_device_properties(0))
    ratios = []
    for case in gpu_cases(args.quick):
        own, plain, first_s = [], [], []
        for _ in range(rounds):
            rate, learner, began_s = trained_rows_per_s(case, args.device, seconds)
            own.append(rate)
            first_s.append(began_s)
            plain.append(by_hand_rows_per_s(case, args.device, seconds))
        ratios.append(median(own) / median(plain))
        print(f"{case.name}: {median(own):,.0f} rows/s, by hand {median(plain):,.0f}: {ratios[-1]:.2f} times")
        print(f"  first step after {first_s[0]:.1f} s", flush=True)
        if args.device != "cpu":
            ratio = estimated_rows_per_s(case, args.tflops) / median(own)
            print(f"  {waits(learner, case)}; the router's estimate is {ratio:.2f} times what was measured")
            print(f"  {agree(case, args.device, seeds)}", flush=True)
    print(f"least {min(ratios):.2f} times the loop by hand (claim: {CLAIM})")
    return 0 if min(ratios) >= CLAIM else 1


if __name__ == "__main__":
    raise SystemExit(main())
