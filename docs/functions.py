"""Generates the pages of functions from the function table, with the result of every example.

::

    python -m docs.functions           # write the pages in docs/reference
    python -m docs.functions --check   # exit status 1 if a page differs from the table

Every function of `circuits.types.functions.registry` has an example here; a function without one is
an error. The engine computes the results when the pages are written.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from circuits import compile_sql
from circuits.types.functions import FUNCTIONS
from docs.function_examples import MORE_EXAMPLES

__all__ = ["EXAMPLES", "pages", "result_of"]

REFERENCE: Final = Path(__file__).parent / "reference"

#: The sections of the second page, in their order.
NESTED: Final = (
    "Lists",
    "Aggregates of a list",
    "Lists in dialect spark",
    "Structs and maps",
    "JSON",
    "JSON and CSV in dialect spark",
    "Texts of jsonb",
    "Lists as texts in PostgreSQL",
    "VARIANT",
)

#: The sections of the first page, in their order.
SCALAR: Final = (
    "Logic and NULL",
    "Comparison",
    "Types",
    "Checks and masks",
    "Errors",
    "Numbers",
    "Rounding",
    "Trigonometry and logarithms",
    "Special functions of floats",
    "Bits and whole numbers",
    "Arithmetic of dialect spark",
    "Formatted numbers",
    "Numbers as strings",
    "Strings",
    "Parts of strings",
    "Regular expressions",
    "Distances of strings",
    "Encodings",
    "ENUM",
    "Hashes",
)

#: The sections of the page of dates and times, in their order.
DATES: Final = (
    "Dates and times",
    "Fields of dates and intervals",
    "Times of day",
    "Moved and made dates",
    "Formatted dates",
)

INTRODUCTION: Final = """\
# Functions

This page lists the scalar functions. `python -m docs.functions` generates it from the table of
functions; the engine computes the results. If an argument is NULL, the result is NULL, unless the
description says otherwise. If a function has no value for a row, the step raises `EvaluationError`,
which names the function and its arguments. With `bad_rows="dead_letter"`, a sink stores such a row
as a dead letter instead.

The letters `a`, `b` and `c` in the descriptions are the first, second and third argument. In
Datalog, call a function by its name in the first column: `y = lower(x)`. In SQL, write it as in the
column *example*: the name in the dialect may differ (`ascii` for `code_point`). An example that
begins with `spark:` or `postgres:` is for that dialect.

