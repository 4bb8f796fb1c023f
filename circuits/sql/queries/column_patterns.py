"""COLUMNS: an item of SELECT that stands for several columns.

::

    SELECT COLUMNS('.*_id') FROM t          the columns with a name that matches the pattern
    SELECT max(COLUMNS(* EXCLUDE (a)))      an item for each column, here its maximum
    SELECT COLUMNS('(.*)_id') AS '\\1'       names made of the groups of the pattern
    SELECT greatest(*COLUMNS('.*_id'))      one item: the columns are arguments of the function
    SELECT * LIKE '%_id'                    as COLUMNS(lambda c: c LIKE '%_id')
    WHERE COLUMNS('.*_id') > 0              a condition for each column

An item with COLUMNS is replaced in the syntax tree by one item for each column, before the list is
read. Its name is that of the column, as in DuckDB. The pattern is one of Python's ``re``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from sqlglot import exp

from circuits.sql.binding.scope import Scope, ScopeColumn

__all__ = ["expand_condition", "expand_items", "selected_names"]


class _SelectedColumn(NamedTuple):
    """A column that COLUMNS stands for; and how its pattern matches the name, if it has one."""

    column: ScopeColumn
    name_match: re.Match[str] | None = None


def expand_items(scope: Scope, items: list[exp.Expr]) -> list[exp.Expr]:
    """Return the items of a SELECT with those that contain COLUMNS replaced.

    Raises:
        SqlError: No column matches, or a pattern is not valid.
        UnsupportedSqlError: COLUMNS of something else than a star, a pattern, names or a condition.
    """
    return [expanded for item in items for expanded in _expand(scope, item)]


def expand_condition(scope: Scope, condition: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that a condition with COLUMNS stands for: one for each column."""
    expanded = _expand(scope, condition)
    if expanded != [condition]:  # only its copies are compiled, so count all parts of it as read
        scope.source.mark_read(condition)
    return [part.unalias() for part in expanded]


def selected_names(scope: Scope, node: exp.Expr, selector: exp.Expr) -> list[str]:
    """Return the names of the columns that a star, or the argument of COLUMNS, selects.

    Args:
        scope: The columns.
        node: The star or the call, for the place of an error.
        selector: The star or the argument.
    """
    return [selected.column.name for selected in _select_columns(scope, node, selector)]


def _expand(scope: Scope, item: exp.Expr) -> list[exp.Expr]:
    """Return an item for each column that COLUMNS in it stands for; itself without COLUMNS."""
    if isinstance(item, exp.Star) and item.args.get("ilike"):  # as sqlglot reads * ILIKE 'p'
        scope.source.allow_arguments(item, "ilike")
        item = exp.ILike(this=exp.Star(), expression=item.args["ilike"])
    if _is_star_pattern(item):  # * LIKE 'p' is COLUMNS(c -> c LIKE 'p')
        return [_column_node(selected, item) for selected in _select_columns(scope, item, item)]
    item = _unpack_columns(scope, item)
    nodes = list(_find_columns(item))
    for node in nodes:
        scope.source.allow_arguments(node, "this")
        if node != nodes[0]:
            raise scope.source.error(node, "different COLUMNS in one expression; write it out")
    if not nodes:
        return [item]
    selection = _select_columns(scope, nodes[0], nodes[0].this)
    return [_replace_columns(item, selected) for selected in selection]


