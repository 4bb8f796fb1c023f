"""JSON in SQL: paths into texts of JSON, ``from_json`` and ``to_json``."""

from __future__ import annotations

import json
import re
from typing import Final, TypeGuard

import pyarrow as pa
import sqlglot
from sqlglot import exp

from circuits.errors import SchemaError
from circuits.plan.expressions import Call, Expression, Literal
from circuits.plan.json_values import JSON_KEEPING_AGGREGATES, common_json_kind
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import NULL, string_literal
from circuits.sql.expressions.spark.documents import read_options, read_schema
from circuits.sql.syntax.source import SqlSource
from circuits.sql.syntax.types import json_kind_of_type
from circuits.types.arrow_types import VARIANT, has_variant
from circuits.types.ddl import field_of, schema_of_ddl
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_text

__all__ = [
    "READERS",
    "READERS_BY_NAME",
    "call_json",
    "constant_path",
    "join_texts",
    "json_kind",
    "row_as_json",
    "value_as_json",
    "written_json_kind",
]


def _path_arguments(
    clause: Clause, node: exp.Expr, path: exp.Expr | None, *, allow_wildcards: bool = False
) -> list[Expression]:
    """Return the argument for a constant path: a JSON text of its steps; [] without a path."""
    if path is None:
        return []
    steps: list[str | int | bool | None] = []
    if isinstance(path, exp.Literal):
        clause.source.allow_arguments(path, "this", "is_string")
        if path.is_string and path.this.startswith("$"):
            return constant_path(clause, node, path, path.this)
        if path.is_string and path.this.startswith("/") and not clause.source.is_spark:
            raise clause.source.unsupported(
                node, "a path that begins with '/'", "write it as '$.name[0]'"
            )
        steps = [path.this] if path.is_string else [_position(clause, path)]
        return [string_literal(json.dumps(steps))]
    if isinstance(path, exp.Neg) and isinstance(path.this, exp.Literal) and not path.this.is_string:
        clause.source.allow_arguments(path, "this")  # a position from the end
        clause.source.allow_arguments(path.this, "this", "is_string")
        return [string_literal(json.dumps([-_position(clause, path.this)]))]
    if not isinstance(path, exp.JSONPath):
        raise clause.source.unsupported(
            path, "a path that is not constant", "write it as '$.name[0]'"
        )
    clause.source.mark_read(path)
    for step in path.expressions:
        if isinstance(step, exp.JSONPathRoot):
            continue
        if isinstance(step, exp.JSONPathKey | exp.JSONPathSubscript) and isinstance(
            step.this, str | int
        ):
            steps.append(step.this)
        elif allow_wildcards and (wildcard := _wildcard(step)) is not None:
            steps.append(_WILDCARD_STEPS[wildcard])
        else:
            construct = "a path with wildcards" if _wildcard(step) else "this part of a path"
            raise clause.source.unsupported(node, construct, "write the keys and positions")
    return [string_literal(json.dumps(steps))]


def _position(clause: Clause, literal: exp.Literal) -> int:
    """Return the position in an array that a number in a path gives."""
    if not literal.this.isdecimal():
        raise clause.source.unsupported(
            literal, f"the position {literal.this} in a path", "write an integer"
        )
    return int(literal.this)


#: The steps of `circuits.types.functions.nested.json_paths` for wildcards.
_WILDCARD_STEPS: Final = {"[*]": None, ".*": True}


def _wildcard(step: exp.Expr) -> str | None:
    """Return how a step of a path is written if it is a wildcard; None for any other."""
    if not isinstance(step, exp.JSONPathKey | exp.JSONPathSubscript):
        return None
    if not isinstance(step.this, exp.JSONPathWildcard):
        return None
    return "[*]" if isinstance(step, exp.JSONPathSubscript) else ".*"


def has_wildcard(path: exp.Expr | None) -> bool:
    """Return whether a constant path has a wildcard, so that it finds a list of values."""
    return isinstance(path, exp.JSONPath) and any(map(_wildcard, path.expressions))


