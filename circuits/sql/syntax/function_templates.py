"""Functions that are defined by an expression of other functions, which replaces each call.

::

    array_pop_back(a)              list_slice(a, 1, len(a) - 1)
    jsonb_array_elements(j)        unnest(json_elements(j))
    to_char(ts, 'YYYY-MM')         strftime(ts, '%Y-%m')
    timestampdiff(DAY, a, b)       date_sub('day', a, b)
    j #>> '{a,b}'                  json_extract_string(j, '$.a.b')
    x = SOME (a)                   x = ANY (a)
    EXISTS (SELECT FROM t)         EXISTS (SELECT 1 FROM t)

They are functions of DuckDB, and those of PostgreSQL, Materialize, RisingWave and Feldera that
DuckDB does not have. They are for all dialects except spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from sqlglot import exp

from circuits.types.functions.numbers.postgres_patterns import is_number_pattern

__all__ = [
    "HAS_LIST_PER_ROW",
    "TEMPLATES",
    "ParseExpression",
    "fill_template",
    "replace_templates",
]

# By name: the parameters, and the expression in DuckDB's dialect. A call with another number of
# arguments remains.
TEMPLATES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    # Lists
    "array_pop_back": (("a",), "list_slice(a, 1, len(a) - 1)"),
    "array_pop_front": (("a",), "list_slice(a, 2, len(a))"),
    "array_push_back": (("a", "x"), "array_append(a, x)"),
    "array_push_front": (("a", "x"), "array_prepend(x, a)"),
    "array_remove": (("a", "x"), "list_filter(a, lambda v: v IS DISTINCT FROM x)"),
    "array_replace": (
        ("a", "x", "y"),
        "list_transform(a, lambda v: CASE WHEN v IS NOT DISTINCT FROM x THEN y ELSE v END)",
    ),
    "array_exists": (("a", "f"), "list_exists(a, f)"),
    "array_positions": (
        ("a", "x"),
        "list_filter(generate_series(1, len(a)), lambda i: a[i] IS NOT DISTINCT FROM x)",
    ),
    "array_reverse": (("a",), "list_reverse(a)"),
    "array_sum": (("a",), "list_sum(a)"),
    "list_append": (("a", "x"), "array_append(a, x)"),
    "list_prepend": (("x", "a"), "array_prepend(x, a)"),
    "generate_subscripts": (("a", "d"), "unnest(generate_series(1, len(a)))"),
    "array_fill": (
        ("x", "d"),
        "list_transform(generate_series(1, CASE WHEN len(d) = 1 THEN d[1] ELSE CAST(error("
        "'array_fill: arrays have one dimension') AS BIGINT) END), lambda i: x)",
    ),
    "trim_array": (
        ("a", "n"),
        "list_slice(a, 1, len(a) - CASE WHEN n < 0 OR n > len(a) THEN CAST(error('trim_array: the "
        "number of elements to trim must be from 0 to the length of the array') AS BIGINT) "
        "ELSE n END)",
    ),
    "array_all_match": (("a", "f"), "forall(a, f)"),
    "array_any_match": (("a", "f"), "list_exists(a, f)"),
    "array_transform": (("a", "f"), "list_transform(a, f)"),
    # Aggregates
    "entropy": (
        ("x",),
        "coalesce(list_sum(list_transform(map_values(histogram(x)), "
        "lambda n: -(n / count(x)) * log2(n / count(x)))), 0.0)",
    ),
    "mad": (("x",), "list_median(list_transform(list(x), lambda v: abs(v - median(x))))"),
    # Numbers
    "bround": (("x", "n"), "round_even(x, n)"),
    "coth": (("x",), "1 / tanh(x)"),
    "csc": (("x",), "1 / sin(x)"),
    "csch": (("x",), "1 / sinh(x)"),
    "finite_or_null": (("x",), "CASE WHEN isfinite(x) THEN x END"),
    "sec": (("x",), "1 / cos(x)"),
    "sech": (("x",), "1 / cosh(x)"),
    "is_inf": (("x",), "isinf(x)"),
    "is_nan": (("x",), "isnan(x)"),
    "sequence": (("a", "b"), "generate_series(a, b)"),
    # Strings
    "initcap": (
        ("s",),
        # Words end at ASCII characters other than letters and digits.
        r"array_to_string(list_transform(regexp_extract_all(s, '[^\x00-\x2F\x3A-\x40\x5B-\x60\x7B-"
        r"\x7F]+|[\x00-\x2F\x3A-\x40\x5B-\x60\x7B-\x7F]+'), "
        "lambda w: upper(w[1:1]) || lower(w[2:])), '')",
    ),
    "initcap_spaces": (
        ("s",),
        "array_to_string(list_transform(string_split(s, ' '), "
        "lambda w: upper(w[1:1]) || lower(w[2:])), ' ')",
    ),
    "convert_from": (("b", "e"), "decode(b)"),
    "convert_to": (("s", "e"), "encode(s)"),
    "is_json": (("s",), "json_valid(s)"),
    "constant_time_eq": (("a", "b"), "a = b"),
    "normalize": (("s",), "nfc_normalize(s)"),
    # Those of a constant format are in `_FORMATS`.
    "decode": (("s", "f"), ""),
    "encode": (("b", "f"), ""),
    "regexp_count": (("s", "p"), "len(regexp_extract_all(s, p))"),
    "regexp_match": (("s", "p"), ""),
    "regexp_substr": (
        ("s", "p"),
        "CASE WHEN regexp_like(s, p) THEN regexp_extract(s, p) END",
    ),
    # Dates
    "date_sub": (("d", "i"), "d - i"),
    "doy": (("d",), "dayofyear(d)"),
    "format_date": (("f", "d"), "strftime(d, f)"),
    "format_time": (("f", "t"), "strftime(DATE '1970-01-01' + t, f)"),
    "format_timestamp": (("f", "ts"), "strftime(ts, f)"),
    # ``(x - y) DAY`` and ``(x - y) MONTH`` (`circuits.sql.syntax.statement_words`)
    "interval_of_days": (("x", "y"), "CAST(x AS TIMESTAMP) - CAST(y AS TIMESTAMP)"),
    "interval_of_months": (
        ("x", "y"),
        "to_months(CAST(date_sub('month', y, x) AS INTEGER))",
    ),
    "parse_date": (("f", "s"), "CAST(strptime(s, f) AS DATE)"),
    "parse_time": (("f", "s"), "CAST(strptime(s, f) AS TIME)"),
    "parse_timestamp": (("f", "s"), "strptime(s, f)"),
    "timestampdiff": (("u", "a", "b"), "date_sub(u, a, b)"),
    "timezone": (("z", "ts"), "ts AT TIME ZONE z"),
    # That of a constant format is written by `_to_char`.
    "to_char": (("ts", "f"), ""),
    "to_date": (("s", "f"), "CAST(strptime(s, f) AS DATE)"),
    "to_timestamp": (("s", "f"), "strptime(s, f) AT TIME ZONE 'UTC'"),
    # JSON
    **{
        f"{prefix}_{name}": (("j",), text)
        for prefix in ("json", "jsonb")
        for name, text in {
            "array_elements": "unnest(json_elements(j))",
            "array_elements_text": """unnest(from_json(j, '["VARCHAR"]'))""",
            "object_keys": "unnest(json_keys(j))",
            "typeof": "CASE json_type(j) WHEN 'VARCHAR' THEN 'string' WHEN 'UBIGINT' THEN 'number' "
            "WHEN 'BIGINT' THEN 'number' WHEN 'DOUBLE' THEN 'number' "
            "ELSE lower(json_type(j)) END",
        }.items()
    },
    "jsonb_array_length": (("j",), "json_array_length(j)"),
    "to_jsonb": (("x",), "to_json(x)"),
    **dict.fromkeys(
        ("json_each", "jsonb_each"), (("j",), "unnest(json_members(j), max_depth := 2)")
    ),
    **dict.fromkeys(
        ("json_each_text", "jsonb_each_text"),
        (
            ("j",),
            "unnest(list_transform(json_members(j), lambda m: "
            "{'key': m.key, 'value': json_extract_string(m.value, '$')}), max_depth := 2)",
        ),
    ),
}
_WEIGHTED_AVERAGE: Final = "sum(x * w) / sum(CASE WHEN x IS NOT NULL THEN w END)"
# The same for dialect duckdb only, where they replace those of `TEMPLATES`; by the number of
# arguments.
_DUCKDB_TEMPLATES: Final = {
    ("add", 2): (("x", "y"), "(x) + (y)"),
    ("subtract", 2): (("x", "y"), "(x) - (y)"),
    ("multiply", 2): (("x", "y"), "(x) * (y)"),
    ("divide", 2): (("x", "y"), "(x) // (y)"),
    ("rlike", 2): (("s", "p"), "regexp_like(s, p)"),  # an operator in other dialects
    ("epoch_ns", 1): (("ts",), "epoch_us(ts) * 1000"),
    ("nanosecond", 1): (("ts",), "microsecond(ts) * 1000"),
    ("array_cross_product", 2): (
        ("a", "b"),
        "[a[2] * b[3] - a[3] * b[2], a[3] * b[1] - a[1] * b[3], a[1] * b[2] - a[2] * b[1]]",
    ),
    ("wavg", 2): (("x", "w"), _WEIGHTED_AVERAGE),
    ("weighted_avg", 2): (("x", "w"), _WEIGHTED_AVERAGE),
    ("arg_max_null", 2): (("x", "y"), "struct_extract(arg_max({'v': x}, y), 'v')"),
    ("arg_min_null", 2): (("x", "y"), "struct_extract(arg_min({'v': x}, y), 'v')"),
    ("json_each", 1): (("j",), "unnest(json_entries(j), max_depth := 2)"),
    ("json_each", 2): (("j", "p"), "unnest(json_entries(j, p), max_depth := 2)"),
}
# The expressions of encode() and decode() by their format; base64 has lines of 76 characters.
_FORMATS: Final = {
    ("encode", "hex"): "lower(hex(b))",
    (
        "encode",
        "base64",
    ): "rtrim(regexp_replace(to_base64(b), '(.{76})', '\\1' || chr(10), 'g'), chr(10))",
    ("decode", "hex"): "unhex(s)",
    ("decode", "base64"): "from_base64(replace(s, chr(10), ''))",
}
# A group of a pattern that may have no match: PostgreSQL returns NULL for it, others a text.
_OPTIONAL_GROUP: Final = re.compile(r"\)[?*{]|\|")
# The operator ``?`` of JSON: whether an object has a key, an array an element, or a text is equal.
_KEY_TEST: Final = (
    "list_contains(json_keys(j), k) OR coalesce(list_contains(json_elements(j), to_json(k)), false)"
    " OR coalesce(json_type(j) = 'VARCHAR' AND json_extract_string(j, '$') = k, false)"
)
_PLAIN_PATH: Final = re.compile(r"\{([A-Za-z_]\w*(?:,[A-Za-z_]\w*)*)\}")
# By the name without json_ or jsonb_: the columns of a function in FROM, if they do not have the
# name of the function.
_COLUMNS: Final = {
    "array_elements": ("value",),
    "array_elements_text": ("value",),
    "each": ("key", "value"),
    "each_text": ("key", "value"),
}
_PATH_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.JSONBExtract: "json_extract",
    exp.JSONBExtractScalar: "json_extract_string",
}
_OF_DIMENSION: Final = ("generate_subscripts",)
_PATTERN_FUNCTIONS: Final = ("to_date", "to_timestamp")
_UNITS: Final = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second"),
    *("millisecond", "microsecond"),
)
# PostgreSQL's patterns of dates, the longer ones before their prefixes.
_DATE_PATTERNS = {
    **{"YYYY": "%Y", "YY": "%y", "IYYY": "%G", "IW": "%V", "MM": "%m", "DDD": "%j", "DD": "%d"},
    **{"HH24": "%H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "MS": "%g", "US": "%f"},
    **{"AM": "%p", "PM": "%p", "FMMonth": "%B", "Mon": "%b", "FMDay": "%A", "Dy": "%a"},
}
_NUMBER_PATTERNS: Final = ("YYYY", "YY", "IYYY", "IW", "MM", "DDD", "DD", "HH24", "HH12", "HH")
_DATE_PATTERNS |= {
    name.lower(): _DATE_PATTERNS[name] for name in (*_NUMBER_PATTERNS, "MI", "SS", "MS", "US")
}
# The patterns of to_char() for which strftime has none. FM removes the padding to 9 characters.
_DATE_EXPRESSIONS: Final = {
    **{
        name: f"rpad({function}, 9)"
        for name, function in {
            **{"Day": "dayname(ts)", "Month": "monthname(ts)"},
            **{"DAY": "upper(dayname(ts))", "MONTH": "upper(monthname(ts))"},
            **{"day": "lower(dayname(ts))", "month": "lower(monthname(ts))"},
        }.items()
    },
    **{"FMDAY": "upper(dayname(ts))", "FMMONTH": "upper(monthname(ts))"},
    **{"FMday": "lower(dayname(ts))", "FMmonth": "lower(monthname(ts))"},
    **{"DY": "upper(strftime(ts, '%a'))", "MON": "upper(strftime(ts, '%b'))"},
    **{"dy": "lower(strftime(ts, '%a'))", "mon": "lower(strftime(ts, '%b'))"},
    **{"am": "lower(strftime(ts, '%p'))", "pm": "lower(strftime(ts, '%p'))"},
    **{
        name: f"CAST({function} AS VARCHAR)"
        for name, function in {
            **{"Q": "quarter(ts)", "D": "dayofweek(ts) + 1", "ID": "isodow(ts)"},
            **{"FMMM": "month(ts)", "FMDD": "day(ts)", "FMHH24": "hour(ts)"},
            **{"FMDDD": "dayofyear(ts)", "FMMI": "minute(ts)", "FMSS": "second(ts)"},
        }.items()
    },
    "IDDD": "lpad(CAST((weekofyear(ts) - 1) * 7 + isodow(ts) AS VARCHAR), 3, '0')",
    "WW": "lpad(CAST(CAST((dayofyear(ts) + 6 - (dayofyear(ts) + 6) % 7) / 7 AS INT) AS VARCHAR), "
    "2, '0')",
}


def _token_of(names: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of one part of a format of dates, which has some names."""
    longest_first = "|".join(sorted(names, key=len, reverse=True))
    # SSSS is the number of seconds since midnight. TH after a number is its ordinal.
    parts = rf"(?!SSSS)(?:{longest_first})(?![Tt][Hh])"
    return re.compile(rf'{parts}|"(?P<text>[^"]*)"|(?P<mark>[^A-Za-z])')


