"""Generates the page of functions from the function table, with the result of every example.

::

    python -m docs.functions           # write docs/reference/functions.md
    python -m docs.functions --check   # exit status 1 if the page differs from the table

Every function of `circuits.types.functions.table` has an example here; a function without one is an
error. The engine computes the results when the page is written.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from circuits import compile_sql
from circuits.types.functions import FUNCTIONS

__all__ = ["EXAMPLES", "page", "result_of"]

PAGE: Final = Path(__file__).parent / "reference" / "functions.md"

INTRODUCTION: Final = """\
# Functions

This page is generated from the function table of the engine by `python -m docs.functions`, and the
engine computed the results. NULL as an argument gives NULL, unless the table says otherwise. If a
function has no value for a row, the step raises `EvaluationError`, which names the function and its
arguments. With `bad_rows="dead_letter"` a sink keeps such rows aside instead.

In SQL, write the expression of the column *example*. In Datalog, call the function by its name:
`y = lower(x)`. The letters `a`, `b`, `c` in the descriptions are the first, second and third
argument.

How casts round, and which strings they accept: [Types, values and casts](values.md). How long the
strings that functions return may be: [Bad rows](../how-to/bad-rows.md#maximum-lengths).
"""

#: The sections of the page, each with an example in SQL for each of its functions.
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
        "date_diff": "date_diff('day', DATE '2024-02-28', DATE '2024-03-01')",
    },
    "Types": {
        "cast": "CAST('12' AS INT)",
        "try_cast": "TRY_CAST('x' AS INT)",
    },
}


def main() -> int:
    """Write the page, or compare it with the function table."""
    text = page()
    if "--check" in sys.argv:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


def page() -> str:
    """Return the page as Markdown.

    Raises:
        ValueError: A function has no example, or an example has no function.
    """
    documented = {name for examples in EXAMPLES.values() for name in examples}
    missing, unknown = set(FUNCTIONS) - documented, documented - set(FUNCTIONS)
    if missing or unknown:
        raise ValueError(
            f"EXAMPLES in docs/functions.py: missing: {sorted(missing)}; unknown: {sorted(unknown)}"
        )
    lines = [INTRODUCTION]
    for title, examples in EXAMPLES.items():
        lines += [f"## {title}", "", "| function | description | example | result |"]
        lines += ["| --- | --- | --- | --- |"]
        for name, example in examples.items():
            cells = (f"`{name}`", FUNCTIONS[name], f"`{example}`", f"`{result_of(example)}`")
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def result_of(example: str) -> str:
    """Return the value of an SQL expression as an SQL literal."""
    circuit = compile_sql(f"SELECT {example} AS x FROM t", {"t": "n BIGINT"})
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
        case _:
            return str(value)


if __name__ == "__main__":
    sys.exit(main())