def constant_path(
    clause: Clause, node: exp.Expr, literal: exp.Literal, text: str
) -> list[Expression]:
    """Return a constant path as an argument: a JSON text of its steps.

    Args:
        clause: The clause of the expression.
        node: The call, for errors.
        literal: The tree of the path.
        text: The path; a text that does not begin with ``$`` is a key.

    Raises:
        UnsupportedSqlError: The path has wildcards or filters.
    """
    clause.source.allow_arguments(literal, "this", "is_string")
    parsed: exp.Expr | None = exp.Literal.string(text)
    if text.startswith("$"):
        # In a name in quotes, [#- is no position from the end.
        pieces = re.split(r'("(?:[^"\\]|\\.)*")', text)
        pieces[::2] = [piece.replace("[#-", "[-") for piece in pieces[::2]]
        parsed = exp.Literal.string("".join(pieces))
        dialect = sqlglot.Dialect.get_or_raise(clause.source.dialect)
        # DuckDB's reader of paths leaves a text with [# as it is.
        is_plain = '"' not in text
        parsed = (dialect if is_plain else sqlglot.Dialect()).to_json_path(parsed)
        if not isinstance(parsed, exp.JSONPath):
            raise clause.source.unsupported(node, f"the path {text!r}", "write it as '$.name[0]'")
    return _path_arguments(clause, node, parsed)


def call_json(clause: Clause, node: exp.Expr, function: str, *arguments: Expression) -> Expression:
    """Return a call of a function of a JSON text.

    Of two members of an object with one name, the first one counts in DuckDB, and the last one in
    PostgreSQL, Flink and Spark.
    """
    first_member_counts = not (clause.source.is_spark or clause.source.is_postgres)
    return clause.call(node, function if first_member_counts else f"last_{function}", *arguments)


def _json_reader(function: str, list_function: str = "") -> Reader:
    """Return the reader of a function of a JSON text and a path.

    Args:
        function: The function.
        list_function: The function for a path with wildcards, which returns a list; none if empty.
    """

    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(
            node,
            *("this", "expression", "only_json_types", "scalar_only"),
            *("variant_extract", "requires_json"),
        )
        path = node.args.get("expression")
        is_list = bool(list_function) and has_wildcard(path) and not clause.source.is_spark
        steps = _path_arguments(clause, node, path, allow_wildcards=is_list)
        value = clause.read(node.this)
        if value.type == VARIANT and function == "json_value":
            return clause.call(node, "variant_at", value, *steps)
        if is_list:
            return clause.call(node, list_function, value, *steps)
        return call_json(clause, node, function, value, *steps)

    return read


def _read_json_keys(clause: Clause, node: exp.JSONKeys) -> Expression:
    """Read json_keys(). A value that is not an object has keys [] in DuckDB, NULL in Spark."""
    clause.source.allow_arguments(node, "this", "expression", "expressions")
    path = _path_arguments(clause, node, node.args.get("expression"))
    value = clause.read(node.this)
    if clause.source.is_spark:  # a name that occurs twice is there twice
        return clause.call(node, "json_keys", value, *path)
    keys = call_json(clause, node, "json_keys", value, *path)
    has_no_value = clause.call(node, "is_null", call_json(clause, node, "json_value", value, *path))
    empty = clause.call(node, "make_list")
    return clause.call(node, "case", has_no_value, NULL, clause.call(node, "coalesce", keys, empty))