_PARSED_TOKEN: Final = _token_of(_DATE_PATTERNS)
_WRITTEN_TOKEN: Final = _token_of((*_DATE_PATTERNS, *_DATE_EXPRESSIONS))
# The key of ``meta`` for a list of lists to unnest that is no array of two dimensions.
HAS_LIST_PER_ROW: Final = "has_list_per_row"

# The keys of ``meta`` with the place of a node in the text.
_POSITION: Final[tuple[str, ...]] = ("line", "col", "start", "end")

ParseExpression = Callable[[str], exp.Expr]


def fill_template(
    parse: ParseExpression, text: str, arguments: dict[str, exp.Expr], place: exp.Expr
) -> exp.Expr:
    """Return the syntax tree of a text, with arguments in place of columns of their names.

    Args:
        parse: Returns the syntax tree of an expression.
        text: The expression.
        arguments: The arguments by the names of the columns that they replace.
        place: The node whose place in the text is that of the new nodes.
    """
    tree = exp.Paren(this=parse(text))
    position = {key: place.meta[key] for key in _POSITION if key in place.meta}
    for part in tree.walk():
        part.meta.update(position)
    _rename_parameters(tree, arguments.values())
    names = [*tree.find_all(exp.Column), *tree.find_all(exp.Identifier)]
    for node in names:  # a lambda has identifiers where other expressions have columns
        is_argument = isinstance(node, exp.Column) or not isinstance(
            node.parent, exp.Column | exp.Lambda
        )
        if is_argument and node.name in arguments and node.parent is not None:
            node.replace(arguments[node.name].copy())
    result: exp.Expr = tree.this
    return result


