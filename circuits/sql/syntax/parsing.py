"""sqlglot's parser, extended to keep words of the text that its syntax trees lose.

The words are needed for error messages, and the comma for its precedence.

======================== =================================================================
the name of a function   ``meta[NAME_IN_TEXT]``: ``string_agg``; the tree has a GroupConcat
the name of a type       ``meta[NAME_IN_TEXT]``: ``HUGEINT``; the tree has an INT128
exists(a, x -> ...)      a function by name; sqlglot parses it as EXISTS
surplus arguments        an error; sqlglot drops the fourth one of ``range(1, 2, 3, 4)``
a subscript ``a[1]``     as written; sqlglot counts from 0
a comma in FROM          ``meta[IS_COMMA]`` of a join; the tree has the same node for a bare JOIN
``DATE 'x'::VARCHAR``    parsed as the cast of a date; sqlglot parses it as a date of a cast
WATERMARK FOR, LATENESS  parts of CREATE TABLE; most dialects of sqlglot do not know them
INTERVAL '1 day 02:03'   an interval of the whole text; sqlglot drops a part of it
EMIT ON WINDOW CLOSE     ``meta[EMIT_ON_CLOSE]`` of a query: the offset of EMIT
JSON_VALUE(...)          the clauses of the SQL standard (`circuits.sql.syntax.json_syntax`)
METADATA                 a part of a column in Flink; ``meta[UNCHECKED_COLUMN_PART]``
GENERATED ALWAYS AS (a)  a computed column; sqlglot parses it as an identity in most dialects
a | b & c                ``a | (b & c)`` in Spark; sqlglot reads ``(a | b) & c``
~a + b                   ``~(a + b)`` in DuckDB and PostgreSQL; sqlglot reads ``(~a) + b``; also @
FLOOR(ts TO HOUR)        a time rounded down; CEIL rounds it up
BYTES                    a type of Flink; sqlglot parses it in few dialects only
USING KEY (a, min(b))    columns and calls; sqlglot parses names only
``MACRO f(x, y := 5)``   the default of a parameter
======================== =================================================================

The subclass overrides methods that all parsers of sqlglot 30 have.
`tests/circuits/sql/test_sql_errors.py` fails if sqlglot no longer calls one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import pairwise
from typing import Any, Final

from sqlglot import Dialect, exp
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from circuits.sql.syntax.array_subqueries import replace_array_subqueries
from circuits.sql.syntax.collations import replace_collations
from circuits.sql.syntax.function_templates import TEMPLATES, replace_templates
from circuits.sql.syntax.interval_syntax import interval_of_text, replace_intervals
from circuits.sql.syntax.json_arrows import replace_json_arrows
from circuits.sql.syntax.json_syntax import FUNCTION_PARSERS as JSON_PARSERS
from circuits.sql.syntax.method_calls import replace_method_calls
from circuits.sql.syntax.pipe_syntax import is_operator_end, parse_pipe_operators
from circuits.sql.syntax.spark_syntax import (
    OPERATORS,
    is_map_constructor,
    join_spark_tokens,
    rewrite_spark_tree,
)
from circuits.sql.syntax.values_queries import replace_values_queries
from circuits.sql.syntax.window_parsing import parse_window_table, with_window_names

__all__ = [
    "CALL_SUFFIXES",
    "EMIT_ON_CLOSE",
    "IS_COMMA",
    "NAME_IN_TEXT",
    "UNCHECKED_COLUMN_PART",
    "is_postgres",
    "is_spark",
    "parse_by_name",
    "parse_statements",
]

#: Keys of ``meta`` in syntax trees.
EMIT_ON_CLOSE: Final = "emit_on_close"
IS_COMMA: Final = "is_comma"
NAME_IN_TEXT: Final = "name_in_text"
UNCHECKED_COLUMN_PART: Final = "unchecked_column_part"
_SURPLUS: Final = "surplus"  # a key of ``meta`` of a call: the count of arguments that it takes
# The lower-case names that `parse_by_name` has added.
_NAMES_IN_SPARK: Final[set[str]] = set()
_NAMES_IN_OTHER_DIALECTS: Final[set[str]] = {
    *TEMPLATES,
    *("json_agg", "json_object_agg", "jsonb_agg", "jsonb_object_agg", "timestampadd"),
}
# Values to put in place of an argument. A tree that is the same with all of them ignores it.
_OTHER_COLUMN: Final = exp.column("other_argument")
_OTHER_VALUES: Final = (_OTHER_COLUMN, exp.true(), exp.false(), exp.Literal.string("day"))
_EMIT: Final = ["EMIT", "ON", "WINDOW", "CLOSE"]
_PIVOTS: Final = (TokenType.PIVOT, TokenType.UNPIVOT)
_ORDERS: Final = (TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET)
_DEPTHS: Final = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}
# The type of the token EMIT: that of a keyword, which ends the clause before it. No other statement
# has THEN at this place.
_EMIT_TOKEN: Final = TokenType.THEN
# In Spark, | binds less than ^, ^ less than &, & less than shifts, and || as much as + and -. In
# DuckDB and PostgreSQL they have one level, as in sqlglot.
_SPARK_LEVELS: Final = (
    (TokenType.PIPE, exp.BitwiseOr),
    (TokenType.CARET, exp.BitwiseXor),
    (TokenType.AMP, exp.BitwiseAnd),
)
# In DuckDB and PostgreSQL, these operators before an operand bind less than + and *. In dialect
# postgres, sqlglot reads ~ as the token of a regular expression.
_LOW_PREFIXES: Final[dict[TokenType, type[exp.Expr]]] = {
    **dict.fromkeys((TokenType.TILDE, TokenType.RLIKE), exp.BitwiseNot),
    TokenType.PIPE_SLASH: exp.Sqrt,
    TokenType.DPIPE_SLASH: exp.Cbrt,
}
# Functions whose argument may be followed by TO and a unit of time.
_ROUNDINGS: Final = {"CEIL": exp.Ceil, "CEILING": exp.Ceil, "FLOOR": exp.Floor}
#: The nodes that sqlglot puts around a function call for the words after it, as FILTER or OVER.
CALL_SUFFIXES: Final = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Window, exp.WithinGroup)


def parse_by_name(names: Iterable[str], *, is_spark_dialect: bool) -> None:
    """Parse calls of these functions as calls by name (``Anonymous``), with arguments as written.

    The modules with the readers of the functions call this when they are imported.

    Args:
        names: The names in lower case.
        is_spark_dialect: True for dialect spark, False for all other dialects.
    """
    (_NAMES_IN_SPARK if is_spark_dialect else _NAMES_IN_OTHER_DIALECTS).update(names)


def parse_statements(tokens: list[Token], text: str, dialect_name: str) -> list[exp.Expr | None]:
    """Return the syntax trees of the statements of a text; None for an empty statement.

    Raises:
        sqlglot.errors.SqlglotError: The text is not valid SQL.
    """
    if dialect_name == "athena":
        # sqlglot passes the tokens on to the parser of Hive or of Trino, without these extensions.
        is_hive = bool(tokens) and tokens[0].token_type == TokenType.HIVE_TOKEN_STREAM
        tokens, dialect_name = (tokens[1:], "hive") if is_hive else (tokens, "trino")
    dialect = _dialect(dialect_name)
    parser = _parser_class(type(dialect))(dialect=dialect)
    is_spark_dialect = is_spark(dialect_name)
    tokens = join_spark_tokens(tokens, text) if is_spark_dialect else tokens
    trees: list[exp.Expr | None] = parser.parse(
        _with_wrapped_pivots(_with_emit(with_window_names(tokens))), text
    )
    rewrite_tree = rewrite_spark_tree if is_spark_dialect else _rewrite_tree

    has_methods = dialect_name.casefold() == "duckdb"
    parse_call = partial(_parse_expression, dialect=dialect)
    for tree in trees:
        _name_created_values(tree)
    trees = [
        tree
        and replace_values_queries(
            tree, is_spark=is_spark_dialect, is_postgres=is_postgres(dialect_name)
        )
        for tree in trees
    ]
    trees = [
        tree and replace_method_calls(tree, has_methods=has_methods, parse=parse_call)
        for tree in trees
    ]
    if not is_spark_dialect:
        parse_template = partial(_parse_expression, dialect=_dialect("duckdb"))
        trees = [tree and replace_json_arrows(tree, dialect) for tree in trees]
        trees = [
            tree
            and replace_templates(
                tree,
                parse_template,
                is_duckdb=has_methods,
                is_postgres=is_postgres(dialect_name),
            )
            for tree in trees
        ]
    return [
        replace_collations(
            rewrite_tree(tree),
            dialect=dialect_name,
            is_spark=is_spark_dialect,
        )
        if tree is not None
        else None
        for tree in trees
    ]


def _with_wrapped_pivots(tokens: list[Token]) -> list[Token]:
    """Return the tokens, with ``FROM (PIVOT ...)`` in place of some PIVOT statements.

    sqlglot parses a PIVOT or UNPIVOT statement only in parentheses if it is the query of a view,
    or if ORDER BY or LIMIT follows.
    """
    result: list[Token] = []
    is_start = True
    is_open = False  # in a PIVOT statement with added parentheses
    depth = 0
    for index, token in enumerate(tokens):
        if is_start:
            awaits_query = token.token_type == TokenType.CREATE
            if token.token_type in _PIVOTS and _has_order_after_pivot(tokens[index:]):
                result.append(_token_like(token, TokenType.FROM, "FROM"))
                result.append(_token_like(token, TokenType.L_PAREN, "("))
                is_open = True
        is_start = token.token_type == TokenType.SEMICOLON
        depth += _DEPTHS.get(token.token_type, 0)
        if is_open and (is_start or (depth == 0 and token.token_type in _ORDERS)):
            result.append(_token_like(token, TokenType.R_PAREN, ")"))
            is_open = False
        result.append(token)
        if awaits_query and token.token_type == TokenType.ALIAS:
            awaits_query = False
            following = tokens[index + 1 : index + 2]
            if following and following[0].token_type in _PIVOTS:
                result.append(_token_like(following[0], TokenType.FROM, "FROM"))
                result.append(_token_like(following[0], TokenType.L_PAREN, "("))
                is_open = True
    return [*result, _token_like(tokens[-1], TokenType.R_PAREN, ")")] if is_open else result


def _has_order_after_pivot(tokens: list[Token]) -> bool:
    """Return whether ORDER BY, LIMIT or OFFSET follows the PIVOT statement at the start."""
    depth = 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            return False
        depth += _DEPTHS.get(token.token_type, 0)
        if depth == 0 and token.token_type in _ORDERS:
            return True
    return False


def _token_like(token: Token, token_type: TokenType, text: str) -> Token:
    return Token(token_type, text, token.line, token.col, token.start, token.end)


def _name_created_values(tree: exp.Expr | None) -> None:
    """Replace ``CREATE VIEW v AS VALUES (1) AS t(a)`` by a SELECT from the named rows."""
    values = tree.args.get("expression") if isinstance(tree, exp.Create) else None
    if isinstance(values, exp.Values) and values.args.get("alias") and tree is not None:
        tree.set("expression", exp.Select(expressions=[exp.Star()], from_=exp.From(this=values)))


def _dialect(name: str) -> Dialect:
    dialect = Dialect.get_or_raise(name)
    dialect.INDEX_OFFSET = 0  # keep subscripts as written; sqlglot would renumber those of maps
    return dialect


def _parse_expression(text: str, dialect: Dialect) -> exp.Expr:
    tokens = dialect.tokenize(f"SELECT {text}")
    (query,) = _parser_class(type(dialect))(dialect=dialect).parse(tokens, text)
    expression: exp.Expr = query.expressions[0]
    return expression


def _rewrite_tree(tree: exp.Expr) -> exp.Expr:
    """Return a tree with one form for each construct that DuckDB can spell in several ways."""
    for node in reversed(list(tree.find_all(exp.Is))):  # the innermost first
        if node.args.get("negate"):  # as sqlglot reads IS NOT NULL in PostgreSQL's dialects
            node.set("negate", None)
            node.replace(exp.Not(this=node.copy()))
    for part in list(tree.find_all(exp.Bracket, exp.List, exp.WindowSpec)):
        _rewrite_words(part)
    return replace_array_subqueries(replace_intervals(_replace_row_functions(tree)))


def _rewrite_words(node: exp.Expr) -> None:
    """Replace words of PostgreSQL's followers.

    ::

        MAP['a', 1]                    MAP {'a': 1}, in Feldera
        LIST[1, 2]                     [1, 2], in Materialize
        RANGE '1 hour' PRECEDING       RANGE INTERVAL '1 hour' PRECEDING, in RisingWave
    """
    if isinstance(node, exp.WindowSpec):
        for side in ("start", "end"):
            offset = node.args.get(side)
            is_text = isinstance(offset, exp.Literal) and offset.is_string
            if is_text and node.args.get("kind") == "RANGE":
                interval = exp.DataType(this=exp.DType.INTERVAL)
                node.set(side, exp.Cast(this=offset, to=interval))
        return
    if isinstance(node, exp.List):
        values: exp.Expr = exp.Array(expressions=node.expressions)
    elif isinstance(node, exp.Bracket) and is_map_constructor(node):
        parts = node.expressions[::2], node.expressions[1::2]
        keys, items = (exp.Array(expressions=list(part)) for part in parts)
        values = exp.Map(keys=keys, values=items)
    else:
        return
    values.meta.update(node.meta)
    node.replace(values)


def _replace_row_functions(tree: exp.Expr) -> exp.Expr:
    """Return a tree with PostgreSQL's functions that make rows as DuckDB has them.

    ::

        generate_series(1, n) in SELECT    unnest(generate_series(1, n)); in DuckDB it is a list
        regexp_split_to_table(s, p)        unnest(regexp_split_to_array(s, p))
        string_to_table(s, d)              unnest(string_to_array(s, d))
        ROWS FROM (f(x), g(y))             UNNEST of several lists
    """
    for node in list(tree.find_all(exp.ExplodingGenerateSeries, exp.Anonymous)):
        rows: exp.Expr
        if isinstance(node, exp.ExplodingGenerateSeries):
            rows = exp.GenerateSeries(**node.args)
        elif node.name.lower() == "regexp_split_to_table":
            rows = exp.Anonymous(this="regexp_split_to_array", expressions=node.expressions)
        elif node.name.lower() == "string_to_table" and len(node.expressions) in (2, 3):
            rows = exp.StringToArray.from_arg_list(node.expressions)
        else:
            continue
        rows.meta.update(node.meta)
        is_in_from = isinstance(node.parent, exp.Table | exp.Lateral | exp.Unnest)
        if not is_in_from or isinstance(node, exp.Anonymous):
            rows = exp.Explode(this=rows)
            rows.meta.update(node.meta)
        node.replace(rows)
    for table in list(tree.find_all(exp.Table)):
        _replace_rows_from(table)
    return tree


def _replace_rows_from(table: exp.Table) -> None:
    """Replace ``ROWS FROM (generate_series(1, n), unnest(a)) AS t(x, y)`` by UNNEST of lists."""
    lists: list[exp.Expr] = []
    for part in table.args.get("rows_from") or ():
        function = part.this if isinstance(part, exp.Table) else part
        if isinstance(function, exp.Unnest):
            lists += function.expressions
        elif isinstance(function, exp.GenerateSeries):
            lists.append(function)
        else:
            return  # an error when the table is read
    if lists:
        alias, ordinality = table.args.get("alias"), bool(table.args.get("ordinality"))
        table.replace(exp.Unnest(expressions=lists, alias=alias, offset=ordinality))


@cache
def _parser_class(dialect: type[Dialect]) -> Any:
    """Return the parser class of a dialect with the extensions of this module."""
    base: Any = dialect.parser_class
    literal_parsers = {
        **dict.fromkeys(exp.DType, _parse_typed_literal),
        **base.TYPE_LITERAL_PARSERS,
    }
    dialect_name = dialect.__name__.lower()
    is_spark_dialect = is_spark(dialect_name)
    lower_names = _NAMES_IN_SPARK if is_spark_dialect else _NAMES_IN_OTHER_DIALECTS
    names = {name.upper() for name in lower_names}
    constraints = {
        **base.CONSTRAINT_PARSERS,
        "GENERATED": _generated_column_parser(base.CONSTRAINT_PARSERS["GENERATED"]),
        "LATENESS": _parse_lateness,
        "METADATA": _parse_metadata,
        "WATERMARK": _parse_watermark,
    }
    unnamed_constraints = {*base.SCHEMA_UNNAMED_CONSTRAINTS, "WATERMARK"}
    prefixes: dict[TokenType, Any] = {}
    if dialect_name == "duckdb" or is_postgres(dialect_name):
        prefixes = {
            token: _prefix_parser(node)
            for token, node in _LOW_PREFIXES.items()
            if token in base.UNARY_PARSERS
        }
        prefixes[TokenType.PARAMETER] = _parse_absolute_value
    attributes = {
        # v:a is the part of a VARIANT in Spark, as in Databricks.
        "COLON_IS_VARIANT_EXTRACT": base.COLON_IS_VARIANT_EXTRACT or is_spark_dialect,
        "LEVELS": _SPARK_LEVELS if is_spark_dialect else (),
        **(
            {"BITWISE": {}, "TERM": {**base.TERM, TokenType.DPIPE: exp.DPipe}}
            if is_spark_dialect
            else {}
        ),
        "UNARY_PARSERS": {**base.UNARY_PARSERS, **prefixes},
        "TYPE_LITERAL_PARSERS": literal_parsers,
        "CONSTRAINT_PARSERS": constraints,
        "SCHEMA_UNNAMED_CONSTRAINTS": unnamed_constraints,
        "JSON_OPERATORS": {**base.JSON_OPERATORS, **(OPERATORS if is_spark_dialect else {})},
        "FUNCTIONS": {
            **{name: _note_surplus(build) for name, build in base.FUNCTIONS.items()},
            **{
                name: _without_false(_note_surplus(base.FUNCTIONS[name]))
                for name in (_WITH_IGNORE_NULLS if is_spark_dialect else ())
            },
            **{name: _call_by_name_builder(name) for name in names},
            **({} if not is_postgres(dialect_name) else {"GENERATE_SERIES": _series_builder}),
        },
        "FUNCTION_PARSERS": {
            **{name: reader for name, reader in base.FUNCTION_PARSERS.items() if name not in names},
            **JSON_PARSERS,
            **{name: _rounding_parser(name, is_call=name in names) for name in _ROUNDINGS},
        },
    }
    return type(base.__name__, (_TextKeepingParser, base), attributes)


def is_spark(dialect: str) -> bool:
    """Return whether semantics that differ between Spark 4 and DuckDB are those of Spark."""
    return dialect in ("spark", "databricks")


def is_postgres(dialect: str) -> bool:
    """Return whether a dialect is PostgreSQL's or that of an engine that follows it."""
    return dialect in ("postgres", "redshift", "risingwave", "materialize")


