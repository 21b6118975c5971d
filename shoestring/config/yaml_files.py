"""Files that a person writes, in YAML: parsed once, at the door, with every number as it was written."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from shoestring.core.errors import UsageError
from shoestring.core.record import Record, validation_message

Written = TypeVar("Written", bound=Record)


class _Exact(yaml.SafeLoader):
    """A number with a point is a Decimal, so that money needs no quotes: 0.003 as a float is not 0.003."""

    def construct_exact(self, node: yaml.ScalarNode) -> Decimal | float:
        try:
            return Decimal(str(node.value).replace("_", ""))
        except InvalidOperation:
            return float(self.construct_yaml_float(node))


_Exact.add_constructor("tag:yaml.org,2002:float", _Exact.construct_exact)


def read_text(path: Path, missing: str, wrong: type[UsageError]) -> str:
    """The text of a file. Raises `wrong`: with the sentence `missing` when there is none, else with what is in the way."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise wrong(missing) from None
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(f"cannot read {path}: {error}") from None


def parse(text: str, noun: type[Written], place: str, wrong: type[UsageError], hint: str = "") -> Written:
    """YAML as a noun. `place` is what messages call the text, `hint` ends them. Raises `wrong` with the field and the mend."""
    try:
        # _Exact is a SafeLoader: it makes plain values only.
        content: Any = yaml.load(text, Loader=_Exact)
        return noun.model_validate(content)
    except ValidationError as error:
        raise wrong(f"{place}: {validation_message(error)}{hint}") from None
    except (yaml.YAMLError, ValueError) as error:
        # A ValueError is a date that no calendar has.
        raise wrong(f"{place} is not YAML: {' '.join(str(error).split())}") from None