def _rename_parameters(tree: exp.Expr, arguments: Iterable[exp.Expr]) -> None:
    """Give the parameters of lambdas names that no argument has, as ``v_`` for ``v``.

    A column ``v`` in an argument would otherwise be read as the parameter ``v`` of a template.
    """
    used = {name.name.casefold() for part in arguments for name in part.find_all(exp.Identifier)}
    parameters = {name.name for part in tree.find_all(exp.Lambda) for name in part.expressions}
    new_names = {}
    for parameter in parameters:
        new_name = parameter
        while new_name.casefold() in used:
            new_name += "_"
        new_names[parameter] = new_name
    for name in tree.find_all(exp.Identifier):
        name.set("this", new_names.get(name.name, name.name))


def replace_templates(
    tree: exp.Expr, parse: ParseExpression, *, is_duckdb: bool, is_postgres: bool = False
) -> exp.Expr:
    """Return a tree with the expressions of templates in place of their calls; it is changed.

    Args:
        tree: A statement.
        parse: Returns the syntax tree of an expression in DuckDB's dialect.
        is_duckdb: Whether the dialect of the statement is DuckDB's.
        is_postgres: Whether it is PostgreSQL's, or follows it.
    """
    for comparison in list(tree.find_all(exp.Binary)):
        _read_some_as_any(comparison)
    for exists in tree.find_all(exp.Exists):
        query = exists.this
        if isinstance(query, exp.Select) and not query.expressions:  # EXISTS (SELECT FROM t)
            query.set("expressions", [exp.Literal.number(1)])
    for test in list(tree.find_all(exp.JSONBContainsAnyTopKeys, exp.JSONBContainsAllTopKeys)):
        _read_key_tests(test)
    for node in reversed(list(tree.find_all(exp.JSONBContainsTopKey, *_PATH_FUNCTIONS))):
        arguments = {"j": node.this, "k": node.expression}
        path = _PLAIN_PATH.fullmatch(node.expression.name)
        if isinstance(node, exp.JSONBContainsTopKey):
            node.replace(exp.Paren(this=fill_template(parse, _KEY_TEST, arguments, node)))
        elif path is not None and node.expression.is_string:
            text = f"{_PATH_FUNCTIONS[type(node)]}(j, '$.{path[1].replace(',', '.')}')"
            node.replace(fill_template(parse, text, arguments, node))
    for ranking in list(tree.find_all(exp.WithinGroup)):
        _read_hypothetical_rank(ranking, parse)
    for interval in reversed(list(tree.find_all(exp.MakeInterval))):
        if not is_duckdb:
            _build_interval(interval, parse)
    parameters: tuple[str, ...]
    for call in reversed(list(tree.find_all(exp.Anonymous))):  # the innermost first
        name = call.name.casefold()
        if name == "timestampadd" and len(call.expressions) == 3 and _unit_of(call.expressions[0]):
            unit = _unit_of(call.expressions[0])
            parameters, text = ("u", "n", "ts"), f"ts + n * INTERVAL 1 {unit}"
        elif is_postgres and name == "regexp_matches":
            parameters, text = ("s", "p"), _rows_of_matches(call)
            if not text:  # its reader refuses it
                continue
        elif is_duckdb and (name, len(call.expressions)) in _DUCKDB_TEMPLATES:
            parameters, text = _DUCKDB_TEMPLATES[name, len(call.expressions)]
        elif name in TEMPLATES and len(TEMPLATES[name][0]) == len(call.expressions):
            parameters, text = TEMPLATES[name]
        else:
            continue
        if text.endswith(", max_depth := 2)") and not is_duckdb:
            place = call.find_ancestor(exp.Select, exp.Table, exp.Lateral)
            if isinstance(place, exp.Select):  # in its list, PostgreSQL makes one column of rows
                text = text.replace(", max_depth := 2", "")
        if is_postgres and name == "to_jsonb":
            text = "CAST(to_json(x) AS JSONB)"
        if is_duckdb and name in ("decode", "encode", "convert_from"):
            continue  # DuckDB has functions of these names with other arguments
        if name == "to_char":
            text = _to_char(call.expressions[1])
            if not text:  # a pattern of numbers, or one that its reader refuses
                continue
        if not text:
            text = _text_for_constant(name, call.expressions[1])
        if not text:
            call.set("this", f"{name} with these arguments")  # a name that no function has
            continue
        arguments = dict(zip(parameters, call.expressions, strict=False))
        if is_postgres and name in ("convert_from", "encode") and arguments["b"].is_string:
            arguments["b"] = exp.cast(arguments["b"], exp.DType.VARBINARY)
            arguments["b"].meta.update(call.meta)
        if name in _OF_DIMENSION and arguments["d"] != exp.Literal.number(1):
            continue  # lists have one dimension
        if name == "timestampdiff" and (unit := _unit_of(arguments["u"])):
            arguments["u"] = exp.Literal.string(unit)
        if name in _PATTERN_FUNCTIONS:
            format_ = _strftime_format(arguments["f"])
            if format_ is None:
                continue
            arguments["f"] = exp.Literal.string(format_)
        value = fill_template(parse, text, arguments, call)
        value.meta.update(call.meta)
        if is_postgres and name == "regexp_matches":
            rows = value.expressions[0] if isinstance(value, exp.Unnest) else value.this
            rows.meta[HAS_LIST_PER_ROW] = True
        if not (is_duckdb and name == "json_each"):  # it has the columns of its structs
            _name_columns(call, name)
        call.replace(value)
    return tree


