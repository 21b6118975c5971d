"""Claim: an export of `shoestring export focus` passes the FinOps Foundation's own validator.

The validator needs Python 3.12 and an older pyarrow than this project, so it runs from an environment of its
own:

python3.12 -m venv /tmp/focus && /tmp/focus/bin/pip install focus-validator==2.2.1 "pyarrow<19"
python bench/focus_validator.py costs.csv [more.csv ...] --validator /tmp/focus/bin/focus-validator

Where a rule is a choice ("null without an invoice, or not null with one"), the validator checks each
alternative alone and reports the one that does not apply as failed. Such a line is counted as an alternative
here if the rule that contains the choice passes; every other failure makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RULES = "1.2.0.1"
# What a world of Shoestring has. Left out: what it never has (availability zones, virtual currencies,
# capacity reservations), and COMMITMENT_DISCOUNT_SUPPORTED and PUBLIC_PRICE_LIST_SUPPORTED. Rules 1.2.0.1
# require a status of rows without a commitment for the first, and columns of virtual currencies for the
# second.
SUPPORTED = (
    "UNIT_PRICING_SUPPORTED",
    "SUB_ACCOUNT_SUPPORTED",
    "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED",
    "REGION_SUPPORTED",
    "TAGGING_SUPPORTED",
    "MULTIPLE_PRICING_CATEGORIES_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED",
)
RESULT = re.compile(r"(\S+): (PASS|FAIL|SKIPPED)\b(.*)")


def validate(package: Path, validator: Path, file: Path) -> dict[str, tuple[str, str]]:
    """Return the result of each rule, with its message.

    The validator reads some of its files relative to the working folder, so it runs in a folder that links
    to its package.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, package.name).symlink_to(package)
        options = ["--data-file", str(file.absolute()), "--validate-version", RULES, "--block-download"]
        done = subprocess.run(
            [validator, *options, "--applicability-criteria", ",".join(SUPPORTED)],
            cwd=folder,
            env=os.environ | {"PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    found = [RESULT.search(line) for line in done.stdout.splitlines()]
    if not any(found):
        raise SystemExit(f"{file}: the validator gave no results: {(done.stdout + done.stderr)[-2000:]}")
    return {match[1]: (match[2], match[3]) for match in found if match}


def alternatives(package: Path, results: dict[str, tuple[str, str]]) -> set[str]:
    """Return the rules that are one side of a choice, where the rule that contains the choice passes."""
    rules = json.loads((package / f"rules/model-{RULES}.json").read_text(encoding="utf-8"))["ModelRules"]
    found: set[str] = set()
    for name, rule in rules.items():
        asked = rule["ValidationCriteria"]["Requirement"]
        if asked.get("CheckFunction") == "OR" and results.get(name, ("",))[0] == "PASS":
            found |= {item.get("ModelRuleId", "") for item in asked["Items"]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--validator", type=Path, default=Path("focus-validator"))
    options = parser.parse_args()
    validator: Path = options.validator.absolute()
    package = next(validator.parent.parent.glob("lib/python3*/site-packages/focus_validator"), None)
    if package is None:
        sys.exit(f"there is no focus-validator at {validator}; see the top of {__file__}")
    broken = 0
    for file in options.files:
        results = validate(package, validator, file)
        chosen = alternatives(package, results)
        failed = {name: text for name, (status, text) in results.items() if status == "FAIL"}
        wrong = sorted(failed.keys() - chosen)
        passed = sum(status == "PASS" for status, _ in results.values())
        print(
            f"{file.name:<24} {passed} rules pass, {len(wrong)} fail, {len(failed) - len(wrong)} "
            f"alternatives do not apply, {len(results) - passed - len(failed)} skipped"
        )
        print("".join(f"  {name}{failed[name]}\n" for name in wrong), end="", flush=True)
        broken += len(wrong)
    sys.exit(min(1, broken))


if __name__ == "__main__":
    main()
