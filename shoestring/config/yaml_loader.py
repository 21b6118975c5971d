"""The YAML that people write. A plain value is null, true or false, a decimal number, or text.

YAML 1.1, which PyYAML implements, reads `no` as false, `0100` as 64, `1:30` as 90 and `1_000` as 1000. Here
`no` is text, a date is text until its field parses it, and a number that can be read in two ways is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NoReturn

import yaml
from yaml.constructor import ConstructorError

from shoestring.core.text import DECIMAL_NUMBER

TAG = "tag:yaml.org,2002:"
UNCLEAR_TAG = "!unclear-number"
# The schema "core" of YAML 1.2 (section 10.3.2), without octal and hexadecimal integers.
NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
INT = re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$")
FLOAT = re.compile(rf"^(?:{DECIMAL_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
UNCLEAR = re.compile(r"^[-+]?\.?[0-9][0-9_:]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9_]+)?$")
"""What looks like a number and is none of the above: a leading zero, an underscore or a colon."""
NUMBER_STARTS = list("-+.0123456789")
MAX_EXPONENT = 400
"""Beyond the largest float. An integer of a larger exponent would take all of the memory."""


class UnclearNumber(ValueError):
    """A number that can be read in two ways; holds the sentence, with its line."""


class PlainLoader(yaml.SafeLoader):
    """Load null, true, false, decimal numbers and text. A number with a point is a Decimal, so that money
    needs no quotes: the float 0.003 is not 0.003.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def construct_text(self, node: yaml.ScalarNode) -> str:
        return self.construct_scalar(node)

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        if not INT.match(str(node.value)):
            self.refuse(node)
        return int(str(node.value))

    def construct_exact(self, node: yaml.ScalarNode) -> Decimal | float:
        text = str(node.value)
        if not FLOAT.match(text):
            self.refuse(node)
        if text[-1] in "fFnN":
            return float(text.replace(".", ""))
        number = Decimal(text)
        if abs(number.adjusted()) > MAX_EXPONENT:
            self.refuse(node)
        return number

    def refuse(self, node: yaml.ScalarNode) -> NoReturn:
        raise UnclearNumber(
            f"line {node.start_mark.line + 1}: {node.value} is not a plain decimal number: write a number "
            f"like 1000 or 0.5, and text in quotes, '{node.value}'"
        )

    def construct_unique(self, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        """Make a mapping. Raises ConstructorError: a key is written twice, and YAML would keep the last."""
        written = [(each.tag, each.value) for each, _ in node.value if isinstance(each, yaml.ScalarNode)]
        for each, _ in node.value:
            if isinstance(each, yaml.ScalarNode) and written.count((each.tag, each.value)) > 1:
                raise ConstructorError(None, None, f"{each.value!r} is written twice", each.start_mark)
        yield from self.construct_yaml_map(node)


class TextDumper(yaml.SafeDumper):
    """Write text in quotes where YAML 1.1, which Kubernetes reads, or PlainLoader would not read text."""


PlainLoader.add_implicit_resolver(f"{TAG}null", NULL, ["~", "n", "N", ""])
PlainLoader.add_implicit_resolver(f"{TAG}bool", BOOL, list("tTfF"))
PlainLoader.add_implicit_resolver(f"{TAG}merge", re.compile("^<<$"), ["<"])
for _class in (PlainLoader, TextDumper):
    _class.add_implicit_resolver(f"{TAG}int", INT, NUMBER_STARTS)
    _class.add_implicit_resolver(f"{TAG}float", FLOAT, NUMBER_STARTS)
    _class.add_implicit_resolver(UNCLEAR_TAG, UNCLEAR, NUMBER_STARTS)
PlainLoader.add_constructor(f"{TAG}int", PlainLoader.construct_integer)
PlainLoader.add_constructor(f"{TAG}float", PlainLoader.construct_exact)
PlainLoader.add_constructor(f"{TAG}merge", PlainLoader.construct_text)
PlainLoader.add_constructor(f"{TAG}map", PlainLoader.construct_unique)
PlainLoader.add_constructor(UNCLEAR_TAG, PlainLoader.refuse)


def load(text: str) -> Any:
    """Return the value of a YAML text. Raises YAMLError, and ValueError of a number or an explicit date."""
    try:
        # PlainLoader is a SafeLoader: it makes plain values only.
        return yaml.load(text, Loader=PlainLoader)
    except RecursionError:
        raise yaml.YAMLError(
            "it has lists or mappings in one another, more levels than can be read"
        ) from None


def dump(content: Any, **layout: Any) -> str:
    """Return content as YAML. `layout`: arguments of PyYAML's dump."""
    return str(yaml.dump(content, Dumper=TextDumper, **layout))


def written_at(text: str, place: tuple[int | str, ...]) -> str:
    """Return the value at a place of a valid YAML text, as it is written there; empty: it is not found, or
    takes several lines. The last step `[key]` asks for the key before it.
    """
    node = yaml.compose(text, Loader=PlainLoader)
    for number, step in enumerate(place):
        if isinstance(node, yaml.MappingNode):
            wants_key = place[number + 1 :] == ("[key]",)
            pairs = (
                (key if wants_key else value) for key, value in node.value if str(key.value) == str(step)
            )
            node = next(pairs, None)
            if wants_key:
                break
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        else:
            return ""
    if node is None or node.start_mark.line != node.end_mark.line:
        return ""
    return text[node.start_mark.index : node.end_mark.index]