def _read_key_tests(node: exp.Binary) -> None:
    """Replace ``j ?| ARRAY['a', 'b']`` by ``j ? 'a' OR j ? 'b'``, and ``?&`` by AND."""
    keys = node.expression
    if not isinstance(keys, exp.Array) or not keys.expressions:
        return
    tests = [
        exp.JSONBContainsTopKey(this=node.this.copy(), expression=key) for key in keys.expressions
    ]
    for test in tests:
        test.meta.update(node.meta)
    connect = exp.or_ if isinstance(node, exp.JSONBContainsAnyTopKeys) else exp.and_
    node.replace(exp.Paren(this=connect(*tests)))


# By the function: its rank of a value v that would be added to values k, in terms of the conditions
# BEFORE (k is before v) and PEER (k is equal to v).
_HYPOTHETICAL_RANKS: Final[dict[type[exp.Expr], str]] = {
    exp.Rank: "count(*) FILTER (WHERE BEFORE) + 1",
    exp.DenseRank: "count(DISTINCT k) FILTER (WHERE BEFORE)"
    " + least(count(*) FILTER (WHERE k IS NULL AND (BEFORE)), 1) + 1",
    exp.PercentRank: "CASE WHEN count(*) = 0 THEN 0.0::DOUBLE"
    " ELSE count(*) FILTER (WHERE BEFORE) / count(*) END",
    exp.CumeDist: "(count(*) FILTER (WHERE (BEFORE) OR PEER) + 1) / (count(*) + 1)",
}


