"""Docstrings, docs and strings are plain technical English: fewer than 1 idiom marker in 1,000 words.

`python bench/prose.py` prints the counts, and with --list every marker with its file and line.
"""

from pathlib import Path

from prose import ROOT, Text, count, pattern_of, read_markers, texts_of

MAX_PER_1000 = 1.0
MIN_WORDS = 5000


def test_fewer_than_1_in_1000_words_is_an_idiom_marker() -> None:
    """Of docstrings, docs and strings, which are read once."""
    markers, faults = read_markers(), []
    for group, texts in texts_of(ROOT).items():
        found = count(texts, markers)
        assert found.words > MIN_WORDS, f"the {group} were not read"
        if found.per_1000 >= MAX_PER_1000:
            listed = "\n".join(map(str, found.hits))
            faults.append(f"{found.per_1000:.1f} in 1,000 words of {group}:\n{listed}")
    assert not faults, "\n".join(faults)


def markers_in(words: str, marker: str, is_docstring: bool = True) -> int:
    return len(count([Text(Path("x.py"), 1, words, is_docstring)], [pattern_of(marker)]).hits)


def test_a_marker_matches_whole_words_in_any_case_across_lines() -> None:
    assert markers_in("It is set\n    aside. Set aside.", "set aside") == 2
    assert markers_in("An outset aside of reset-aside", "set aside") == 0


def test_an_opening_marker_matches_only_the_first_words_of_a_docstring() -> None:
    assert markers_in("\n  What it costs.", "^What") == 1
    assert markers_in("It costs what it costs.", "^What") == 0
    assert markers_in("What to run", "^What", is_docstring=False) == 0


def test_every_marker_is_a_pattern_and_none_is_listed_twice() -> None:
    patterns = [marker.pattern for marker in read_markers()]
    assert len(patterns) > 30
    assert len(set(patterns)) == len(patterns)
