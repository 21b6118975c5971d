"""Text that a terminal shows as it is."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.text import shown_line, shown_text

CONTROLS = {*"\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
ANY_TEXT = st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from(sorted(CONTROLS))))


def controls(text: str) -> set[str]:
    return {each for each in text if each in CONTROLS or unicodedata.category(each) in ("Cc", "Cs")}


@given(ANY_TEXT)
def test_no_control_character_is_left_and_nothing_else_changes(text: str) -> None:
    shown = shown_text(text)
    assert controls(shown) <= {"\n", "\t"}
    assert not controls(shown_line(text))
    assert shown_text(shown) == shown
    found = controls(text) - {"\n", "\t"}
    assert shown == "".join(f"\\u{ord(each):04x}" if each in found else each for each in text)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_stays_the_same_value(value: object) -> None:
    for indent in (None, 1):
        assert json.loads(shown_text(json.dumps(value, ensure_ascii=False, indent=indent))) == value


def test_escapes_are_written_as_in_json() -> None:
    text = "a\x1b[31m\x07\r\x7f\x9b\u202e\udcff\n\tb"
    assert shown_text(text) == "a\\u001b[31m\\u0007\\u000d\\u007f\\u009b\\u202e\\udcff\n\tb"
    assert shown_line("a\n\tb") == r"a\n\tb"