def _call_by_name_builder(name: str) -> Any:
    """Return a function that builds the tree of a call by name."""

    def build(arguments: list[Any]) -> exp.Anonymous:
        return exp.Anonymous(this=name.lower(), expressions=arguments)

    return build


def _series_builder(arguments: list[Any]) -> exp.ExplodingGenerateSeries:
    """Return the tree of generate_series() in PostgreSQL; a text as its step is an interval."""
    if len(arguments) == 3 and arguments[2].is_string:
        step = exp.Cast(this=arguments[2], to=exp.DataType(this=exp.DType.INTERVAL))
        step.meta.update(arguments[2].meta)
        arguments[2] = step
    return exp.ExplodingGenerateSeries.from_arg_list(arguments)


def _rounding_parser(name: str, *, is_call: bool) -> Any:
    """Return the parser of FLOOR(x) or CEIL(x) that also reads FLOOR(ts TO HOUR).

    Args:
        name: The name of the function, in upper case.
        is_call: Whether FLOOR(x) is a call by name in the tree.
    """

    def parse(parser: Any) -> exp.Expr:
        arguments = parser._parse_csv(parser._parse_lambda)
        if len(arguments) == 1 and parser._match_text_seq("TO"):
            unit = parser._parse_var(any_token=True)
            if unit is None:
                parser.raise_error(f"{name} TO takes a unit, such as HOUR")
            return _ROUNDINGS[name](this=arguments[0], to=unit)
        if is_call:
            return exp.Anonymous(this=name.lower(), expressions=arguments)
        if len(arguments) > 2:
            parser.raise_error(f"{name}() takes 2 arguments or fewer")
        return _ROUNDINGS[name](**dict(zip(("this", "decimals"), arguments, strict=False)))

    return parse


