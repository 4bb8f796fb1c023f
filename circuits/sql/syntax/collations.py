"""COLLATE in comparisons, sort keys and group keys, replaced by functions before the tree is read.

A text that is compared without regard to case is compared in lower case::

    s COLLATE NOCASE = 'A'                 lower(s) = lower('A')
    ORDER BY s COLLATE UTF8_LCASE          ORDER BY lower(s)
    s COLLATE NOCASE.NOACCENT IN (...)     strip_accents(lower(s)) IN (...)
    PARTITION BY s COLLATE NOCASE          PARTITION BY lower(s); also in GROUP BY, DISTINCT ON
    count(DISTINCT s COLLATE NOCASE)       count(DISTINCT lower(s))
    SELECT s COLLATE NOCASE, count(*)      SELECT any_value(s), count(*)
    FROM t GROUP BY s COLLATE NOCASE       FROM t GROUP BY lower(s)
    SELECT DISTINCT s COLLATE NOCASE, i    SELECT any_value(s), i FROM t GROUP BY lower(s), 2
    FROM t

A column with a collation passes it on to the queries that read the column, whose comparisons would
change. No query reads a statement that is only a SELECT, so the last two forms are replaced there;
in a CREATE VIEW or a subquery they are an error.

In other places (arguments of functions, set operations) COLLATE would change comparisons of the
result, or which of several equal texts is the result. The binder raises an error for each COLLATE
that is not replaced here.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

__all__ = ["is_byte_order", "replace_collations"]

# The functions of a collation, by its parts in lower case.
_DUCKDB_PARTS: Final = {"nocase": "lower", "noaccent": "strip_accents"}
_SPARK_PARTS: Final = {"utf8_lcase": "lower"}

# The collations that compare texts by their bytes, as a text without COLLATE is compared.
_BYTE_ORDERS: Final = ("c", "posix", "binary")

# Nodes whose operands are all compared with each other, with the names of these operands.
_COMPARISONS: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), ("this", "expression")),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like), ("this", "expression")),
    exp.Between: ("this", "low", "high"),
    exp.In: ("this", "expressions"),
    exp.Ordered: ("this",),
}
# Nodes with keys, each compared with the same key of other rows, with the names of these keys.
_KEYS: Final[dict[type[exp.Expr], str]] = {
    **dict.fromkeys((exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets), "expressions"),
    exp.Window: "partition_by",
}


def is_byte_order(name: str, *, is_spark: bool) -> bool:
    """Return whether a collation compares texts by their bytes, so that it has no effect."""
    return name.casefold() in (("utf8_binary",) if is_spark else _BYTE_ORDERS)


def replace_collations(tree: exp.Expr, *, dialect: str, is_spark: bool) -> exp.Expr:
    """Return a tree with functions in place of the collations of comparisons and keys.

    A collation that cannot be replaced stays; the binder raises an error for it.
    """
    parts = _SPARK_PARTS if is_spark else _DUCKDB_PARTS
    if isinstance(tree, exp.Select):
        _replace_items(tree, parts, dialect)
    for collation in list(tree.find_all(exp.Collate)):
        functions = _functions_of(collation, parts)
        if not functions:
            continue
        operand: exp.Expr = collation
        while isinstance(operand.parent, exp.Paren):
            operand = operand.parent
        if _is_key(operand):
            _apply_functions(operand, functions)
            continue
        node = operand.parent
        names = _COMPARISONS.get(type(node), ()) if node is not None else ()
        if node is None or operand.arg_key not in names:
            continue
        if any(node.args.get(name) for name in ("query", "unnest", "field")):
            continue  # x IN (SELECT ...)
        if _has_letter_as_escape(node):
            continue
        operands = [part for name in names for part in _as_list(node.args.get(name))]
        if any(_has_other_collation(part, collation) for part in operands):
            continue
        for part in operands:
            _apply_functions(part, functions)
    return tree


def _is_key(operand: exp.Expr) -> bool:
    """Return whether an operand is a key of groups, of partitions or of DISTINCT."""
    node = operand.parent
    if isinstance(node, exp.Tuple):  # in DISTINCT ON or GROUPING SETS
        operand, node = node, node.parent
    if isinstance(node, exp.Distinct):
        return operand.arg_key == "on" or isinstance(node.parent, exp.Count)
    return node is not None and _KEYS.get(type(node)) == operand.arg_key


def _replace_items(select: exp.Select, parts: dict[str, str], dialect: str) -> None:
    """Replace the collations of the items that are keys of groups, in the list of a SELECT."""
    group, distinct = select.args.get("group"), select.args.get("distinct")
    items = [item.unalias().unnest() for item in select.expressions]
    collations = {
        number: item
        for number, item in enumerate(items)
        if isinstance(item, exp.Collate) and _functions_of(item, parts)
    }
    # An item becomes one of its texts, without the collation. So no other part of the query may
    # compare it by its alias: no other item or clause, nor an ORDER BY that decides the rows.
    if not collations or select.args.get("limit") or select.args.get("offset"):
        return
    if any(
        _names_alias(select, select.expressions[number], item)
        for number, item in collations.items()
    ):
        return
    keys = group.expressions if group is not None else []
    if distinct is not None and distinct.args.get("on") is None and group is None:
        if any(part.is_star or part.find(exp.AggFunc, exp.Window, exp.Query) for part in items):
            return
        numbers = [exp.Literal.number(number + 1) for number in range(len(items))]
        select.set("distinct", None)
        select.set("group", exp.Group(expressions=numbers))
        keys = select.args["group"].expressions
    elif group is None or any(isinstance(part, list) and part for part in _sets_of(group)):
        return
    for number, collation in collations.items():
        position = exp.Literal.number(number + 1)
        places = [key for key in keys if key in (position, collation)]
        if not places:
            continue
        name = select.expressions[number].alias or collation.sql(dialect=dialect)
        value = exp.AnyValue(this=collation.this.copy())
        value.meta.update(collation.meta)
        for key in places:
            key.replace(collation.copy())
        select.expressions[number].replace(exp.alias_(value, name, quoted=True))


def _names_alias(select: exp.Select, item: exp.Expr, collation: exp.Collate) -> bool:
    """Return whether HAVING, QUALIFY or an item of the list may name the alias of an item."""
    alias = item.alias.casefold()
    parts = [select.args[name] for name in ("having", "qualify") if select.args.get(name)]
    # In the list, a column comes before an alias of its name.
    column = collation.this.unnest()
    if not (isinstance(column, exp.Column) and column.name.casefold() == alias):
        parts += select.expressions
    columns = [column for part in parts for column in part.find_all(exp.Column)]
    return any(not column.table and column.name.casefold() == alias for column in columns)


def _has_letter_as_escape(like: exp.Expr) -> bool:
    """Return whether a LIKE has an ESCAPE that its pattern in lower case may not contain."""
    escape = like.parent
    if not isinstance(escape, exp.Escape):
        return False
    character = escape.expression
    return not isinstance(character, exp.Literal) or any(map(str.isalpha, character.name))


def _sets_of(group: exp.Group) -> list[object]:
    """Return the ROLLUP, CUBE and GROUPING SETS of a GROUP BY, as lists, and WITH TOTALS."""
    return [group.args.get(name) for name in ("rollup", "cube", "grouping_sets", "totals")]


def _functions_of(collation: exp.Collate, parts: dict[str, str]) -> list[str]:
    """Return the functions of a collation; none if one of its parts is unknown."""
    name = collation.expression
    words = [part.name for part in name.parts] if isinstance(name, exp.Column) else [name.name]
    functions = [parts.get(word.casefold(), "") for word in words]
    return functions if all(functions) else []


def _as_list(value: object) -> list[exp.Expr]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, exp.Expr) else []


def _has_other_collation(operand: exp.Expr, collation: exp.Collate) -> bool:
    inner = operand.unnest()
    return isinstance(inner, exp.Collate) and inner.expression != collation.expression


def _apply_functions(operand: exp.Expr, functions: list[str]) -> None:
    """Replace an operand by calls over it, without its collation."""
    value = operand
    while isinstance(value, exp.Paren):  # a subquery keeps its parentheses
        value = value.this
    if isinstance(value, exp.Collate):
        value = value.this
    result: exp.Expr = value.copy()
    for function in functions:
        call = exp.Lower(this=result) if function == "lower" else _call(function, result)
        call.meta.update(value.meta)
        result = call
    operand.replace(result)


def _call(function: str, argument: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=function, expressions=[argument])