def _read_hypothetical_rank(node: exp.WithinGroup, parse: ParseExpression) -> None:
    """Replace ``rank(3) WITHIN GROUP (ORDER BY k)``: the rank of 3 if it were among the values."""
    function, order = node.this, node.expression
    if type(function) not in _HYPOTHETICAL_RANKS or not isinstance(order, exp.Order):
        return
    if len(function.expressions) != 1 or len(order.expressions) != 1:
        return
    (key,), (value,) = order.expressions, function.expressions
    comparison = "k > v" if key.args.get("desc") else "k < v"
    nulls = "k IS NULL AND v IS NOT NULL"
    if not key.args.get("nulls_first"):
        nulls = "v IS NULL AND k IS NOT NULL"
    text = _HYPOTHETICAL_RANKS[type(function)]
    text = text.replace("BEFORE", f"{comparison} OR ({nulls})")
    text = text.replace("PEER", "k IS NOT DISTINCT FROM v")
    node.replace(exp.Paren(this=fill_template(parse, text, {"k": key.this, "v": value}, node)))


# The parts of make_interval(), in the order of its parameters.
_INTERVAL_PARTS: Final = {
    **{"years": "to_years(n)", "months": "to_months(n)", "weeks": "to_weeks(n)"},
    **{"days": "to_days(n)", "hours": "to_hours(n)", "mins": "to_minutes(n)"},
    "secs": "to_seconds(n)",
}


