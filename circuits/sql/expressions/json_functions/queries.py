"""JSON_VALUE, JSON_QUERY, JSON_EXISTS and IS JSON.

In dialect spark the three functions are those of the SQL standard as Flink computes them. A path
finds a value, finds nothing (*empty*), or is an *error*:

=========================== ============================= ==============================
the path finds              mode strict (the default)     mode lax
=========================== ============================= ==============================
no value, or no JSON text   error                         empty
null                        empty                         empty
a value of the wrong shape  error                         empty
=========================== ============================= ==============================

JSON_VALUE needs a scalar, JSON_QUERY an object or an array. ON EMPTY and ON ERROR say what the
result is then. A value that RETURNING cannot convert is an error.

In dialect duckdb, ``json_value`` and ``json_exists`` are those of DuckDB, without clauses.

Reference: ISO/IEC 9075-2:2016, 6.27 to 6.29; JSON functions in Flink's documentation.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.json_functions.paths import constant_path
from circuits.sql.expressions.json_functions.values import call_json, mark_json
from circuits.sql.expressions.literals import NULL, string_literal
from circuits.sql.syntax.json_syntax import HAS_JSON_CLAUSES
from circuits.sql.syntax.types import arrow_type

__all__ = ["READERS_BY_NAME", "read_is_json"]

_STRUCTURED: Final = ("object", "array")
_ABSENT: Final = ("invalid", "missing")
_IS_JSON_KINDS: Final = {
    "VALUE": ("object", "array", "scalar", "null"),
    "OBJECT": ("object",),
    "ARRAY": ("array",),
    "SCALAR": ("scalar", "null"),
}
_VALUE_BEHAVIORS: Final = ("null", "error", "default")
_QUERY_BEHAVIORS: Final = ("null", "error", "array", "object")
_LIST_BEHAVIORS: Final = ("null", "error", "array")
_EXISTS_BEHAVIORS: Final = ("true", "false", "unknown", "error")


class _JsonCall(NamedTuple):
    """The parts of a call.

    Attributes:
        node: Its syntax tree.
        document: The JSON text.
        steps: The path as `circuits.types.functions.nested.json_texts` takes it.
        is_lax: True for a path in mode lax.
        clauses: The trees of the clauses: the type, the wrapper, the word and the value of ON
            EMPTY, and those of ON ERROR.
    """

    node: exp.Anonymous
    document: Expression
    steps: list[Expression]
    is_lax: bool
    clauses: tuple[exp.Expr, ...]


def _read_call(clause: Clause, node: exp.Anonymous) -> _JsonCall:
    source, name = clause.source, node.name.upper()
    has_clauses = bool(node.meta.get(HAS_JSON_CLAUSES))
    if has_clauses and not source.is_spark and node.name != "json_query":
        raise source.unsupported(
            node, f"{name}() with clauses", "DuckDB has none; write coalesce(), or dialect='spark'"
        )
    if len(node.expressions) < 2 or (len(node.expressions) > 2 and not has_clauses):
        raise source.error(node, f"{name}() takes a JSON text and a path")
    document, path, *clauses = node.expressions
    if not isinstance(path, exp.Literal) or not path.is_string:
        raise source.unsupported(node, "a path that is not constant", "write it as '$.name[0]'")
    mode, _, rest = path.this.strip().partition(" ")
    is_mode = mode.casefold() in ("lax", "strict")
    steps = constant_path(clause, node, path, rest.strip() if is_mode else path.this)
    is_lax = is_mode and mode.casefold() == "lax"
    for part in clauses:
        source.mark_read(part)
    absent = (exp.null(),) * 6
    return _JsonCall(node, clause.read(document), steps, is_lax, tuple(clauses) or absent)


def _is_one_of(
    clause: Clause, node: exp.Expr, kind: Expression, kinds: tuple[str, ...]
) -> Expression:
    tests = [clause.call(node, "eq", kind, string_literal(name)) for name in kinds]
    return tests[0] if len(tests) == 1 else clause.call(node, "or", *tests)


def _behavior(
    clause: Clause, call: _JsonCall, event: str, allowed: tuple[str, ...], target: pa.DataType
) -> Expression:
    """Return the value that ON EMPTY or ON ERROR gives."""
    word_node, value_node = call.clauses[2:4] if event == "EMPTY" else call.clauses[4:6]
    default = "null" if allowed[0] == "null" else "false"
    word = word_node.this if isinstance(word_node, exp.Literal) else default
    name = call.node.name.upper()
    if word not in allowed:
        raise clause.source.unsupported(
            call.node,
            f"{word.upper()} ON {event} of {name}()",
            f"write one of {', '.join(allowed).upper()}",
        )
    if word == "error":
        message = string_literal(f"{name}() has no value: ERROR ON {event}")
        error = clause.call(call.node, "raise_error", message)
        return clause.call(call.node, "cast", error, type=target)
    if word == "default":
        return clause.call(call.node, "cast", clause.read(value_node), type=target)
    if word == "array" and pa.types.is_list(target):
        return clause.call(call.node, "cast", clause.call(call.node, "make_list"), type=target)
    constants: dict[str, object] = {"array": "[]", "object": "{}", "true": True, "false": False}
    return Literal(constants.get(word), target)


def _choose(
    clause: Clause,
    call: _JsonCall,
    value: Expression,
    behaviors: tuple[str, ...],
    target: pa.DataType,
) -> Expression:
    """Return the value of a call, or that of ON EMPTY or ON ERROR if it is NULL."""
    node = call.node
    on_empty = _behavior(clause, call, "EMPTY", behaviors, target)
    on_error = _behavior(clause, call, "ERROR", behaviors, target)
    converted = value
    if value.type != target:
        converted = clause.call(node, "try_cast", value, type=target)
    no_value = Literal(None, target)
    if on_empty == on_error == no_value:
        return converted
    is_empty = clause.call(node, "is_null", value)
    if not call.is_lax:
        kind = call_json(clause, node, "json_kind", call.document, *call.steps)
        is_null = clause.call(node, "eq", kind, string_literal("null"))
        on_empty = clause.call(node, "case", is_null, on_empty, on_error)
    is_converted = clause.call(node, "not", clause.call(node, "is_null", converted))
    return clause.call(
        node,
        "case",
        *(is_converted, converted),
        *(clause.call(node, "is_null", call.document), no_value),
        *(is_empty, on_empty),
        on_error,
    )


def _returning(clause: Clause, call: _JsonCall) -> pa.DataType:
    (node, *_) = call.clauses
    return arrow_type(clause.source, node.to) if isinstance(node, exp.Cast) else pa.string()


def _refuse_wrapper(clause: Clause, call: _JsonCall) -> None:
    if isinstance(call.clauses[1], exp.Literal):
        raise clause.source.error(
            call.node, f"{call.node.name.upper()}() has no WRAPPER; leave it out"
        )


def _read_json_value(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read JSON_VALUE: a scalar, as text without quotes or in the type of RETURNING."""
    call = _read_call(clause, node)
    if not clause.source.is_spark:
        kind = call_json(clause, node, "json_kind", call.document, *call.steps)
        is_scalar = clause.call(node, "eq", kind, string_literal("scalar"))
        value = call_json(clause, node, "json_value", call.document, *call.steps)
        text = mark_json(clause, value, "")  # DuckDB gives it the type VARCHAR
        return clause.call(node, "case", is_scalar, text, NULL)
    _refuse_wrapper(clause, call)
    value = clause.call(node, "json_scalar", call.document, *call.steps)
    return _choose(clause, call, value, _VALUE_BEHAVIORS, _returning(clause, call))