#: Functions of Spark whose second argument says whether they ignore NULL.
_WITH_IGNORE_NULLS: Final = ("ANY_VALUE", "FIRST", "FIRST_VALUE", "LAST", "LAST_VALUE")


def _without_false(build: Callable[..., exp.Expr]) -> Callable[..., exp.Expr]:
    """Return a builder that leaves out a second argument FALSE, which is the default.

    It changes the list of arguments, whose length the parser checks.
    """

    def build_without(arguments: list[exp.Expr], dialect: Dialect) -> exp.Expr:
        if len(arguments) == 2 and arguments[1] == exp.false():
            del arguments[1:]
        return build(arguments, dialect=dialect)

    return build_without


def _note_surplus(build: Callable[..., exp.Expr]) -> Callable[..., exp.Expr]:
    """Return a function that builds the tree of a call, and notes if the tree ignores arguments.

    It then sets ``meta[_SURPLUS]`` to the number of arguments that the tree has.
    """

    def build_and_check(arguments: list[exp.Expr], dialect: Dialect) -> exp.Expr:
        all_arguments = list(arguments)  # a builder may change the list
        tree = _call_builder(build, arguments, dialect)
        distinct = all_arguments[0] if all_arguments else None
        if isinstance(distinct, exp.Distinct) and tree.error_messages():
            # corr(DISTINCT x, y): sqlglot takes what follows DISTINCT as one argument.
            first, *others = distinct.expressions
            all_arguments = [exp.Distinct(expressions=[first]), *others]
            tree = _call_builder(build, list(all_arguments), dialect)
        nodes = {id(node) for node in tree.walk()}
        used_count = len(all_arguments)
        while used_count and id(all_arguments[used_count - 1]) not in nodes:
            # An argument that is not a node of the tree, such as the name of a unit, may still be
            # in it in another form. Then other values in its place change the tree.
            *first_arguments, last = all_arguments[:used_count]
            is_constant = isinstance(last, exp.Literal | exp.Boolean)
            replacements = _OTHER_VALUES if is_constant else (_OTHER_COLUMN,)
            if any(
                _changes_tree(build, tree, [*first_arguments, replacement], dialect)
                for replacement in replacements
            ):
                break
            used_count -= 1
        if used_count < len(all_arguments):
            tree.meta[_SURPLUS] = used_count
        return tree

    return build_and_check