def _build_interval(call: exp.MakeInterval, parse: ParseExpression) -> None:
    """Replace ``make_interval(days => 10)`` of PostgreSQL by the sum of its parts."""
    names = ("year", "month", "week", "day", "hour", "minute", "second")
    result: exp.Expr | None = None
    for name, part in zip(names, _INTERVAL_PARTS, strict=True):
        value = call.args.get(name)
        if isinstance(value, exp.Kwarg):
            part, value = value.this.name.casefold(), value.expression
        if value is None:
            continue
        if part not in _INTERVAL_PARTS:
            return
        term = fill_template(parse, _INTERVAL_PARTS[part], {"n": value}, call)
        result = term if result is None else exp.Add(this=result, expression=term)
    if result is not None:
        value = exp.Paren(this=result)
        for node in (value, *value.find_all(exp.Add)):
            node.meta.update(call.meta)
        call.replace(value)


def _text_for_constant(name: str, constant: exp.Expr) -> str:
    """Return the expression of a function that depends on a constant; empty if there is none."""
    if not constant.is_string:
        return ""
    if name != "regexp_match":
        return _FORMATS.get((name, constant.name.casefold()), "")
    try:
        count = re.compile(constant.name).groups
    except re.error:
        return ""
    if count and _OPTIONAL_GROUP.search(constant.name):
        return ""
    groups = ", ".join(f"regexp_extract(s, p, {n})" for n in range(1, count + 1))
    return f"CASE WHEN regexp_like(s, p) THEN [{groups or 'regexp_extract(s, p)'}] END"