def _json_reader_of_name(duckdb_function: str, spark_function: str = "") -> Reader:
    """Return the reader of a call that is one function in DuckDB, and maybe another in Spark."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if not 1 <= len(node.expressions) <= 2:
            raise clause.source.error(node, f"{node.name}() takes a JSON text and maybe a path")
        value, *path = node.expressions
        function = duckdb_function
        if spark_function and clause.source.is_spark:
            function = spark_function
        steps: list[Expression] = []
        if path:
            literal = path[0]
            if not isinstance(literal, exp.Literal):
                raise clause.source.unsupported(
                    node, "a path that is not constant", "write it as '$.name[0]'"
                )
            if literal.is_string:
                steps = constant_path(clause, node, literal, literal.this)
            else:
                steps = _path_arguments(clause, node, literal)
        if function in ("json_array_length", "json_entries", "json_valid"):
            return clause.call(node, function, clause.read(value), *steps)
        return call_json(clause, node, function, clause.read(value), *steps)

    return read


def _read_from_json(clause: Clause, node: exp.FromJson) -> Expression:
    clause.source.allow_arguments(node, "this", "expression", "options")
    schema = node.args.get("expression")
    options = node.args.get("options")
    if options is not None:
        _check_from_json_options(clause, options)
    if clause.source.is_spark and isinstance(schema, exp.Expr) and not _is_json_schema(schema):
        data_type = read_schema(clause, schema, clause.read(schema))
        if pa.types.is_struct(data_type) and data_type.get_field_index(_CORRUPT_RECORD) >= 0:
            raise clause.source.unsupported(
                schema,
                f"the column {_CORRUPT_RECORD} in the schema of from_json()",
                "leave it out; a malformed text has NULL in all columns",
            )
        if data_type == VARIANT:
            return clause.call(node, "try_parse_variant", clause.read(node.this))
        if has_variant(data_type):
            raise clause.source.unsupported(
                schema, "VARIANT in the schema of from_json()", "use parse_json() and variant_get()"
            )
        text, type_of_result = clause.read(node.this), Literal(None, data_type)
        return clause.call(node, "spark_from_json", text, type_of_result)
    if not isinstance(schema, exp.Literal) or not schema.is_string:
        raise clause.source.unsupported(
            node, "from_json() without a constant schema", "write it as 'a INT, b STRING'"
        )
    clause.source.allow_arguments(schema, "this", "is_string")
    if re.fullmatch(_LIST_OF_JSON, schema.this):
        return call_json(clause, node, "json_elements", clause.read(node.this))
    try:
        type = _parse_schema(schema.this)
    except (SchemaError, ValueError) as error:
        raise clause.source.error(schema, str(error)) from None
    arguments = clause.read(node.this), Literal(None, type)
    if clause.source.is_spark:
        return clause.call(node, "spark_from_json", *arguments)
    return call_json(clause, node, "from_json", *arguments)


# The column in which Spark returns a malformed text.
_CORRUPT_RECORD: Final = "_corrupt_record"


def _check_from_json_options(clause: Clause, node: exp.Expr) -> None:
    """Refuse the options of ``from_json(text, schema, map(...))`` that change its result."""
    options = read_options(clause, node, clause.read(node))
    for name, value in options.items():
        if (name, value.upper()) != ("mode", "PERMISSIVE"):
            raise clause.source.unsupported(
                node,
                f"the option {name} = {value} of from_json()",
                "leave it out; convert the texts of the fields with functions, as to_date()",
            )


#: The schema of a list of JSON values of any form.
_LIST_OF_JSON: Final = r"""(?i)\s*\[\s*"JSON"\s*\]\s*"""


def _is_json_schema(schema: exp.Expr) -> bool:
    """Return whether a schema is JSON: ``{"a": "INT"}`` of DuckDB."""
    return isinstance(schema, exp.Literal) and schema.this.lstrip().startswith(("{", "[", '"'))


def _parse_schema(text: str) -> pa.DataType:
    """Return the type of a schema: of Spark (``a INT``), or DuckDB's JSON (``{"a": "INT"}``)."""
    if text.lstrip().startswith(("{", "[", '"')):
        return _type_of_json_schema(json.loads(text))
    try:
        return field_of("value", text).type
    except SchemaError:
        return pa.struct(list(schema_of_ddl(text)))


def _type_of_json_schema(value: object) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(name, _type_of_json_schema(part)) for name, part in value.items()])
    if isinstance(value, list) and len(value) == 1:
        return pa.list_(_type_of_json_schema(value[0]))
    if isinstance(value, str):
        return field_of("value", value).type
    raise ValueError(f"{value!r} is not a type; write the name of a type, {{...}} or [...]")