def _changes_tree(
    build: Callable[..., exp.Expr], tree: exp.Expr, arguments: list[exp.Expr], dialect: Dialect
) -> bool:
    """Return whether a builder gives another tree for these arguments, or refuses them."""
    try:
        return _call_builder(build, [argument.copy() for argument in arguments], dialect) != tree
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, SqlglotError):
        return True


def _call_builder(
    build: Callable[..., exp.Expr], arguments: list[exp.Expr], dialect: Dialect
) -> exp.Expr:
    """Call a builder of sqlglot, of which some take the dialect."""
    try:
        return build(arguments)
    except TypeError:
        return build(arguments, dialect=dialect)


_PIPE: Final = TokenType.PIPE_GT


class _TextKeepingParser(Parser):
    """The hooks; ``super()`` is the parser of the dialect.

    ``_curr`` and ``_prev`` are the current and the previous token, ``sql`` is the text.
    """

    #: The operators of bits that have a level of precedence of their own, the loosest first.
    LEVELS: tuple[tuple[TokenType, type[exp.Binary]], ...] = ()

    def _parse_bitwise(self) -> exp.Expr | None:
        return self._parse_level(0)

    def _parse_level(self, level: int) -> exp.Expr | None:
        if level == len(self.LEVELS):
            return super()._parse_bitwise()
        token_type, operator = self.LEVELS[level]
        tree = self._parse_level(level + 1)
        while self._match(token_type):
            operands = {"this": tree, "expression": self._parse_level(level + 1)}
            tree = self.expression(operator(**operands))
        return tree

    def _parse_statement(self) -> exp.Expr | None:
        if self._is_piped_table():
            return self._parse_emit(self._parse_select())
        return self._parse_emit(super()._parse_statement())

    def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
        if isinstance(expression, exp.Substring) and args and len(args) > 3:
            # The fourth argument would be the flag zero_start, which Snowflake's parser replaces.
            self.raise_error("SUBSTRING takes 3 arguments or fewer")
        return super().validate_expression(expression, args)

    def _parse_ddl_select(self) -> exp.Expr | None:
        return self._parse_emit(super()._parse_ddl_select())

    def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query:
        return parse_pipe_operators(self, query)

    def _parse_select(self, *args: Any, **options: Any) -> exp.Expr | None:
        query = super()._parse_select(*args, **options)
        is_piped = options.get("consume_pipe", True) and self._match(_PIPE, advance=False)
        if isinstance(query, exp.Values) and is_piped:
            return parse_pipe_operators(self, query)
        return query

    def _parse_select_query(self, *args: Any, **options: Any) -> exp.Expr | None:
        if self._is_piped_table():
            self._advance()
            return exp.Select(expressions=[exp.Star()], from_=exp.From(this=self._parse_table()))
        return super()._parse_select_query(*args, **options)

    def _is_piped_table(self) -> bool:
        """Return whether the next words are ``TABLE name``, and ``|>`` or the end follows."""
        if self._curr is None or self._curr.text.upper() != "TABLE":
            return False
        index = self._index
        self._advance()
        name = self._parse_table_parts()
        is_end = is_operator_end(self)
        self._retreat(index)
        return name is not None and is_end

    def _parse_emit(self, query: exp.Expr | None) -> exp.Expr | None:
        token = self._curr
        if token is not None and token.token_type == _EMIT_TOKEN and query is not None:
            query.meta[EMIT_ON_CLOSE] = token.start
            self._advance(len(_EMIT))
        return query

    def _parse_function_call(self, *args: Any, **options: Any) -> exp.Expr | None:
        name = self._curr
        tree = super()._parse_function_call(*args, **options)
        if isinstance(tree, exp.Exists) and isinstance(tree.args.get("expression"), exp.Lambda):
            # exists(list, lambda) is not EXISTS (subquery).
            arguments = [tree.this, tree.args["expression"]]
            tree = exp.Anonymous(this="list_exists", expressions=arguments)
        call: Any = tree
        while isinstance(call, CALL_SUFFIXES):
            self._refuse_surplus(call, name)
            call = call.this
        self._refuse_surplus(call, name)
        if isinstance(call, exp.Expr):
            call.meta.setdefault(NAME_IN_TEXT, name.text)
            if "start" not in call.meta and not any(call.iter_expressions()):
                call.update_positions(name)  # as CURRENT_DATE, which is written without ()
        return tree

    def _warn_unsupported(self) -> None:
        """Log nothing: a statement that sqlglot does not parse is refused with an error."""

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        token = self._curr
        if token is not None and token.token_type == TokenType.L_BRACKET:
            # A list in brackets is one value; sqlglot would read it as values in parentheses.
            return self.expression(exp.In(this=this, field=self._parse_column()))
        return super()._parse_in(this, alias)

    # sqlglot reads no comparison as a key in ROLLUP, CUBE and GROUPING SETS, as in ROLLUP (a > 1).

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        if with_prefix or not self._match_set((TokenType.CUBE, TokenType.ROLLUP), advance=False):
            return super()._parse_cube_or_rollup(with_prefix)
        kind = exp.Cube if self._curr.token_type == TokenType.CUBE else exp.Rollup
        self._advance()
        return self.expression(kind(expressions=self._parse_wrapped_csv(self._parse_disjunction)))

    def _parse_grouping_set(self) -> exp.Expr | None:
        sets = self._parse_grouping_sets() or self._parse_cube_or_rollup()
        return sets or self._parse_disjunction()

    def _refuse_surplus(self, call: Any, name: Token) -> None:
        """Raise the error for a call with more arguments than the function takes."""
        limit = call.meta.pop(_SURPLUS, None) if isinstance(call, exp.Expr) else None
        if limit is not None:
            self.raise_error(f"{name.text}() takes {limit} arguments or fewer", name)

    def _parse_interval(self, *args: Any, **options: Any) -> exp.Add | exp.Interval | None:
        keyword, literal = self._curr, self._next
        tree = super()._parse_interval(*args, **options)
        # sqlglot drops all but one number and unit of a text such as '1 day 02:03:04'.
        interval = tree.this if isinstance(tree, exp.Add) else tree
        if (
            isinstance(interval, exp.Interval)
            and keyword.token_type == TokenType.INTERVAL
            and literal.token_type == TokenType.STRING
            and any(character.isalpha() for character in literal.text)
            and not isinstance(interval.args.get("unit"), exp.IntervalSpan)
        ):
            text = exp.Literal.string(literal.text)
            text.update_positions(literal)
            whole = interval_of_text(text)
            interval.set("this", whole.this)
            interval.set("unit", whole.args.get("unit"))
            interval.set("fraction_in_string", None)
        return tree

    def _parse_column_def(self, *args: Any, **options: Any) -> exp.Expr | None:
        first = self._index
        tree = super()._parse_column_def(*args, **options)
        words = [token.text.upper() for token in self._tokens[first : self._index]]
        if isinstance(tree, exp.ColumnDef) and any(
            isinstance(constraint.kind, exp.ComputedColumnConstraint)
            and isinstance(constraint.kind.this, exp.Not)
            for constraint in tree.args.get("constraints") or []
        ):
            for word, following in pairwise(range(len(words))):
                # sqlglot reads ``b AS (a) NOT NULL`` as ``b AS ((a) IS NOT NULL)``.
                is_not_null = words[word : following + 1] == ["NOT", "NULL"]
                if is_not_null and words[word - 1] != "IS":
                    self.raise_error(
                        "NOT NULL after a computed column; leave it out", self._tokens[first + word]
                    )
        return tree

    def _parse_function_parameter(self) -> exp.Expr | None:
        name = self._curr
        tree: exp.Expr | None = super()._parse_function_parameter()
        if isinstance(tree, exp.Identifier | exp.ColumnDef) and self._match(TokenType.COLON_EQ):
            default = exp.DefaultColumnConstraint(this=self._parse_disjunction())
            part = exp.ColumnConstraint(kind=default)
            if isinstance(tree, exp.Identifier):
                tree = exp.ColumnDef(this=tree)
            tree.append("constraints", part)
        if tree is not None and name is not None and "start" not in tree.meta:
            tree.update_positions(name)
        return tree

    def _parse_types(self, *args: Any, **options: Any) -> exp.Expr | None:
        first = self._curr
        tree = super()._parse_types(*args, **options)
        if tree is None and first is not None and first.text.upper() == "BYTES":
            self._advance()
            tree = exp.DataType(this=exp.DType.VARBINARY)
        if isinstance(tree, exp.DataType) and first is not self._curr:
            tree.meta.setdefault(NAME_IN_TEXT, self.sql[first.start : self._prev.end + 1])
        return tree

    def _parse_table(self, *args: Any, **options: Any) -> exp.Expr | None:
        table = parse_window_table(self, options.get("alias_tokens"))
        if table is None:
            return super()._parse_table(*args, **options)
        if options.get("joins"):
            for join in self._parse_joins():
                table.append("joins", join)
        return table

    def _parse_wrapped_id_vars(self, *args: Any, **options: Any) -> list[exp.Expr]:
        words = [token.text.upper() for token in self._tokens[self._index - 2 : self._index]]
        if words != ["USING", "KEY"]:
            names: list[exp.Expr] = super()._parse_wrapped_id_vars(*args, **options)
            return names
        keys: list[exp.Expr] = self._parse_wrapped_csv(self._parse_assignment)
        return keys

    def _parse_join(self, *args: Any, **options: Any) -> exp.Join | None:
        token = self._curr
        is_comma = token is not None and token.token_type == TokenType.COMMA
        join = super()._parse_join(*args, **options)
        if is_comma and isinstance(join, exp.Join):
            join.meta[IS_COMMA] = True
        return join


