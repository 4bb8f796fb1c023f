"""The usage examples of Spark's functions: an independent measure of the dialect spark.

::

    python -m tests.oracles.spark_documentation cases.json    # extract Spark's answers, once
    python -m tests.oracles.spark_documentation --score cases.json [--list]

Spark keeps one or more statements per function in its registry (``DESCRIBE FUNCTION EXTENDED``).
The first command runs each of them, and writes the rows and the types or the class of the error.
The second compiles each as a view in dialect spark and compares. A statement is tried twice: as it
is written, and with its literals moved to an input table, so that no call is a constant. The cases
stay in a file outside the repository.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlglot import Tokenizer, TokenType

from circuits import compile_sql
from circuits.errors import UnsupportedSqlError

__all__ = ["OUTCOMES", "cases_of", "move_literals", "outcome", "score"]

#: From best to worst: the rows and types of Spark, or an error in both; the rows with other types;
#: an error only here; other rows, or an error only in Spark.
OUTCOMES = ("equal", "type", "refused", "different")

# The condition of PySpark when it cannot collect a value, such as an interval of months.
_NOT_COLLECTED = "NOT_IMPLEMENTED"
_EXAMPLE = re.compile(r"^ *> (.*?);? *$")
_RANDOM = re.compile(
    r"\b(rand\w*|uniform|uuid|now|current_\w+|curdate|localtimestamp|shuffle|monotonically\w*|"
    r"input_file\w*|spark_partition_id|version|user|session_user|java_method|reflect|"
    r"try_reflect|sketch\w*|hll_\w+|kll_\w+|theta_\w+|tuple_\w+|\w*_sketch\w*|count_min_sketch|"
    r"approx_top_k\w*|aes_encrypt)\(",
    re.IGNORECASE,
)


def cases_of(session: Any) -> Iterator[dict[str, Any]]:
    """Yield the examples of all built-in functions, with the results of Spark."""
    session.conf.set("spark.sql.session.timeZone", "UTC")
    state = session._jsparkSession.sessionState()
    seen: set[str] = set()
    for registry, group in (
        (state.functionRegistry(), None),
        (state.tableFunctionRegistry(), "table_funcs"),
    ):
        identifiers = registry.listFunction().iterator()
        while identifiers.hasNext():
            option = registry.lookupFunction(identifiers.next())
            if not option.isDefined():
                continue
            function = option.get()
            for line in function.getExamples().splitlines():
                match = _EXAMPLE.match(line)
                if match is None or match[1] in seen or match[1].upper().startswith("SET "):
                    continue
                seen.add(match[1])
                answer = _answer(session, match[1])
                yield {
                    "function": function.getName(),
                    "group": group or function.getGroup(),
                    "text": match[1],
                    "random": bool(_RANDOM.search(match[1]))
                    or answer.get("error") == _NOT_COLLECTED,
                    **answer,
                }


def _answer(session: Any, text: str) -> dict[str, Any]:
    try:
        frame = session.sql(text)
        rows = [_plain(tuple(row)) for row in frame.collect()]
        return {"rows": rows, "types": [field.dataType.simpleString() for field in frame.schema]}
    except Exception as error:
        condition = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
        return {"error": str(condition() if condition else None) or type(error).__name__}


def _plain(value: Any) -> Any:
    """Return a value of Spark or of Arrow in a form that JSON keeps and both share."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else f"float {value}"
        case Decimal():
            return f"decimal {value.normalize():f}" if value else "decimal 0"
        case bytes() | bytearray():
            return "bytes " + bytes(value).hex()
        case dt.datetime():
            if value.tzinfo is not None:
                value = value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"time {value.isoformat()}"
        case dt.date() | dt.time():
            return f"date {value.isoformat()}"
        case dt.timedelta():
            return f"duration {value // dt.timedelta(microseconds=1)}"
        case dict():
            return sorted((_plain(pair) for pair in value.items()), key=repr)
        case list() | tuple():
            return [_plain(part) for part in value]
        case _:
            return str(value)