def _unpack_columns(scope: Scope, item: exp.Expr) -> exp.Expr:
    """Return an item with the columns of each ``*COLUMNS(...)`` as arguments in its place."""
    unpacked = [node for node in _find_columns(item) if node.args.get("unpack")]
    for node in unpacked:
        scope.source.allow_arguments(node, "this", "unpack")
        columns = [
            _column_node(selected, node) for selected in _select_columns(scope, node, node.this)
        ]
        parent, key, index = node.parent, node.arg_key, node.index
        if (
            parent is None
            or key is None
            or isinstance(parent, exp.Alias | exp.Paren)
            or node is item
        ):
            raise scope.source.error(
                node, "*COLUMNS() is a list of arguments; write COLUMNS() without the star"
            )
        if index is not None:
            parts = parent.args[key]
            parent.set(key, [*parts[:index], *columns, *parts[index + 1 :]])
        elif key == "this" and "expressions" in parent.arg_types:
            first, *others = columns
            parent.set("this", first)
            parent.set("expressions", [*others, *parent.expressions])
        elif len(columns) == 1:
            parent.set(key, columns[0])
        else:
            raise scope.source.unsupported(
                node, f"*COLUMNS() in {scope.source.describe(parent)}", "write the columns out"
            )
    return item


def _is_star_pattern(item: exp.Expr) -> bool:
    """Return whether an item is ``* LIKE 'p'``, or with ILIKE, SIMILAR TO, GLOB or NOT."""
    pattern = item.this if isinstance(item, exp.Not) else item
    return isinstance(pattern, exp.Like | exp.ILike | exp.SimilarTo | exp.Glob) and isinstance(
        pattern.this, exp.Star
    )


def _find_columns(item: exp.Expr) -> Iterator[exp.Columns]:
    """Yield the nodes of COLUMNS of an item, without those of its subqueries."""
    for node in item.walk(prune=lambda part: isinstance(part, exp.Query)):
        if isinstance(node, exp.Columns):
            yield node


def _select_columns(scope: Scope, node: exp.Expr, selector: exp.Expr) -> list[_SelectedColumn]:
    """Return the columns that a selector chooses: ``*``, a pattern, names or a condition."""
    source = scope.source
    table = ""
    if isinstance(selector, exp.Column) and isinstance(selector.this, exp.Star):
        table, selector = selector.table, selector.this
    columns = [  # without a table, those that an unqualified name can reach
        column
        for column in scope.columns
        if (column.is_of_table(table) if table else not column.is_shadowed)
    ]
    if isinstance(selector, exp.Star) and not any(
        selector.args.get(part) for part in ("replace", "rename")
    ):
        star = list(scope.expand_star(selector, table))
        selection = [
            _SelectedColumn(column)
            for column in columns
            if (column.name, column.value if table else column.unqualified_value) in star
        ]
    elif isinstance(selector, exp.Literal) and selector.is_string:
        try:
            pattern = re.compile(selector.name)
        except re.error as error:
            raise source.error(selector, f"{selector.name!r} is no pattern: {error}") from None
        searches = ((column, pattern.search(column.name)) for column in columns)
        selection = [_SelectedColumn(column, match) for column, match in searches if match]
    elif isinstance(selector, exp.Array) and all(map(_is_text, selector.expressions)):
        listed = {name.name.casefold() for name in selector.expressions}
        selection = [
            _SelectedColumn(column) for column in columns if column.name.casefold() in listed
        ]
        if listed - {selected.column.name.casefold() for selected in selection}:
            selection = []  # an unknown name is an error, as if nothing matched
    else:
        condition = selector.this if isinstance(selector, exp.Lambda) else selector
        try:
            selection = [_SelectedColumn(c) for c in columns if _holds_for_name(condition, c.name)]
        except NotImplementedError:
            raise source.unsupported(
                node,
                f"COLUMNS({source.text_of(selector)})",
                "write '*', a pattern, a list of names, or a lambda with LIKE, GLOB, =, IN, "
                "starts_with(), ends_with(), contains() or regexp_matches()",
                word="COLUMNS",
            ) from None
        except re.error as error:
            raise source.error(node, f"a pattern in COLUMNS is not valid: {error}") from None
    if not selection:
        names = ", ".join(column.name for column in columns)
        text = source.text_of(selector)
        raise source.error(node, f"no column matches COLUMNS({text}); columns: {names}")
    return selection


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