# Expressions that contain the values of their parts: JSON in a part is JSON in the whole.
_CONTAINERS: Final = (
    *(exp.Array, exp.List, exp.Map, exp.Paren),
    *(exp.PropertyEQ, exp.Struct, exp.ToMap),
)
_JSON_FUNCTIONS: Final = frozenset(
    (
        *("array_to_json", "json_array", "json_arrayagg", "json_group_array", "json_group_object"),
        *("json_object", "json_objectagg", "json_quote", "row_to_json", "to_json"),
        *("json_agg", "json_build_array", "json_build_object", "json_object_agg", "jsonb_agg"),
        *("json_pretty", "json_strip_nulls", "jsonb_strip_nulls"),
        *("jsonb_build_array", "jsonb_build_object", "jsonb_object_agg"),
    )
)


def written_json_kind(source: SqlSource, node: exp.Expr) -> str | None:
    """Return the kind of JSON that an expression has by its syntax.

    A cast says what a value is, and so does a function of JSON.

    Returns:
        The kind as in `circuits.plan.json_values`: an empty text says that the value is no JSON.
        None if the syntax does not say it; then the columns that the expression reads decide.
    """
    node = node.unalias().unnest()
    if isinstance(node, exp.Cast):
        return json_kind_of_type(source, node.to)
    if isinstance(node, exp.Array) and node.expressions:
        kinds = [written_json_kind(source, part) for part in node.expressions]
        known = [kind for kind in kinds if kind is not None]
        return common_json_kind(known) or None if len(known) == len(kinds) else None
    if isinstance(node, exp.Anonymous) and node.name.casefold() in _JSON_FUNCTIONS:
        return "jsonb" if node.name.casefold().startswith("jsonb_") else "json"
    if isinstance(node, exp.ParseJSON) and node.args.get("is_literal"):
        return "json"
    return None


def json_kind(clause: Clause, node: exp.Expr, value: Expression) -> str:
    """Return the kind of JSON of a value, as in `circuits.plan.json_values`; empty if it has none.

    Args:
        clause: The clause of the value.
        node: The syntax tree of the value.
        value: The value that the clause has read.
    """
    kind = written_json_kind(clause.source, node)
    if kind is not None:
        return kind
    node = node.unnest()
    branches = _branches(node)
    if branches:
        return common_json_kind(
            json_kind(clause, branch, clause.read(branch)) for branch in branches
        )
    if isinstance(node, exp.Bracket) and is_list(clause.read(node.this).type):
        return json_kind(clause, node.this, clause.read(node.this))
    return clause.json_kind(value) or ("json" if isinstance(node, exp.JSONExtract) else "")


# Functions that return one of the values of their argument, or a list of them. In the table of
# names, LIST is a constructor; the aggregate is an `exp.ArrayAgg`.
_SELECTING_FUNCTIONS: Final = tuple(
    exp.FUNCTION_BY_NAME[name.upper()] for name in sorted(JSON_KEEPING_AGGREGATES - {"list"})
)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """Return the expressions of which one is the value of a node, without NULL.

    An aggregate or window function that returns one of its values has one: its argument.
    """
    if isinstance(node, exp.Window | exp.Filter | exp.IgnoreNulls):
        return _branches(node.this)
    if isinstance(node, _SELECTING_FUNCTIONS):
        argument = node.this
        while isinstance(argument, exp.Order | exp.IgnoreNulls | exp.RespectNulls):
            argument = argument.this
        return argument.expressions[:1] if isinstance(argument, exp.Distinct) else [argument]
    branches: list[exp.Expr | None] = []
    if isinstance(node, exp.Coalesce):
        branches = [node.this, *node.expressions]
    elif isinstance(node, exp.Case):
        branches = [*(part.args["true"] for part in node.args["ifs"]), node.args.get("default")]
    elif isinstance(node, exp.Greatest | exp.Least):
        branches = [node.this, *node.expressions]
    elif isinstance(node, exp.Nullif):
        branches = [node.this]
    elif isinstance(node, exp.If):
        branches = [node.args["true"], node.args.get("false")]
    return [branch for branch in branches if branch is not None and branch != exp.null()]