def _with_emit(tokens: list[Token]) -> list[Token]:
    """Return the tokens, with EMIT before ON WINDOW CLOSE at the end of a statement as a keyword.

    sqlglot would read it as the alias of a table.
    """
    result = list(tokens)
    for index, token in enumerate(tokens):
        following = tokens[index + len(_EMIT) : index + len(_EMIT) + 1]
        words = [part.text.upper() for part in tokens[index : index + len(_EMIT)]]
        if words == _EMIT and all(part.token_type == TokenType.SEMICOLON for part in following):
            result[index] = Token(
                _EMIT_TOKEN, token.text, token.line, token.col, token.start, token.end
            )
    return result


def _parse_typed_literal(parser: Any, value: exp.Expr, to: exp.DataType) -> exp.Expr:
    """Return the tree of ``DATE 'x'::VARCHAR``: DATE belongs to the literal, not to its cast."""
    literal = value
    while not isinstance(literal, exp.Literal):
        literal = literal.this
    typed: exp.Expr = parser.expression(exp.Cast(this=literal.copy(), to=to))
    if literal is value:
        return typed
    literal.replace(typed)
    return value


def _prefix_parser(operator: type[exp.Expr]) -> Any:
    """Return the parser of ``~a + b`` as ``~(a + b)``."""

    def parse(parser: Any) -> exp.Expr:
        tree: exp.Expr = parser.expression(operator(this=parser._parse_term()))
        return tree

    return parse