# The tests of a name by a text, with DuckDB's meaning: ~ compares the whole name.
_NAME_TESTS: Final[dict[type[exp.Expr], Callable[[str, str], bool]]] = {
    exp.Contains: lambda name, text: text in name,
    exp.EndsWith: str.endswith,
    exp.Glob: fnmatchcase,
    exp.RegexpLike: lambda name, text: re.fullmatch(text, name) is not None,
    exp.StartsWith: str.startswith,
}


def _is_regexp_call(node: exp.Anonymous) -> bool:
    """Return whether a call is ``regexp_matches(c, 'pattern')``."""
    if node.name.lower() != "regexp_matches" or len(node.expressions) != 2:
        return False
    return isinstance(node.expressions[0], exp.Identifier) and _is_text(node.expressions[1])


def _holds_for_name(condition: exp.Expr, name: str) -> bool:
    """Return whether the condition of a lambda holds for the name of a column.

    Raises:
        NotImplementedError: The condition is not made of LIKE, SIMILAR TO, GLOB, ~, =, <>, IN, AND,
            OR, NOT, starts_with(), ends_with(), contains() and regexp_matches().
        re.error: A pattern is not valid.
    """
    match condition:
        case exp.Paren():
            return _holds_for_name(condition.this, name)
        case exp.Not():
            return not _holds_for_name(condition.this, name)
        case exp.And():
            return all(_holds_for_name(part, name) for part in condition.flatten())
        case exp.Or():
            return any(_holds_for_name(part, name) for part in condition.flatten())
        case exp.Like() | exp.ILike() | exp.SimilarTo() | exp.EQ() | exp.NEQ() if isinstance(
            condition.this, exp.Identifier | exp.Star
        ) and _is_text(condition.expression):
            text = condition.expression.name
            if isinstance(condition, exp.EQ | exp.NEQ):
                is_equal = bool(name == text)
                return is_equal if isinstance(condition, exp.EQ) else not is_equal
            if not isinstance(condition, exp.SimilarTo):
                parts = {"%": ".*", "_": "."}
                text = "".join(parts.get(letter, re.escape(letter)) for letter in text)
            flags = re.IGNORECASE if isinstance(condition, exp.ILike) else 0
            is_match = re.fullmatch(text, name, flags | re.DOTALL) is not None
            return is_match != bool(condition.args.get("negate"))
        case exp.Anonymous() if _is_regexp_call(condition):
            return re.search(condition.expressions[1].name, name) is not None
        case exp.StartsWith() | exp.EndsWith() | exp.Contains() | exp.Glob() | exp.RegexpLike() if (
            isinstance(condition.this, exp.Identifier | exp.Star)
            and _is_text(condition.expression)
            and not condition.args.get("flag")
        ):
            return _NAME_TESTS[type(condition)](name, condition.expression.name)
        case exp.In() if isinstance(condition.this, exp.Identifier) and all(
            map(_is_text, condition.expressions)
        ):
            return name in [text.name for text in condition.expressions]
    raise NotImplementedError


def _replace_columns(item: exp.Expr, selected: _SelectedColumn) -> exp.Expr:
    """Return a copy of an item for one column."""
    column = selected.column
    name = column.name
    if isinstance(item, exp.Alias):
        name = item.alias
        if selected.name_match is not None and "\\" in name:
            name = selected.name_match.expand(name)
    copy = item.unalias().copy()
    for node in list(_find_columns(copy)):
        replacement = _column_node(selected, node)
        if node is copy:
            copy = replacement
        else:
            node.replace(replacement)
    return exp.Alias(this=copy, alias=exp.to_identifier(name, quoted=True))


def _column_node(selected: _SelectedColumn, node: exp.Expr) -> exp.Column:
    """Return the node of a column, which has the place of another node in error messages."""
    column = selected.column
    is_qualified = bool(column.table) and column.merged_value is None
    table = exp.to_identifier(column.table, quoted=True) if is_qualified else None
    result = exp.Column(this=exp.to_identifier(column.name, quoted=True), table=table)
    result.meta.update(node.meta)
    return result