def _read_json_query(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read JSON_QUERY: an object or an array, as JSON."""
    call = _read_call(clause, node)
    target = _returning(clause, call)
    is_list_of_texts = pa.types.is_list(target) and pa.types.is_string(target.value_type)
    if not (pa.types.is_string(target) or is_list_of_texts):
        raise clause.source.unsupported(
            node, f"JSON_QUERY() RETURNING {target}", "convert its text with from_json()"
        )
    kind = call_json(clause, node, "json_kind", call.document, *call.steps)
    text = call_json(clause, node, "json_value", call.document, *call.steps)
    wrapped = clause.call(node, "concat", string_literal("["), text, string_literal("]"))
    is_structured = _is_one_of(clause, node, kind, _STRUCTURED)
    wrapper = call.clauses[1]
    word = wrapper.this if isinstance(wrapper, exp.Literal) else "without"
    other: Expression = Literal(None, pa.string())
    if word != "without":
        is_scalar = _is_one_of(clause, node, kind, ("scalar",))
        other = clause.call(node, "case", is_scalar, wrapped, NULL)
    # As in Flink, a conditional wrapper is added to objects, too.
    array = text if word != "unconditional" else wrapped
    is_array = _is_one_of(clause, node, kind, ("array",))
    structured = clause.call(node, "case", is_array, array, text if word == "without" else wrapped)
    value = clause.call(node, "case", is_structured, structured, other)
    if not is_list_of_texts:
        return _choose(clause, call, value, _QUERY_BEHAVIORS, pa.string())
    # An object is no list, so it is an error or empty, as in a lax path.
    value = clause.call(node, "case", is_array, value, other)
    elements = call_json(clause, node, "from_json", value, Literal(None, target))
    return _choose(clause, call, elements, _LIST_BEHAVIORS, target)


def _read_json_exists(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read JSON_EXISTS. A value that is null exists in DuckDB, and not in Flink."""
    call = _read_call(clause, node)
    kind = call_json(clause, node, "json_kind", call.document, *call.steps)
    if not clause.source.is_spark:
        is_invalid = clause.call(node, "eq", kind, string_literal("invalid"))
        exists = clause.call(node, "ne", kind, string_literal("missing"))
        return clause.call(node, "case", is_invalid, NULL, exists)
    _refuse_wrapper(clause, call)
    if not isinstance(call.clauses[0], exp.Null) or not isinstance(call.clauses[2], exp.Null):
        raise clause.source.error(node, "JSON_EXISTS() has only ON ERROR; leave the others out")
    on_error = _behavior(clause, call, "ERROR", _EXISTS_BEHAVIORS, pa.bool_())
    is_absent = _is_one_of(clause, node, kind, _ABSENT)
    exists = clause.call(node, "ne", kind, string_literal("null"))
    on_absent = Literal(False, pa.bool_()) if call.is_lax else on_error
    return clause.call(node, "case", is_absent, on_absent, exists)


def read_is_json(clause: Clause, node: exp.Is) -> Expression:
    """Read ``a IS JSON [VALUE | OBJECT | ARRAY | SCALAR]``.

    NULL gives NULL, as in the standard; in dialect spark it gives FALSE, as in Flink.
    """
    predicate = node.expression
    clause.source.allow_arguments(predicate, "this")
    kinds = _IS_JSON_KINDS[predicate.args.get("this") or "VALUE"]
    kind = call_json(clause, node, "json_kind", clause.read(node.this))
    test = _is_one_of(clause, node, kind, kinds)
    if not clause.source.is_spark:
        return test
    return clause.call(node, "coalesce", test, Literal(False, pa.bool_()))


READERS_BY_NAME: Final[dict[str, Reader]] = {
    "json_exists": _read_json_exists,
    "json_query": _read_json_query,
    "json_value": _read_json_value,
}
