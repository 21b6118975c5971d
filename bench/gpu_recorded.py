"""Read recorded training speeds on GPUs as jobs with their needs, and the recorded prices of those GPUs."""

from __future__ import annotations

import csv
import gzip
import statistics
from collections import defaultdict
from dataclasses import dataclass
from datetime import date

from traces import trace

from shoestring.core.types import Need, Pool

HOURS, STARTUP_S = 4.0, 300.0
DATES = (date(2024, 5, 21), date(2024, 10, 31), date(2025, 3, 13), date(2025, 8, 30))
WIDTHS = {
    "125m": (12, 768),
    "350m": (24, 1024),
    "760m": (24, 1536),
    "1b": (24, 2048),
    "3b": (32, 2560),
    "7b": (32, 4096),
    "13b": (40, 5120),
    "30b": (48, 7168),
    "70b": (80, 8192),
}
"""Layers and width of each model, to count the FLOPs of its attention."""


@dataclass(frozen=True, slots=True)
class Work:
    """A model: its need, rows a second on each pool where it was measured, and the rows of a job."""

    need: Need
    speed: dict[str, float]
    rows: int


@dataclass(frozen=True, slots=True)
class PriceList:
    """Pools, oldest GPU first, with their dollars an hour at one time and place."""

    name: str
    pools: dict[str, Pool]
    usd_per_hour: dict[str, float]


def llm_works() -> list[Work]:
    """Return the fastest recorded setting of each model, sequence length and number of GPUs on each GPU
    type.
    """
    fastest: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    flop: dict[tuple[str, str, str], float] = {}
    with trace("throughput/llm_foundry.csv").open() as file:
        for row in csv.DictReader(file):
            if row["precision"] == "amp_fp8" or int(row["gpus"]) > 128:
                continue
            key, gpu = (row["model"], row["sequence_length"], row["gpus"]), row["gpu"]
            speed = float(row["tokens_per_second_per_gpu"]) * int(row["gpus"])
            fastest[key][gpu] = max(fastest[key].get(gpu, 0.0), speed)
            layers, width = WIDTHS[row["model"]]
            flop[key] = 6 * float(row["parameters"]) + 12 * layers * width * float(row["sequence_length"])
    return [
        work_of(
            f"{model} at {length} on {gpus}",
            flop[model, length, gpus],
            flop[model, length, gpus] / 300,
            speeds,
            max_gpus=int(gpus),
        )
        for (model, length, gpus), speeds in sorted(fastest.items())
        if len(speeds) > 1
    ]


GAVEL = {
    "A3C": (1e9, 2.0),
    "CycleGAN": (1e12, 30.0),
    "LM": (4e9, 4.0),
    "Recommendation": (1.5e8, 2.0),
    "ResNet-18": (1.7e9, 20.0),
    "ResNet-50": (1.2e10, 20.0),
    "Transformer": (1e10, 10.0),
}
"""FLOPs of a sample, and FLOPs for each byte transferred between the GPU and its memory."""


def gavel_works() -> list[Work]:
    """Return the jobs on one GPU. A row is a training step."""
    speeds: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    with trace("throughput/gavel.csv").open() as file:
        for row in csv.DictReader(file):
            if row["gpus"] == "1" and row["gpu"] in ("k80", "p100", "v100"):
                speeds[row["model"], row["batch_size"]][row["gpu"]] = float(row["steps_per_second"])
    works = []
    for (model, batch), measured in sorted(speeds.items()):
        flop, intensity = GAVEL[model]
        step = flop * int(batch or 1)
        works.append(work_of(f"{model} {batch}".strip(), step, step / intensity, measured))
    return works


def work_of(name: str, flop: float, bytes_: float, speed: dict[str, float], max_gpus: int = 1) -> Work:
    need = Need(
        stage="train",
        work=name,
        gpu="must",
        setup_s=0,
        gpu_flop_per_row=flop,
        gpu_bytes_per_row=bytes_,
        max_gpus=max_gpus,
    )
    return Work(need, speed, int(HOURS * 3600 * statistics.median(speed.values())))


def gpu_pool(name: str, gpu: str, gb: float, tflops: float, gb_s: float, count: int = 1) -> Pool:
    facts = {
        "gpu": gpu,
        "gpu_memory_gb": gb,
        "gpu_tflops": tflops,
        "gpu_memory_gb_s": gb_s,
        "gpu_count": count,
        "startup_s": STARTUP_S,
    }
    return Pool.model_validate({"name": name, "cores": 96, "memory_gb": 600} | facts)


A100 = ("a100_40gb", "a100_80gb", "h100_80gb")
MACHINES = dict(zip(A100, ("a2-highgpu-8g", "a2-ultragpu-8g", "a3-highgpu-8g"), strict=True))
LLM_POOLS = {
    "a100_40gb": gpu_pool("a100_40gb", "A100", 40, 312, 1555, 8),
    "a100_80gb": gpu_pool("a100_80gb", "A100", 80, 312, 2039, 8),
    "h100_80gb": gpu_pool("h100_80gb", "H100", 80, 989, 3350, 8),
}
GAVEL_POOLS = {
    "k80": gpu_pool("k80", "K80", 12, 4.1, 240),
    "p100": gpu_pool("p100", "P100", 16, 9.5, 732),
    "v100": gpu_pool("v100", "V100", 16, 14.8, 900),
}
LISTS = {
    "Azure 2020": (0.90, 2.07, 3.06),
    "Google 2019": (0.64, 1.65, 2.67),
    "preemptible 2019": (0.175, 0.47, 0.78),
}


def llm_lists() -> list[PriceList]:
    prices: dict[tuple[str, str], list[tuple[date, float]]] = defaultdict(list)
    with gzip.open(trace("gcp-prices/changes.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            if row["region"] == "us-central1" and row["machine_type"] in MACHINES.values():
                prices[row["machine_type"], row["market"]].append(
                    (date.fromisoformat(row["from_date"]), float(row["usd_per_hour"]))
                )
    found = []
    for market in ("on-demand", "spot"):
        for day in DATES if market == "spot" else DATES[-1:]:
            at = {
                gpu: max(each for each in prices[machine, market] if each[0] <= day)[1]
                for gpu, machine in MACHINES.items()
            }
            found.append(PriceList(f"{market} {day}", LLM_POOLS, at))
    return found


def gavel_lists() -> list[PriceList]:
    return [
        PriceList(name, GAVEL_POOLS, dict(zip(GAVEL_POOLS, each, strict=True)))
        for name, each in LISTS.items()
    ]


def placed(work: Work, prices: PriceList) -> dict[str, Pool]:
    """Return the pools on which the model was measured, with the number of machines that it needs."""
    return {
        name: pool.model_copy(update={"nodes": max(1, work.need.max_gpus // pool.gpu_count)})
        for name, pool in prices.pools.items()
        if name in work.speed
    }
