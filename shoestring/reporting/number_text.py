"""Numbers formatted for people. The exact values are in the records."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

METRIC_NAMES = {
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "ece": "calibration error",
    "mae": "mean absolute error",
    "mse": "MSE",
    "quantile_loss": "quantile loss",
    "r2": "R²",
    "rmse": "RMSE",
}
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def dollars(amount_usd: Decimal) -> str:
    """Format dollars: `$0.001234` below $1, `$12.3456` below $100, `$1,234.57` above, `$0` for exactly 0."""
    magnitude = abs(amount_usd)
    places = 6 if magnitude < 1 else 4 if magnitude < 100 else 2
    return f"{'-' if amount_usd < 0 else ''}${magnitude:,.{places}f}" if magnitude else "$0"


def hourly(usd_per_hour: Decimal) -> str:
    """Format an hourly price, at least to the cent: `$0.08/h`, `$32.77/h`, `$0.0416/h`."""
    whole, _, cents = f"{usd_per_hour:,.6f}".partition(".")
    return f"${whole}.{cents.rstrip('0').ljust(2, '0')}/h"


def duration(seconds: float) -> str:
    """Format seconds: `0.34 s`, `12.3 s`, `12 min 30 s`, `3 h 12 min`, `4 d 3 h`."""
    if seconds < 0.005:
        return "<0.01 s" if seconds > 0 else "0 s"
    if seconds < 99.95:
        return f"{seconds:.{2 if seconds < 9.995 else 1}f} s"
    for whole, per, large, small in ((seconds, 60, "min", "s"), (seconds / 60, 60, "h", "min")):
        if round(whole) < (3600 if small == "s" else 1440):
            return f"{round(whole) // per} {large} {round(whole) % per} {small}"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def short_duration(seconds: float) -> str:
    """Format seconds of a step or of a part of it: `71.3 ms`, `812 us`; from a second on as `duration`."""
    if seconds >= 0.9995:
        return duration(seconds)
    return f"{1e3 * seconds:.3g} ms" if seconds >= 0.9995e-3 else f"{1e6 * seconds:.3g} us"


def count(number: int) -> str:
    return f"{number:,}"


def quantity(number: int, name: str) -> str:
    """Format a count with its unit: `1 core`, `2 cores`."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def short_count(number: int) -> str:
    """Format a count in three digits: `812`, `96.4k`, `1.21M`."""
    for unit, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= 0.9995 * unit and number >= 1_000:
            return f"{number / unit:.3g}{letter}"
    return str(number)


def size(size_bytes: int) -> str:
    """Format bytes: `812 B`, `12.3 MB`."""
    amount, unit = float(size_bytes), 0
    while amount >= 999.5 and unit < len(BYTE_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{size_bytes} B" if unit == 0 else f"{amount:.3g} {BYTE_UNITS[unit]}"


def rate(rows: int, seconds: float) -> str:
    """Format a rate, `96,412 rows/s`; empty without rows or time."""
    return f"{rows / seconds:,.0f} rows/s" if rows > 0 and seconds > 0 else ""


def percent(part: float) -> str:
    """Format a share as `71.6%` or `<0.1%`."""
    return "<0.1%" if 0 < part < 0.001 else f"{100 * part:.1f}%" if 0 < part < 1 else f"{100 * part:.0f}%"


def score(value: float) -> str:
    """Format a quality metric: four decimals, or four digits if it is large or tiny."""
    return f"{value:.4f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.4g}"


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def metric_name(name: str) -> str:
    """Return the display name of a metric: `log loss`, `AUC`."""
    return METRIC_NAMES.get(name, name.replace("_", " "))


def as_sentence(text: str) -> str:
    """Return a clause with a capital letter and a full stop."""
    return capitalized(text) + ("" if text.endswith((".", "!", "?")) else ".")


def utc_time(at: datetime) -> str:
    """Format a time: `2026-11-03 14:05:12 UTC`."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