def _rows_of(table: pa.Table) -> list[Any]:
    """Return the rows of a view, each as often as its weight says."""
    columns = [
        [_arrow_plain(cell) for cell in column]
        for name, column in zip(table.column_names, table.columns, strict=True)
        if name != "weight"
    ]
    rows = []
    for row, weight in zip(
        zip(*columns, strict=True), table.column("weight").to_pylist(), strict=True
    ):
        rows += [list(row)] * weight
    return rows


def _arrow_plain(cell: pa.Scalar) -> Any:
    if not cell.is_valid:
        return None
    type_ = cell.type
    if pa.types.is_map(type_):
        pairs = [[_arrow_plain(part) for part in pair.values()] for pair in cell.values]
        return sorted(pairs, key=repr)
    if pa.types.is_struct(type_):
        return [_arrow_plain(cell[index]) for index in range(type_.num_fields)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_arrow_plain(part) for part in cell.values]
    return _plain(cell.as_py())


def spark_type(type_: pa.DataType) -> str:
    """Return the name of a type in Spark."""
    types = pa.types
    if types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    if types.is_map(type_):
        return f"map<{spark_type(type_.key_type)},{spark_type(type_.item_type)}>"
    if types.is_list(type_) or types.is_large_list(type_):
        return f"array<{spark_type(type_.value_type)}>"
    if types.is_struct(type_):
        parts = (f"{part.name}:{spark_type(part.type)}" for part in type_)
        return f"struct<{','.join(parts)}>"
    names = {
        "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
        "float": "float", "double": "double", "string": "string", "large_string": "string",
        "bool": "boolean", "binary": "binary", "large_binary": "binary", "date32[day]": "date",
        "null": "void", "duration[us]": "interval day to second", "time64[us]": "time(6)",
    }  # fmt: skip
    return names.get(str(type_), str(type_))


def outcome(case: dict[str, Any], text: str, inputs: pa.Table | None = None) -> tuple[str, str]:
    """Compile and run a statement; return one of ``OUTCOMES`` and the details of a difference."""
    try:
        schemas = {} if inputs is None else {"input_row": inputs.schema}
        tables = {} if inputs is None else {"input_row": inputs}
        circuit = compile_sql(text, schemas, dialect="spark")
        view = circuit.step(tables)["view"]
    except UnsupportedSqlError as error:
        return ("refused", str(error)) if "rows" in case else ("equal", "")
    except Exception as error:
        if "error" in case:
            return "equal", ""
        return "refused", f"{type(error).__name__}: {error}"
    if "error" in case:
        return "different", f"no error, but Spark has {case['error']}"
    ours, theirs = _rows_of(view), case["rows"]
    if not _are_same_rows(ours, theirs):
        return "different", f"{ours} but Spark has {theirs}"
    types = [spark_type(type_) for type_ in view.schema.types[:-1]]
    if [_kind(name) for name in types] != [_kind(name) for name in case["types"]]:
        return "type", f"{types} but Spark has {case['types']}"
    return "equal", ""


def _kind(name: str) -> str:
    """Return a type without the names of fields and the units of intervals."""
    return re.sub(r"interval [a-z ]+", "interval", re.sub(r"[\w ]+:", ":", name.lower()))


def _are_same_rows(ours: list[Any], theirs: list[Any]) -> bool:
    if len(ours) != len(theirs):
        return False
    order = [sorted(rows, key=lambda row: repr(_rounded(row))) for rows in (ours, theirs)]
    return all(_is_same(left, right) for left, right in zip(*order, strict=True))


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    number = _number(value)
    return value if number is None else f"{number:.9g}"


def _number(value: Any) -> float | None:
    if isinstance(value, str) and value.startswith("decimal "):
        return float(value[8:])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    numbers = _number(left), _number(right)
    if numbers[0] is not None and numbers[1] is not None:
        return abs(numbers[0] - numbers[1]) <= 1e-9 * max(1.0, abs(numbers[0]))
    return bool(left == right)