See also [Functions of dates and times](date-functions.md);
[Functions of lists, structs, maps and JSON](nested-functions.md);
[Types, values and casts](values.md) for the rounding of casts and the strings that they accept; and
[Bad rows](../how-to/bad-rows.md#maximum-lengths) for the maximum length of strings.
"""

DATES_INTRODUCTION: Final = """\
# Functions of dates and times

This page lists the functions of dates, timestamps, times of day and intervals. It is generated, and
has the same columns as the page [Functions](functions.md).
"""

NESTED_INTRODUCTION: Final = """\
# Functions of lists, structs, maps and JSON

This page lists the functions of lists, structs, maps and JSON texts. It is generated, and has the
same columns as the page [Functions](functions.md).
[Lists, structs, maps and JSON](sql.md#lists-structs-maps-and-json) says how to declare columns of
these types, and how to make one row per element of a list.
"""

#: The sections of the pages, each with an example in SQL for each of its functions.
EXAMPLES: Final[Mapping[str, Mapping[str, str]]] = {
    "Logic and NULL": {
        "and": "true AND NULL",
        "or": "true OR NULL",
        "not": "NOT true",
        "is_null": "NULL IS NULL",
        "is_true": "NULL::BOOLEAN IS TRUE",
        "coalesce": "coalesce(NULL, 2)",
        "nullif": "nullif(3, 3)",
        "case": "CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END",
        "if": "if(1 > 2, 'a', 'b')",
    },
    "Comparison": {
        "eq": "1 = 1.0",
        "ne": "1 <> 2",
        "lt": "'a' < 'b'",
        "le": "2 <= 1",
        "gt": "2 > 1",
        "ge": "2 >= 2",
        "same": "NULL IS NOT DISTINCT FROM NULL",
        "in": "3 IN (1, 2, 3)",
        "like": "'abc' LIKE 'a%'",
        "ilike": "'ABC' ILIKE 'a_c'",
        "glob": "'abc' GLOB 'a[a-c]?'",
        "greatest": "greatest(1, NULL, 3)",
        "least": "least(2, 1)",
    },
    "Numbers": {
        "add": "1 + 2.5",
        "subtract": "3 - 5",
        "multiply": "6 * 7",
        "divide": "7 / 2",
        "int_divide": "7 // 2",
        "modulo": "-7 % 3",
        "negate": "-(5)",
        "abs": "abs(-5)",
        "sign": "sign(-2.5)",
        "round": "round(2.345, 2)",
        "floor": "floor(-2.5)",
        "ceil": "ceil(2.1)",
        "trunc": "trunc(-2.7)",
        "power": "power(2, 10)",
        "sqrt": "sqrt(16)",
        "exp": "exp(0)",
        "ln": "ln(1)",
        "log10": "log10(1000)",
    },
    "Strings": {
        "concat": "concat('a', NULL, 'b')",
        "lower": "lower('Rome')",
        "upper": "upper('Rome')",
        "reverse": "reverse('abc')",
        "length": "length('häuser')",
        "substring": "substring('Siena', 2, 3)",
        "left": "left('Siena', 2)",
        "right": "right('Siena', 2)",
        "trim": "trim('  a ')",
        "ltrim": "ltrim('xxa', 'x')",
        "rtrim": "rtrim('a  ')",
        "replace": "replace('a-b-c', '-', '+')",
        "starts_with": "starts_with('Rome', 'Ro')",
        "ends_with": "ends_with('Rome', 'me')",
        "contains": "contains('Rome', 'om')",
        "position": "position('m' IN 'Rome')",
        "lpad": "lpad('7', 3, '0')",
        "rpad": "rpad('7', 3, '.')",
        "repeat": "repeat('ab', 3)",
        "split_part": "split_part('a,b,c', ',', 2)",
    },
    "Dates and times": {
        "year": "year(DATE '2024-02-29')",
        "quarter": "quarter(DATE '2024-05-01')",
        "month": "month(DATE '2024-02-29')",
        "week": "week(DATE '2024-02-29')",
        "day": "day(DATE '2024-02-29')",
        "day_of_week": "dayofweek(DATE '2024-02-29')",
        "day_of_year": "dayofyear(DATE '2024-02-29')",
        "hour": "hour(TIMESTAMP '2024-02-29 13:45:30')",
        "minute": "minute(TIMESTAMP '2024-02-29 13:45:30')",
        "second": "second(TIMESTAMP '2024-02-29 13:45:30')",
        "date_trunc": "date_trunc('month', DATE '2024-02-29')",
        "date_add": "DATE '2024-01-31' + INTERVAL 1 MONTH",
        "age": "age(DATE '2024-03-01', DATE '2022-12-31')::VARCHAR",
        "date_diff": "date_diff('day', DATE '2024-02-28', DATE '2024-03-01')",
        "time_bucket": "time_bucket(INTERVAL 10 MINUTE, TIMESTAMP '2024-02-29 12:34:56')",
        "month_bucket": "time_bucket(INTERVAL 3 MONTH, DATE '2024-02-29')",
    },
    "Lists": {
        "make_list": "[1, 2, NULL]",
        "list_length": "len([1, 2])",
        "list_element": "['a', 'b'][-1]",
        "list_slice": "[1, 2, 3, 4][2:3]",
        "list_contains": "list_contains([1, 2], 2)",
        "list_position": "list_position(['a', 'b'], 'b')",
        "list_distinct": "list_distinct([2, 2, NULL])",
        "list_sort": "list_sort([2, NULL, 1])",
        "list_sort_nulls_first": "list_sort([2, NULL, 1], 'ASC', 'NULLS FIRST')",
        "list_sort_desc": "list_sort([2, NULL, 1], 'DESC')",
        "list_sort_desc_nulls_first": "list_sort([2, NULL, 1], 'DESC', 'NULLS FIRST')",
        "list_reverse": "list_reverse([1, 2])",
        "list_concat": "list_concat([1], NULL, [2])",
        "list_concat_or_null": "[1] || [2]",
        "list_append": "list_append([1], 2)",
        "list_prepend": "list_prepend(0, [1])",
        "list_flatten": "flatten([[1], NULL, [2]])",
        "list_intersect": "list_intersect([1, 2], [2, 3])",
        "list_overlaps": "list_has_any([1, 2], [2, 3])",
        "list_contains_all": "list_has_all([1, 2], [2])",
        "list_zip": "list_zip([1, 2], ['a'])",
        "list_min": "list_min([3, 1])",
        "list_max": "list_max([3, 1])",
        "list_sum": "list_sum([1, 2])",
        "list_avg": "list_avg([1, 2])",
        "list_join": "array_to_string(['a', NULL, 'b'], '-')",
        "series": "generate_series(1, 3)",
        "series_before": "range(3)",
        "split": "string_split('a,b', ',')",
        "split_regex": "regexp_split_to_array('a1b', '[0-9]')",
        "list_transform": "list_transform([1, 2], lambda x: x * 10)",
        "list_filter": "list_filter([1, 2], lambda x: x > 1)",
        "list_reduce": "list_reduce([1, 2, 3], lambda x, y: x + y, 0)",
        "list_select": "list_select([10, 20, 30], [3, 1])",
        "list_where": "list_where([10, 20, 30], [true, false, true])",
        "list_resize": "list_resize([1, 2], 3, 0)",
        "list_slice_step": "[1, 2, 3, 4, 5][1:5:2]",
        "list_grade_up": "list_grade_up([30, 10, 20])",
        "list_grade_up_nulls_first": "list_grade_up([30, NULL], 'ASC', 'NULLS FIRST')",
        "list_grade_up_desc": "list_grade_up([30, 10, 20], 'DESC')",
        "list_grade_up_desc_nulls_first": "list_grade_up([30, NULL], 'DESC', 'NULLS FIRST')",
    },
    "Aggregates of a list": {
        "list_count": "list_count([1, NULL])",
        "list_first": "list_first([NULL, 1])",
        "list_last": "list_last([1, 2])",
        "list_any_value": "list_any_value([NULL, 1])",
        "list_product": "list_product([2, 3])",
        "list_bool_and": "list_bool_and([true, false])",
        "list_bool_or": "list_bool_or([true, false])",
        "list_bit_and": "list_bit_and([7, 3])",
        "list_bit_or": "list_bit_or([4, 1])",
        "list_bit_xor": "list_bit_xor([5, 1])",
        "list_var_pop": "list_var_pop([1, 3])",
        "list_var_samp": "list_var_samp([1, 3])",
        "list_stddev_pop": "list_stddev_pop([1, 3])",
        "list_stddev_samp": "list_aggregate([1, 1, 4], 'stddev_samp')",
        "list_median": "list_median([1, 2, 9])",
        "list_mode": "list_mode(['a', 'b', 'b'])",
        "list_dot_product": "list_dot_product([1, 2], [3, 4])",
        "list_distance": "list_distance([1, 2], [4, 6])",
        "list_cosine_similarity": "list_cosine_similarity([1, 0], [1, 1])",
    },
    "Lists in dialect spark": {
        "split_limit": "split('a,b,c', ',', 2)",
        "regexp_extract_all": "regexp_extract_all('1-2, 3-4', '([0-9])-([0-9])', 2)",
        "sentences": "sentences('Hi there! Good morning.')",
        "list_get_strict": "array(5, 6)[0]",
        "list_get": "get(array(5, 6), 2)",
        "list_element_strict": "element_at(array(5, 6), -1)",
        "list_element_not_zero": "try_element_at(array(5, 6), 3)",
        "list_slice_length": "slice(array(1, 2, 3), 2, 2)",
        "list_contains_or_null": "array_contains(array(1, NULL), 2)",
        "list_position_or_zero": "array_position(array(5, 6), 7)",
        "list_distinct_with_null": "array_distinct(array(1, NULL, 1))",
        "list_compact": "array_compact(array(1, NULL))",
        "list_remove": "array_remove(array(1, 2), 1)",
        "list_append_or_null": "array_append(array(1), 2)",
        "list_prepend_or_null": "array_prepend(array(1), 0)",
        "list_flatten_or_null": "flatten(array(array(1), NULL))",
        "list_union": "array_union(array(1, 2), array(2, 3))",
        "list_except": "array_except(array(1, 2), array(2, 3))",
        "list_overlaps_or_null": "arrays_overlap(array(1, NULL), array(2))",
        "list_repeat": "array_repeat('a', 2)",
        "sequence": "sequence(3, 1)",
        "list_sort_by": "array_sort(array(5, 6, 1), (x, y) -> y - x)",
        "list_exists": "exists(array(1, 2), x -> x > 1)",
        "list_forall": "forall(array(1, 2), x -> x > 1)",
    },
    "Structs and maps": {
        "make_struct": "{'x': 1, 'y': 'a'}",
        "struct_field": "{'x': 1, 'y': 'a'}.y",
        "make_map": "MAP {'a': 1}",
        "map_value": "MAP {'a': 1}['a']",
        "map_contains": "map_contains(MAP {'a': 1}, 'b')",
        "map_size": "cardinality(MAP {'a': 1})",
        "map_keys": "map_keys(MAP {'a': 1})",
        "map_values": "map_values(MAP {'a': 1})",
        "map_entries": "map_entries(MAP {'a': 1})",
        "map_from_entries": "map_from_entries([{'k': 'a', 'v': 1}])",
        "map_from_entries_or_null": "spark: map_from_entries(array(struct('a', 1), NULL))",
        "map_concat": "spark: map_concat(map('a', 1), map('b', 2))",
        "nested_text": "CAST({'x': [1, NULL], 'y': 'a, b'} AS VARCHAR)",
        "nested_of_text": "CAST('[1, NULL]' AS INT[])",
        "map_merge": "map_concat(MAP {'a': 1}, MAP {'a': 2})",
        "sorted_list_histogram": "list_histogram(['b', 'a', 'b'])",
        "list_histogram_bins": "histogram(n, [0, 5])",
        "list_histogram_exact": "histogram_exact(n, [1, 5])",
    },
    "JSON": {
        "json_value": """'{"a": ["x", 2]}'->'$.a[0]'""",
        "json_text": """'{"a": ["x", 2]}'->>'$.a[0]'""",
        "json_array_length_or_zero": "json_array_length('[1, 2]')",
        "json_type": "json_type('[1, 2]')",
        "json_elements": """json_elements('[1, "a"]')""",
        "json_keys": """json_keys('{"a": 1}')""",
        "json_members": """json_members('{"a": 1}')""",
        "json_valid": "json_valid('{')",
        "last_json_value": """postgres: '{"a": 1, "a": 2}'::jsonb -> 'a'""",
        "last_json_text": """postgres: '{"a": "x", "a": "y"}'::jsonb ->> 'a'""",
        "last_json_array_length_or_zero": "postgres: jsonb_array_length('[1, 2]'::jsonb)",
        "last_json_type": """postgres: json_type('{"a": 1, "a": []}', '$.a')""",
        "last_json_elements": """postgres: json_elements('[{"a": 1, "a": 2}]')""",
        "last_json_keys": """postgres: json_keys('{"a": 1, "a": 2}')""",
        "last_json_members": """postgres: json_members('{"a": 1, "a": 2}')""",
        "last_json_strip_nulls": """postgres: jsonb_strip_nulls('{"a": 1, "a": null, "b": 2}')""",
        "last_json_kind": """postgres: '{"a": 1, "a": 2}' IS JSON OBJECT""",
        "last_from_json": """postgres: from_json('{"a": 1, "a": 2}', '{"a": "INT"}')""",
        "cast_json": """'["1", 2.6]'::JSON::INT[]""",
        "try_cast_json": """TRY_CAST('["x", 1]'::JSON AS INT[])""",
        "json_matches": """json_extract('{"a": [1, "x"]}', '$.a[*]')""",
        "json_match_texts": """'{"a": [1, "x"]}'->>'$.a[*]'""",
        "json_entries": """json_entries('{"a": 1}')""",
        "json_contains": """json_contains('{"a": [1, 2]}', '{"a": [2]}')""",
        "json_includes": """json_includes('{"a": [1, 2]}', '{"a": [2.0]}')""",
        "json_at_path": """postgres: '{"a": [1, {"b": 2}]}'::jsonb #> '{a,1}'""",
        "json_text_at_path": """postgres: '{"a": ["x"]}'::jsonb #>> '{a,0}'""",
        "json_set": """postgres: jsonb_set('{"a": [1, 2]}', '{a,0}', '7')""",
        "json_insert": """postgres: jsonb_insert('{"a": [1, 2]}', '{a,0}', '7')""",
        "json_delete_path": """postgres: '{"a": [1, 2]}'::jsonb #- '{a,0}'""",
        "json_concat": """postgres: '{"a": 1}'::jsonb || '{"b": 2}'""",
        "json_delete_name": """postgres: '{"a": 1, "b": 2}'::jsonb - 'a'""",
        "json_delete_position": "postgres: '[5, 6]'::jsonb - 0",
        "json_strip_nulls": """json_strip_nulls('{"a": null, "b": 1}')""",
        "json_pretty": "json_pretty('5')",
        "json_merge_patch": """json_merge_patch('{"a": 1}', '{"a": null, "b": 2}')""",
        "json_kind": "'[1]' IS JSON ARRAY",
        "from_json": """from_json('{"a": 1}', '{"a": "INT", "b": "VARCHAR"}')""",
        "to_json": "to_json({'x': 1, 'y': NULL})",
        "last_to_json": """postgres: to_json(ARRAY['{"a": 1, "a": 2}'::json])""",
        "as_json": "json_object('x', json_array(1))",
        "json_of_text": "'[1]'::JSON",
    },
    "JSON and CSV in dialect spark": {
        "spark_json_value": """'{"a": 1e7}' -> '$.a'""",
        "spark_json_text": """'{"a": 1e7}' ->> '$.a'""",
        "spark_json_kind": "'[1]' IS JSON ARRAY",
        "spark_json_type": "json_type('[1, 2]')",
        "spark_json_elements": "json_elements('[1e7]')",
        "spark_json_members": """json_members('{"a": 1e7}')""",
        "schema_of_json": "schema_of_json('[{\"col\":0}]')",
        "from_csv": "from_csv('1, 0.8', 'a INT, b DOUBLE')",
        "to_csv": "to_csv(named_struct('a', 1, 'b', 2))",
        "schema_of_csv": "schema_of_csv('1,abc')",
        "text_to_map": "str_to_map('a:1,b:2')",
        "spark_text": "CAST(array(1, NULL) AS STRING)",
        "json_array_length": "json_array_length('{}')",
        "spark_json_matches": """get_json_object('{"a": [{"b": 1}, {"b": 2}]}', '$.a[*].b')""",
        "spark_from_json": """from_json('{"a": [1, "x"], "b": 2}', 'a ARRAY<INT>, b INT')""",
        "json_scalar": """json_value('{"a": "x"}', '$.a')""",
        "to_json_without_null": "to_json(named_struct('x', 1, 'y', CAST(NULL AS INT)))",
    },
    "Types": {
        "cast": "CAST('12' AS INT)",
        "try_cast": "TRY_CAST('x' AS INT)",
    },
    **MORE_EXAMPLES,
}