def json_text(clause: Clause, node: exp.Expr, value: Expression, function: str) -> Expression:
    """Return a value as JSON by a function such as to_json; JSON in it is not quoted.

    Args:
        clause: The clause of the value.
        node: The syntax tree, for errors.
        value: The value.
        function: The function for values that are not JSON.
    """
    if not _is_written_in_parts(value):
        has_json = clause.json_kind(value)
        return (
            _compact_json(clause, node, value) if has_json else clause.call(node, function, value)
        )
    is_struct = value.function == "make_struct"
    parts = value.arguments[1::2] if is_struct else value.arguments
    if not any(_contains_json(clause, part) for part in parts):
        return clause.call(node, function, value)
    null = string_literal("null")
    texts = [
        clause.call(node, "coalesce", json_text(clause, node, part, "to_json"), null)
        for part in parts
    ]
    if is_struct:
        names = [clause.call(node, "to_json", name) for name in value.arguments[::2]]
        colon = string_literal(":")
        texts = [
            clause.call(node, "concat", name, colon, text)
            for name, text in zip(names, texts, strict=True)
        ]
    return join_texts(clause, node, texts, *("{}" if is_struct else "[]"))


def _compact_json(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return JSON without blanks.

    Raises:
        UnsupportedSqlError: The value is a list of JSON, and no expression such as ``[j, k]``.
    """
    is_known = bool(clause.json_kind(value))  # else, only a cast says that it is JSON
    if _is_written_in_parts(value) and is_known:
        return json_text(clause, node, value, "to_json")
    if pa.types.is_struct(value.type) and is_known:
        parts = []
        for name in map(string_literal, (field.name for field in value.type)):
            parts += [name, clause.call(node, "struct_field", value, name)]
        text = json_text(clause, node, clause.call(node, "make_struct", *parts), "to_json")
        return clause.call(node, "case", clause.call(node, "is_null", value), NULL, text)
    if not is_text(value.type):
        if pa.types.is_struct(value.type):
            remedy = "convert its fields, or use json_object()"
            raise clause.source.unsupported(node, "JSON of a cast to a struct of JSON", remedy)
        raise clause.source.unsupported(node, "JSON of a list of JSON", "use json_agg()")
    if clause.json_kind(value) == "jsonb":
        return value  # its normal form has no blanks
    return call_json(clause, node, "json_value", value, string_literal("[]"))


def _is_written_in_parts(value: Expression) -> TypeGuard[Call]:
    return isinstance(value, Call) and value.function in ("make_struct", "make_list")


def _contains_json(clause: Clause, value: Expression) -> bool:
    if _is_written_in_parts(value):
        return any(_contains_json(clause, part) for part in value.arguments)
    return bool(clause.json_kind(value))


def join_texts(
    clause: Clause, node: exp.Expr, parts: list[Expression], start: str, end: str
) -> Expression:
    """Return JSON texts with commas in between."""
    separated = [piece for part in parts for piece in (string_literal(","), part)][1:]
    return clause.call(node, "concat", string_literal(start), *separated, string_literal(end))


def check_has_no_json(clause: Clause, node: exp.Expr, *, in_map: bool = False) -> None:
    """Refuse a part of a list, struct or map that is JSON, if to_json() would quote it."""
    if not isinstance(node, _CONTAINERS):
        return
    in_map = in_map or isinstance(node, exp.Map | exp.ToMap)
    parts = [node.expression] if isinstance(node, exp.PropertyEQ) else node.iter_expressions()
    for part in parts:
        if isinstance(part, _CONTAINERS):
            check_has_no_json(clause, part, in_map=in_map)
            continue
        value = clause.read(part)
        if json_kind(clause, part, value) and (in_map or not clause.json_kind(value)):
            raise clause.source.unsupported(
                part,
                "JSON within the argument of to_json()",
                "build one value, and convert it at once",
            )


def _check_hides_no_json(clause: Clause, node: exp.Expr, value: Expression) -> None:
    """Refuse a part of a list, struct or map, if a cast in it makes a text to JSON.

    Such a text is no JSON in the plan, so to_json() would quote it.
    """
    if not isinstance(value, Call) or not value.function.startswith(_PART_PREFIXES):
        return
    for cast in node.find_all(exp.Cast):
        if written_json_kind(clause.source, cast):
            raise clause.source.unsupported(
                cast,
                "a cast to JSON within the argument of to_json()",
                "leave it out there, and cast the part of the list or struct to JSON",
            )


#: How the names of the functions begin that return a part of a list, struct or map.
_PART_PREFIXES: Final = ("list_", "struct_", "map_")


def value_as_json(clause: Clause, node: exp.Expr, value: Expression, function: str) -> Expression:
    """Return the value of an expression as JSON by a function such as to_json."""
    inner = node.unnest()
    if not (clause.source.is_spark or is_text(value.type)):
        check_has_no_json(clause, inner)
    if json_kind(clause, node, value):
        is_compact = isinstance(inner, exp.JSONExtract) or (
            isinstance(inner, exp.Anonymous) and inner.name.casefold() in _JSON_FUNCTIONS
        )
        return value if is_compact else _compact_json(clause, node, value)
    if not clause.source.is_spark:
        _check_hides_no_json(clause, inner, value)
    return json_text(clause, node, value, function)


def row_as_json(clause: Clause, node: exp.Expr, row: exp.Expr, function: str) -> Expression:
    """Return a value as JSON by a function.

    In the dialects of PostgreSQL, the row of a table that an outer join has not matched is NULL:
    all its columns are NULL, by which it is recognised.
    """
    value = clause.read(row)
    text = value_as_json(clause, row, value, function)
    if not (clause.source.is_postgres and isinstance(row, exp.Column) and _may_be_unmatched(row)):
        return text
    if not isinstance(value, Call) or value.function != "make_struct":
        return text
    are_null = [clause.call(node, "is_null", part) for part in value.arguments[1::2]]
    is_unmatched = are_null[0] if len(are_null) == 1 else clause.call(node, "and", *are_null)
    return clause.call(node, "case", is_unmatched, NULL, text)


def _may_be_unmatched(row: exp.Column) -> bool:
    """Return whether an outer join of the query may add rows without a row of a table."""
    select = row.find_ancestor(exp.Select)
    source = select.args.get("from_") if select is not None else None
    if select is None or source is None:
        return False
    name = row.name.casefold()
    is_joined = source.this.alias_or_name.casefold() == name
    may_be_unmatched = False
    for join in select.args.get("joins") or []:
        is_this = join.this.alias_or_name.casefold() == name
        if is_this:
            is_joined, may_be_unmatched = True, join.side in ("LEFT", "FULL")
        elif is_joined:
            may_be_unmatched = may_be_unmatched or join.side in ("RIGHT", "FULL")
    return may_be_unmatched or not is_joined


def _to_json_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expressions")
        arguments = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        if len(arguments) != 1:
            raise clause.source.unsupported(node, "options of to_json()", "give one value")
        value = clause.read(arguments[0])
        if value.type == VARIANT:
            return clause.call(node, "variant_json", value)
        return row_as_json(clause, node, arguments[0], function)

    return read


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.FromJson: _read_from_json,
    exp.JSONExtract: _json_reader("json_value", "json_matches"),
    exp.JSONExtractScalar: _json_reader("json_text", "json_match_texts"),
    exp.JSONFormat: _to_json_reader("to_json_without_null"),
    exp.JSONKeys: _read_json_keys,
    exp.JSONType: _json_reader("json_type"),
}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    "json_array_length": _json_reader_of_name("json_array_length_or_zero", "json_array_length"),
    "json_elements": _json_reader_of_name("json_elements"),
    "json_entries": _json_reader_of_name("json_entries"),
    "json_members": _json_reader_of_name("json_members"),
    "json_valid": _json_reader_of_name("json_valid"),
    "to_json": _to_json_reader("to_json"),
}
