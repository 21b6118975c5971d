"""Check a schedule before anything is uploaded: a cron line, by the rules of KFP's server."""

from __future__ import annotations

import re

from shoestring.core.errors import UsageError

# Of github.com/robfig/cron, which KFP uses: the weekday is 0 to 6, and 0 is Sunday.
FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6))
NAMES = {
    "month": ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "weekday": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
PART = re.compile(r"(?P<start>\*|\?|\w+)(?:-(?P<end>\w+))?(?:/(?P<step>\d+))?")


def kfp_cron(text: str) -> str:
    """Return a cron line as KFP reads it, with a field for seconds.

    Raises UsageError: it does not have five valid fields, or names a day that no month has.
    """
    line = DESCRIPTORS.get(text.strip().lower(), text)
    fields = line.split()
    if len(fields) != len(FIELDS):
        raise UsageError(
            f"--cron {text!r} has {len(fields)} fields: write minute, hour, day, month and weekday, "
            'like "0 3 * * *"'
        )
    _, _, days, months, _ = (
        _values(text, written, *field) for written, field in zip(fields, FIELDS, strict=True)
    )
    # Where a weekday is named too, it runs on either.
    if fields[4] in "*?" and min(days) > max(DAYS_OF_MONTHS[month - 1] for month in months):
        raise UsageError(f"--cron {text!r} never runs: no month {fields[3]} has a day {fields[2]}")
    return " ".join(["0", *fields])


def _values(text: str, written: str, name: str, low: int, high: int) -> set[int]:
    """Return the values of one field. Raises UsageError."""
    names = {each: number for number, each in enumerate(NAMES.get(name, ()), low)}

    def number(word: str) -> int:
        value = names.get(word.lower(), int(word) if word.isascii() and word.isdigit() else -1)
        if not low <= value <= high:
            named = f" or {next(iter(names))} to {list(names)[-1]}" if names else ""
            raise UsageError(f"--cron {text!r}: the {name} is {low} to {high}{named}, not {word!r}")
        return value

    found: set[int] = set()
    for part in written.split(","):
        match = PART.fullmatch(part)
        if match is None or (match["start"] in "*?" and match["end"]) or match["step"] == "0":
            raise UsageError(
                f"--cron {text!r}: {part!r} is not a {name}: write a number, a range like {low}-{high}, "
                "a step like */2, or *"
            )
        start = low if match["start"] in "*?" else number(match["start"])
        is_one = match["start"] not in "*?" and not match["step"]
        end = number(match["end"]) if match["end"] else start if is_one else high
        if end < start:
            raise UsageError(f"--cron {text!r}: the range {part!r} ends before it starts")
        found |= set(range(start, end + 1, int(match["step"] or 1)))
    return found
