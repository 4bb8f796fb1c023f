"""Patterns that take exponential time by backtracking: searched in linear time, or refused."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from circuits import EvaluationError, compile_sql
from circuits.types.functions.texts import like_patterns
from circuits.types.functions.texts.backtracking import (
    MAX_BACKTRACKED_CHARACTERS,
    Choices,
    count_choices,
)
from circuits.types.functions.texts.like_patterns import glob_to_regex
from circuits.types.functions.texts.patterns import compile_pattern

SCHEMA = {"r": pa.schema([("s", pa.string())])}
TEXT = "a" * 60 + "!"


def value_of(expression: str, text: str, dialect: str = "spark") -> object:
    circuit = compile_sql(f"SELECT {expression} AS v FROM r", SCHEMA, dialect=dialect)
    return circuit.step({"r": pa.table({"s": [text]}, SCHEMA["r"])})["view"]["v"][0].as_py()


@pytest.mark.parametrize(
    ("expression", "dialect", "expected"),
    [
        ("regexp_instr(s, '(a+)+b')", "spark", 0),
        ("regexp_count(s, '(a|a)*b')", "spark", 0),
        ("split(s, '(a+)+b')", "spark", [TEXT]),
        ("regexp_extract_all(s, '((a+)+)b', 1)", "spark", []),
        ("str_to_map(s, '(a+)+b', ':')", "spark", [(TEXT, None)]),
        ("regexp_count(s, '(a*)*$')", "spark", 1),
        ("regexp_like(s, '(a|aa)+$')", "spark", False),
        ("regexp_matches(s, '^(a+)+$')", "duckdb", False),
        ("regexp_extract(s, '(a+)+b')", "duckdb", ""),
        ("regexp_replace(s, '(a+)+b', 'c')", "duckdb", TEXT),
    ],
)
def test_a_pattern_of_exponential_time_is_searched_in_linear_time(expression, dialect, expected):
    assert value_of(expression, TEXT, dialect) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "regexp_like(s, '^(?=(a+)+$)')",
        "regexp_like(s, '^(?:a(?=b)|a+)+$')",
        "regexp_extract(s, '(?<=a)(a+)+b', 1)",
        "regexp_replace(s, '(?<=a)(a|a)+b', 'c')",
        "regexp_instr(s, '(?x)(a+ # )\\n)+(?=b)')",
        "regexp_instr(s, '(a+(?#()b?)+(?=c)')",
    ],
)
def test_a_pattern_of_exponential_time_that_needs_backtracking_is_refused(expression):
    with pytest.raises(EvaluationError, match="exponential time"):
        value_of(expression, TEXT)


def test_a_long_text_is_not_searched_by_backtracking():
    text = " " * 10**6 + "x"
    assert value_of("regexp_instr(s, ' +$')", text) == 0
    with pytest.raises(EvaluationError, match=f"maximum is {MAX_BACKTRACKED_CHARACTERS:,}"):
        value_of("regexp_instr(s, '(?<=x) +$')", text)


def test_a_pattern_of_cubic_time_searches_shorter_texts():
    pattern, longest = "(?<=x) + +$", Choices(2, 1).max_characters
    assert compile_pattern(pattern).max_characters == longest < 1000
    assert value_of(f"regexp_instr(s, '{pattern}')", "x" + " " * (longest - 1)) == 2
    with pytest.raises(EvaluationError, match=f"maximum is {longest}, because"):
        value_of(f"regexp_instr(s, '{pattern}')", "x" + " " * longest)
    # RE2 searches in linear time and needs no limit.
    assert value_of("regexp_instr(s, ' + +$')", " " * longest + "x") == 0


def test_a_pattern_of_many_choices_is_an_error_of_the_row():
    optional = "a?" * 30 + "a" * 30
    with pytest.raises(EvaluationError, match="maximum is 0"):
        value_of(f"regexp_like(s, '(?=a){optional}b')", "a" * 30)


def count_steps(items: list[tuple[str, str]], text: str) -> int:
    """Count the comparisons of a search that backtracks: of each start and each choice."""
    steps = 0

    def matches(number: int, position: int) -> bool:
        nonlocal steps
        steps += 1
        if number == len(items):
            return False  # so that it tries every choice
        characters, quantifier = items[number]
        low, high = {"": (1, 1), "?": (0, 1), "*": (0, len(text)), "+": (1, len(text))}[quantifier]
        end = position
        while end < len(text) and end - position < high and text[end] in characters:
            end += 1
            steps += 1
        return any(matches(number + 1, stop) for stop in range(end, position + low - 1, -1))

    for start in range(len(text) + 1):
        matches(0, start)
    return steps


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "ab"]), st.sampled_from("?*+") | st.just(""))),
    st.sampled_from(["a", "b", "ab", "aab"]),
    st.integers(0, 16),
)
def test_the_combinations_bound_the_work_of_backtracking(items, part, length):
    items, text = items[:5], (part * length)[:length]
    pattern = "".join(f"[{characters}]{quantifier}" for characters, quantifier in items)
    bound = count_choices(pattern, 0).combinations(len(text))
    # Each combination is reached by a step per part of the pattern, and reads a character in each.
    assert count_steps(items, text) <= 2 * (len(items) + 1) * bound


@pytest.mark.parametrize("function", ["regexp_full_match(s, 'a(?=b)b')", "s SIMILAR TO 'a(?=b)b'"])
def test_a_pattern_with_look_around_is_matched_with_the_whole_text(function):
    assert [value_of(function, text, "duckdb") for text in ("ab", "xab", "abx")] == [
        True,
        False,
        False,
    ]


def test_a_replacement_with_a_group_that_does_not_exist_is_refused():
    with pytest.raises(EvaluationError, match="is no replacement"):
        value_of("regexp_replace(s, '(?<=a)b', '$3')", "ab")


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "é", "[ab]", ".", "[^a]"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        inner.map(lambda pattern: f"({pattern})+"),
        inner.map(lambda pattern: f"(?:{pattern})?"),
    ),
    max_leaves=5,
)


@settings(max_examples=200)
@given(PATTERNS, st.text("abéc", max_size=8))
def test_linear_search_finds_the_matches_of_python(text_of_pattern, text):
    pattern = compile_pattern(text_of_pattern)
    assume(pattern.compiled.groups <= 9 and not re.search(pattern.text, ""))
    expected = [(m.start(), m.end(), m[0]) for m in re.finditer(pattern.text, text)]
    assert [(m.start, m.end, m.groups[0]) for m in pattern._find_linear(text, None)] == expected
    assert [(m.start, m.end, m.groups[0]) for m in pattern.find_all(text)] == expected
    first = pattern.find(text)
    assert (first and (first.start, first.end, first.groups[0])) == (expected or [None])[0]


@settings(max_examples=100)
@given(
    st.text("aabc*?[]!-^\\é", max_size=7),
    st.lists(st.text("abc*]!-^\\é\n", max_size=4), min_size=1),
)
def test_glob_matches_what_duckdb_matches_or_is_refused(pattern, texts):
    duckdb = pytest.importorskip("duckdb")
    try:
        glob_to_regex(pattern)
    except pa.ArrowInvalid:
        return
    (glob,) = (function for function in like_patterns.FUNCTIONS if function.name == "glob")
    values = pa.array(texts, pa.string())
    matches = glob.kernel([values, pa.scalar(pattern)], pa.bool_())
    with duckdb.connect() as database:
        expected = [database.execute("SELECT $1 GLOB $2", [s, pattern]).fetchone() for s in texts]
    assert [(match,) for match in matches.to_pylist()] == expected


@settings(max_examples=100)
@given(
    st.text("aA%_\\\n", max_size=6),
    st.lists(st.text("aA%_\\\n", max_size=5), min_size=1),
    st.sampled_from(["like", "ilike"]),
    st.sampled_from(["", "\\"]),
)
def test_like_matches_what_duckdb_matches(pattern, texts, name, escape):
    duckdb = pytest.importorskip("duckdb")
    assume(not escape or not re.search(r"\\([^%_\\]|$)", re.sub(r"\\\\", "", pattern)))
    (like,) = (function for function in like_patterns.FUNCTIONS if function.name == name)
    suffix, parameters = ("ESCAPE $3", [pattern, escape]) if escape else ("", [pattern])
    arguments = [pa.array(texts, pa.string()), *map(pa.scalar, parameters)]
    with duckdb.connect() as database:
        query = f"SELECT $1 {name} $2 {suffix}"
        expected = [database.execute(query, [text, *parameters]).fetchone() for text in texts]
    matches = like.kernel(arguments, pa.bool_())
    assert [(match,) for match in matches.to_pylist()] == expected


@given(
    st.text("aé%", max_size=6),
    st.lists(st.none() | st.text("aé%", max_size=6), min_size=1, max_size=like_patterns.FEW_TEXTS),
)
def test_few_texts_match_as_many_do(pattern, texts):
    (like,) = (function for function in like_patterns.FUNCTIONS if function.name == "like")
    few = like.kernel([pa.array(texts, pa.string()), pa.scalar(pattern)], pa.bool_())
    repeated = pa.array(texts * (like_patterns.FEW_TEXTS + 1), pa.string())
    many = like.kernel([repeated, pa.scalar(pattern)], pa.bool_())
    assert few.equals(many[: len(texts)])


ESCAPES = [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B"]
CLASSES = [r"[\d.]", r"[^\w]", r"[\W]", r"[\S ]", r"[^\s\d]"]


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([*ESCAPES, *CLASSES, "a", "ä"]), min_size=1, max_size=4),
    st.text(st.sampled_from("aä1\u0663_. \u00a0\v\n"), max_size=8),
)
def test_classes_of_characters_are_ascii_as_in_re2(parts, text):
    assume(set(parts) - {r"\b", r"\B"})  # empty matches are counted differently
    pattern = compile_pattern("".join(parts))
    assert list(pattern.find_all(text)) == list(pattern._find_linear(text, None))


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_a_digit_of_another_script_is_no_digit_with_and_without_look_around(dialect):
    backslash = "\\" if dialect == "duckdb" else "\\\\"
    rows = pa.table({"s": ["a\u0663b", "x5"]})
    for pattern in ("d", "d(?=$)"):
        texts = f"regexp_extract_all(s, '{backslash}{pattern}', 0) AS texts"
        view = compile_sql(f"SELECT {texts} FROM t", {"t": rows.schema}, dialect=dialect)
        delta = view.step({"t": rows})["view"]
        assert sorted(delta["texts"].to_pylist()) == [[], ["5"]]