def _rows_of_matches(call: exp.Anonymous) -> str:
    """Return the expression of ``regexp_matches(s, p)`` of PostgreSQL, a row for each match.

    Without the flag ``g`` it is the first match. Empty for arguments that have no expression.
    """
    if len(call.expressions) not in (2, 3) or not all(
        part.is_string for part in call.expressions[1:]
    ):
        return ""
    flags = {*(call.expressions[2].name if len(call.expressions) == 3 else "")}
    try:
        count = re.compile(call.expressions[1].name).groups
    except re.error:
        return ""
    if (count and _OPTIONAL_GROUP.search(call.expressions[1].name)) or flags - {"g"}:
        return ""
    matches = "list_transform(regexp_extract_all(s, p), lambda m: [m])"
    if count:
        groups = ", ".join(f"regexp_extract_all(s, p, {n})[i]" for n in range(1, count + 1))
        numbers = "generate_series(1, len(regexp_extract_all(s, p)))"
        matches = f"list_transform({numbers}, lambda i: [{groups}])"
    return f"unnest({matches})" if flags else f"unnest(list_slice({matches}, 1, 1))"


def _unit_of(node: exp.Expr) -> str:
    """Return the unit of time that a word names; empty for any other expression."""
    is_word = isinstance(node, exp.Column | exp.Var) and not node.args.get("table")
    return node.name.casefold() if is_word and node.name.casefold() in _UNITS else ""


def _read_some_as_any(comparison: exp.Binary) -> None:
    """Replace ``x = SOME (a)`` of a list, which sqlglot reads as a call, by ``x = ANY (a)``."""
    call = comparison.args.get("expression")
    if not isinstance(call, exp.Anonymous) or call.name.casefold() != "some":
        return
    if len(call.expressions) == 1:
        (value,) = call.expressions
        comparison.set("expression", exp.Any(this=exp.Paren(this=value)))


def _to_char(pattern: exp.Expr) -> str:
    """Return the expression of ``to_char(ts, pattern)``; empty if it is no format of dates."""
    if not pattern.is_string or is_number_pattern(pattern.name):
        return ""
    parts: list[str] = []
    written = ""  # the format of strftime before the next expression
    for part in (*_split_format(pattern.name, _WRITTEN_TOKEN), None):
        if part is not None and part not in _DATE_EXPRESSIONS:
            written += part
            continue
        if written:
            quoted = written.replace("'", "''")
            parts.append(f"strftime(ts, '{quoted}')")
            written = ""
        if part is not None:
            parts.append(_DATE_EXPRESSIONS[part])
    return " || ".join(parts)


def _strftime_format(pattern: exp.Expr) -> str | None:
    """Return a constant pattern of PostgreSQL as one of strftime; None if it has other parts."""
    parts = _split_format(pattern.name, _PARSED_TOKEN) if pattern.is_string else []
    return "".join(parts) or None


def _split_format(text: str, token: re.Pattern[str]) -> list[str]:
    """Return the parts of a format of dates as formats of strftime, or names of expressions.

    The list is empty if the format has other parts.
    """
    parts, offset = [], 0
    while offset < len(text):
        match = token.match(text, offset)
        if match is None:
            return []
        literal = match["text"] if match["text"] is not None else match["mark"]
        if literal is not None:
            parts.append(literal.replace("%", "%%"))
        else:
            parts.append(_DATE_PATTERNS.get(match[0], match[0]))
        offset = match.end()
    return parts


def _name_columns(call: exp.Expr, name: str) -> None:
    """Give an item of FROM the names that its columns have in PostgreSQL."""
    table = call.parent
    columns = _COLUMNS.get(name.partition("_")[2])
    if not isinstance(table, exp.Table) or columns is None:
        return
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
    if not alias.args.get("columns"):
        alias.set("columns", [exp.to_identifier(column) for column in columns])
    table.set("alias", alias)