def move_literals(text: str) -> tuple[str, pa.Table] | None:
    """Return a SELECT without FROM over a table of one row that has its literals as columns.

    None if there is no literal to move. A literal with a prefix or a suffix, as in DATE '...',
    keeps its place, and so do those of intervals.
    """
    tokens = list(Tokenizer(dialect="spark").tokenize(text))
    kinds = [token.token_type for token in tokens]
    if TokenType.FROM in kinds or TokenType.INTERVAL in kinds or TokenType.SELECT not in kinds:
        return None
    pieces, columns, end = [], [], 0
    for index, token in enumerate(tokens):
        before = kinds[index - 1] if index else None
        is_alone = before in (
            TokenType.L_PAREN, TokenType.COMMA, TokenType.SELECT, TokenType.L_BRACKET,
            TokenType.PLUS, TokenType.STAR, TokenType.SLASH, TokenType.EQ, TokenType.LT,
            TokenType.GT, TokenType.DIV, TokenType.AND, TokenType.OR,
        )  # fmt: skip
        if not is_alone or token.token_type not in (TokenType.NUMBER, TokenType.STRING):
            continue
        after = kinds[index + 1] if index + 1 < len(kinds) else None
        literal = text[token.start : token.end + 1]
        if literal.upper() != literal and token.token_type == TokenType.NUMBER:
            continue
        if after in (TokenType.VAR, TokenType.DCOLON) or literal[:1] in "rRxX" or "\\" in literal:
            continue
        column = _literal_column(token)
        if column is None:
            continue
        pieces += [text[end : token.start], f"lit{len(columns)}"]
        columns.append(column)
        end = token.end + 1
    if not columns:
        return None
    table = pa.table({f"lit{index}": column for index, column in enumerate(columns)})
    return "".join(pieces) + text[end:] + " FROM input_row", table


def _literal_column(token: Any) -> pa.Array | None:
    if token.token_type == TokenType.STRING:
        return pa.array([token.text])
    if re.fullmatch(r"\d+", token.text):
        value = int(token.text)
        return pa.array([value], pa.int32() if value < 2**31 else pa.int64())
    if re.fullmatch(r"\d*\.\d+", token.text):
        return pa.array([Decimal(token.text)])
    return None


def score(cases: Iterable[dict[str, Any]], *, moved: bool) -> list[tuple[dict[str, Any], str, str]]:
    """Return the outcome of each case that has one answer, and the details of a difference.

    With ``moved``, the literals are moved to an input table (`move_literals`).
    """
    results = []
    for case in cases:
        if case["random"]:
            continue
        if not moved:
            results.append((case, *outcome(case, case["text"])))
            continue
        try:
            with_table = move_literals(case["text"])
        except Exception:
            continue
        if with_table is not None and "rows" in case:
            results.append((case, *outcome(case, *with_table)))
    return results


def _print(results: list[tuple[dict[str, Any], str, str]], *, details: bool) -> None:
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for case, name, _ in results:
        groups[case["group"]][name] += 1
        groups["total"][name] += 1
    print(f"{'group':20}", *(f"{name:>9}" for name in OUTCOMES))
    for group in sorted(groups, key=lambda name: (name == "total", name)):
        print(f"{group:20}", *(f"{groups[group][name]:9}" for name in OUTCOMES))
    if details:
        for case, name, reason in results:
            if name != "equal":
                print(f"[{name}] {case['text']}\n    {reason.splitlines()[0][:300]}")


def main() -> None:
    """Extract the cases, or print the score."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=Path)
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.score:
        cases = json.loads(options.cases.read_text())
        for moved in (False, True):
            print("\nliterals as columns" if moved else "as written")
            _print(score(cases, moved=moved), details=options.list)
        return
    from streaming import start_session
    from streaming.demo.command import SPARK_SETTINGS

    log = options.cases.with_suffix(".log")
    session = start_session("cases", cores=2, memory="1g", log=log, settings=SPARK_SETTINGS)
    options.cases.write_text(json.dumps(list(cases_of(session))))
    session.stop()


if __name__ == "__main__":
    sys.exit(main())
