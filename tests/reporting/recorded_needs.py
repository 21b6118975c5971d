"""The stages of the recorded run, and the speeds of its data formats."""

from __future__ import annotations

from shoestring.core.types import Format, Need
from shoestring.pricing.format_speeds import FormatSpeed

SPEEDS = (
    FormatSpeed(
        format=Format.PARQUET,
        write_ns_per_row=900,
        write_bytes_per_s=10**9,
        scan_ns_per_row=300,
        scan_bytes_per_s=10**9,
        take_ns_per_row=3000,
        take_bytes_per_s=10**9,
        size_ratio=0.4,
    ),
    FormatSpeed(
        format=Format.PACKED,
        write_ns_per_row=100,
        write_bytes_per_s=10**9,
        scan_ns_per_row=30,
        scan_bytes_per_s=10**9,
        take_ns_per_row=40,
        take_bytes_per_s=10**9,
        size_ratio=1.1,
    ),
)
NEEDS = (
    Need(stage="ingest", setup_s=1, cpu_us_per_row=2, writes_bytes_per_row=120),
    Need(
        stage="preprocess",
        setup_s=1.5,
        cpu_us_per_row=4,
        parallel_fraction=0.3,
        reads="scan",
        writes_bytes_per_row=60,
    ),
    Need(
        stage="train",
        elastic=True,
        setup_s=3,
        cpu_us_per_row=20,
        parallel_fraction=0.7,
        reads="shuffled",
        passes=12,
        min_passes=1,
        checkpoint_s=0.2,
    ),
    Need(stage="evaluate", setup_s=3, cpu_us_per_row=4, parallel_fraction=0.5, reads="scan"),
)