def _parse_absolute_value(parser: Any) -> exp.Expr | None:
    """Return the tree of ``@ a + b``, which is ``abs(a + b)``; or of the parameter ``$1``."""
    if parser._prev.text == "@":
        tree: exp.Expr | None = parser.expression(exp.Abs(this=parser._parse_term()))
    else:
        parser._retreat(parser._index - 1)
        tree = parser._parse_type()
    return tree


def _parse_watermark(parser: Any) -> exp.Expr | None:
    """Return the tree of ``WATERMARK FOR ts AS ts - INTERVAL '5' SECOND``.

    Without FOR it is a column of this name, and the caller steps back.
    """
    if not parser._match(TokenType.FOR):
        return None
    column = parser._parse_column()
    bound = parser._match(TokenType.ALIAS) and parser._parse_disjunction()
    tree: exp.Expr = parser.expression(exp.WatermarkColumnConstraint(this=column, expression=bound))
    return tree


def _parse_lateness(parser: Any) -> exp.Expr:
    """Return the tree of ``LATENESS INTERVAL '5' SECOND``, which follows a column."""
    bound = parser._parse_disjunction()
    tree: exp.Expr = parser.expression(
        exp.WatermarkColumnConstraint(this=exp.null(), expression=bound)
    )
    return tree


def _generated_column_parser(parse_generated: Callable[[Any], exp.Expr]) -> Any:
    """Return the parser of ``GENERATED ALWAYS AS (a + 1) VIRTUAL`` and of identities."""

    def parse(parser: Any) -> exp.Expr:
        tree = parse_generated(parser)
        is_always = isinstance(tree, exp.GeneratedAsIdentityColumnConstraint) and tree.this is True
        if is_always and tree.args.get("expression") is not None:
            tree = parser.expression(exp.ComputedColumnConstraint(this=tree.args["expression"]))
        if isinstance(tree, exp.ComputedColumnConstraint):
            parser._match_texts(("VIRTUAL", "STORED"))
        return tree

    return parse


def _parse_metadata(parser: Any) -> exp.Expr:
    """Return a tree for ``METADATA FROM 'key' VIRTUAL``, which follows a column."""
    if parser._match(TokenType.FROM) and parser._parse_string() is None:
        parser._parse_id_var()
    parser._match_text_seq("VIRTUAL")
    tree: exp.Expr = parser.expression(exp.Var(this="METADATA"))
    tree.meta[UNCHECKED_COLUMN_PART] = "METADATA"
    return tree