def main() -> int:
    """Write the pages, or compare them with the function table."""
    texts = pages()
    if "--check" in sys.argv:
        return int(any((REFERENCE / name).read_text() != text for name, text in texts.items()))
    for name, text in texts.items():
        (REFERENCE / name).write_text(text)
    return 0


def pages() -> dict[str, str]:
    """Return the pages as Markdown, by the names of their files.

    Raises:
        ValueError: A function has no example, or an example has no function.
    """
    documented = {name for examples in EXAMPLES.values() for name in examples}
    missing, unknown = set(FUNCTIONS) - documented, documented - set(FUNCTIONS)
    if missing or unknown:
        raise ValueError(
            f"EXAMPLES in docs/functions.py: missing: {sorted(missing)}; unknown: {sorted(unknown)}"
        )
    if sorted(EXAMPLES) != sorted((*SCALAR, *DATES, *NESTED)):
        raise ValueError("SCALAR, DATES and NESTED in docs/functions.py: name each section once")
    return {
        "functions.md": _page(INTRODUCTION, SCALAR),
        "date-functions.md": _page(DATES_INTRODUCTION, DATES),
        "nested-functions.md": _page(NESTED_INTRODUCTION, NESTED),
    }


def _page(introduction: str, titles: Sequence[str]) -> str:
    lines = [introduction]
    for title in titles:
        examples = EXAMPLES[title]
        lines += [f"## {title}", "", "| function | description | example | result |"]
        lines += ["| --- | --- | --- | --- |"]
        dialect = "spark" if title.endswith("dialect spark") else "duckdb"
        for name, example in examples.items():
            result = result_of(example, dialect)
            cells = (f"`{name}`", FUNCTIONS[name], f"`{example}`", f"`{result}`")
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def result_of(example: str, dialect: str = "duckdb") -> str:
    """Return the value of an SQL expression as an SQL literal."""
    named, separator, expression = example.partition(": ")
    if separator and named in ("spark", "postgres"):
        dialect, example = named, expression
    text = f"SELECT {example} AS x FROM t"
    circuit = compile_sql(text, {"t": "n BIGINT"}, dialect=dialect)
    (row,) = circuit.step({"t": [{"n": 1}]})["view"].to_pylist()
    return _as_sql(row["x"])


def _as_sql(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'"
        case dict():
            return f"{{{', '.join(f'{name!r}: {_as_sql(part)}' for name, part in value.items())}}}"
        case list() if value and all(isinstance(part, tuple) for part in value):
            return f"MAP {{{', '.join(f'{_as_sql(k)}: {_as_sql(part)}' for k, part in value)}}}"
        case list():
            return f"[{', '.join(map(_as_sql, value))}]"
        case _:
            return str(value)


if __name__ == "__main__":
    sys.exit(main())
