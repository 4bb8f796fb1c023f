"""All obstacles of a text: not only the first error, but the errors of all statements.

Each statement is parsed and planned by itself. After an error inside a statement, the part that
has it is replaced, and the statement is planned again:

================================== ===============================================
an item of a SELECT list           becomes NULL, with the same name
a condition of WHERE, HAVING, ON   becomes TRUE
an item of ORDER BY                is left out
a column or constraint of a table  is left out
================================== ===============================================

An error elsewhere, such as in GROUP BY, ends the search in its statement. A call of a function that
the text declares, with an error in the declaration, becomes NULL; a statement that reads such a
function in FROM is not planned. After a replacement, an
error may be the effect of it. So from then on, in this statement and in those that read its view,
only unsupported constructs and unknown names are reported; and the errors in other parts of the
same SELECT that do not name the item.

Invariant: a text has no obstacle if and only if `circuits.sql.plan_sql` plans it; the first
obstacle of a text is the error that it raises, if no statement has an error of syntax.

Cost: one plan of the statement for each obstacle, at most `MAX_OBSTACLES_PER_STATEMENT`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from circuits.errors import SqlError, UnsupportedSqlError
from circuits.plan.nodes import Field
from circuits.sql.expressions.readers import READERS
from circuits.sql.expressions.user_functions import with_user_functions
from circuits.sql.sql_functions import expand_functions, is_function
from circuits.sql.statements import (
    NO_FUNCTIONS,
    StatementPlanner,
    names_itself,
    order_statements,
)
from circuits.sql.syntax.source import SqlSource
from circuits.user_functions import UserFunction
from dbsp_wcoj.text_position import point_at

__all__ = ["Obstacle", "find_obstacles"]

MAX_OBSTACLES_PER_STATEMENT: Final = 100
# The key of ``meta`` of a node that replaces another.
IS_REPLACEMENT: Final = "is_replacement"
_UNKNOWN_TABLE: Final = re.compile(r": unknown table '([^']*)'")
# The declaration of a function; group 1 is its name.
_DECLARED_FUNCTION: Final = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?(?:FUNCTION|MACRO)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?[`\"]?(\w+)",
    re.IGNORECASE,
)
# Adds an error of a statement to the obstacles; False if there is one at its place.
Report: TypeAlias = Callable[[SqlError, str], bool]


@dataclass(frozen=True)
class Obstacle:
    """A reason why a text does not compile.

    Attributes:
        statement: The view, table or sink of the statement, or ``statement 3``.
        line: The line, from 1.
        column: The column, from 1.
        message: The construct or fault, and how to fix it.
        excerpt: The line of the text with a caret below the place.
        is_supported: True if the text is wrong, False if the engine lacks the construct.
    """

    statement: str
    line: int
    column: int
    message: str
    excerpt: str
    is_supported: bool


@dataclass
class _Statement:
    """A statement with a source of its own, whose positions are those in the whole text.

    Attributes:
        source: The text of the statement.
        tree: Its syntax tree, in which parts with an error are replaced.
        name: As `Obstacle.statement`.
        may_mislead: True if its next errors may be the effect of a replacement, in it or in a
            statement whose view it reads.
        is_readable: False if it reads, in FROM, a function whose declaration has an error.
        is_unreliable: True if any of its next errors may be such an effect, wherever it is.
        replacements: The items and conditions that replace others.
    """

    source: SqlSource
    tree: exp.Expr
    name: str
    may_mislead: bool = False
    is_readable: bool = True
    is_unreliable: bool = False
    replacements: list[exp.Expr] = field(default_factory=list)


class _Part(NamedTuple):
    """A part of a statement that can be replaced: its first and last offset, and its tree."""

    first: int
    last: int
    node: exp.Expr


def find_obstacles(
    text: str,
    relations: Mapping[str, tuple[Field, ...]],
    *,
    name: str = "view",
    dialect: str = "duckdb",
    functions: Mapping[str, UserFunction] = NO_FUNCTIONS,
) -> list[Obstacle]:
    """Return the obstacles of a text, in the order of the text; empty if it compiles.

    Args:
        text: The statements, as for `circuits.sql.plan_sql`.
        relations: The columns of each relation that the text does not declare.
        name: The name of the view of a plain SELECT.
        dialect: The dialect of the text.
        functions: The user-defined functions by lower-case name.

    Raises:
        FunctionError: A user-defined function has the name of a built-in one.

    >>> for obstacle in find_obstacles(
    ...     "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT frob(a) AS b FROM t WHERE zz = 1", {}
    ... ):
    ...     print(obstacle.line, obstacle.column, obstacle.message.split(";")[0])
    1 49 function frob() is not supported
    1 75 unknown column 'zz'
    """
    obstacles: dict[tuple[int, int], Obstacle] = {}

    def report(error: SqlError, statement: str) -> bool:
        """Add an error; return False if there is one at its place."""
        if (error.line, error.column) in obstacles:
            return False
        place = f"line {error.line}, column {error.column}: "
        message = str(error).split("\n")[0].removeprefix(place)
        excerpt = point_at(text, _offset_of(text, error), "")[0].partition("\n")[2]
        is_supported = not isinstance(error, UnsupportedSqlError)
        obstacles[error.line, error.column] = Obstacle(
            statement, error.line, error.column, message, excerpt, is_supported
        )
        return True

    source = SqlSource(text, dialect)
    try:
        tokens = source.tokenize()
    except SqlError as error:
        report(error, "statement 1")
        return list(obstacles.values())
    statements, recursive_views = _parse_statements(text, tokens, dialect, name, report)
    if not statements and not obstacles:
        report(source.error_at(0, "the text has no statement; write a SELECT"), "statement 1")
    planner = StatementPlanner(relations, name, with_user_functions(READERS, functions, dialect))
    # The lower-case names of tables and views whose columns may be wrong, because of an error.
    for fault in expand_functions([(s.source, s.tree) for s in statements], planner.readers):
        report(fault, "the functions")
    _replace_calls(statements, set(map(str.casefold, _DECLARED_FUNCTION.findall(text))))
    unreliable = _declare(planner, statements, report)
    trees = [statement.tree for statement in statements]
    for numbers in order_statements(recursive_views, trees):
        component = [statements[number] for number in numbers]
        for statement in component:
            tables = {table.name.casefold() for table in statement.tree.find_all(exp.Table)}
            statement.is_unreliable |= bool(tables & unreliable)
            statement.may_mislead |= statement.is_unreliable
        if not all(statement.is_readable for statement in component):
            is_planned = False
        elif len(component) > 1 or names_itself(component[0].source, component[0].tree):
            is_planned = _plan_cycle(planner, component, report)
        else:
            is_last = numbers[0] + 1 == len(trees)
            is_planned = _plan(planner, component[0], report, unreliable, is_last=is_last)
        if not is_planned or any(statement.may_mislead for statement in component):
            unreliable.update(statement.name.casefold() for statement in component)
    if not obstacles and not planner.plans:
        report(source.error_at(0, "the text has no view; add a SELECT or a CREATE VIEW"), name)
    return sorted(obstacles.values(), key=lambda obstacle: (obstacle.line, obstacle.column))


def _parse_statements(
    text: str, tokens: list[Token], dialect: str, name: str, report: Report
) -> tuple[list[_Statement], set[str]]:
    """Return the statements that can be parsed and the names of the recursive views.

    The errors of the other statements are reported.
    """
    statements = []
    # All sources share them, because DECLARE RECURSIVE VIEW is a statement of its own.
    recursive_views: set[str] = set()
    types: dict[str, str] = {}
    for number, part in enumerate(_split(text, tokens)):
        try:
            source = SqlSource(part, dialect)
            source.types = types
            for tree in source.parse():
                statements.append(_Statement(source, tree, _name_of(tree, number, name)))
            recursive_views |= source.recursive_views
            source.recursive_views = recursive_views
        except SqlError as error:
            report(error, f"statement {number + 1}")
    return statements, recursive_views


def _split(text: str, tokens: list[Token]) -> Iterator[str]:
    """Return each statement, after as many lines and blanks as there are before it."""
    start = None
    for token in [*tokens, None]:
        if token is not None and token.token_type != TokenType.SEMICOLON:
            start = token.start if start is None else start
            end = token.end + 1
        elif start is not None:
            column = start - (text.rfind("\n", 0, start) + 1)
            yield "\n" * text.count("\n", 0, start) + " " * column + text[start:end]
            start = None


def _name_of(tree: exp.Expr, number: int, name: str) -> str:
    """Return the view, table or sink that a statement makes."""
    if isinstance(tree, exp.Create | exp.Insert):
        table = tree.this.find(exp.Table)
        return table.name if table is not None else f"statement {number + 1}"
    return name if isinstance(tree, exp.Query) else f"statement {number + 1}"


def _declare(planner: StatementPlanner, statements: list[_Statement], report: Report) -> set[str]:
    """Add the tables that the statements declare; return those whose columns are not all known."""
    unreliable: set[str] = set()
    readable = []
    for statement in statements:
        if is_function(statement.tree):
            continue
        for _ in range(MAX_OBSTACLES_PER_STATEMENT):
            try:
                statement.source.forget_reads()
                alone = StatementPlanner({}, planner.name, planner.readers)
                alone.declare([(statement.source, statement.tree)])
                readable.append((statement.source, statement.tree))
                break
            except SqlError as error:
                report(error, statement.name)
                unreliable.add(statement.name.casefold())
                if not _replace_part(statement, error):
                    break
    try:
        planner.declare(readable)
    except SqlError as error:
        report(error, "the tables")
        unreliable.update(statement.name.casefold() for statement in statements)
    return unreliable


def _replace_calls(statements: Iterable[_Statement], functions: Set[str]) -> None:
    """Replace the remaining calls of declared functions, whose errors are reported already."""
    for statement in statements:
        for call in list(statement.tree.find_all(exp.Anonymous)):
            if call.name.casefold() not in functions:
                continue
            statement.may_mislead = statement.is_unreliable = True
            if isinstance(call.parent, exp.Table | exp.Lateral):
                statement.is_readable = False
            else:
                call.replace(exp.null())


def _plan_cycle(planner: StatementPlanner, statements: list[_Statement], report: Report) -> bool:
    """Plan views that name each other, and report the first obstacle; return True without one."""
    try:
        planner.plan_cycle(statements[0].source, [statement.tree for statement in statements])
    except SqlError as error:
        report(error, statements[0].name)
        return False
    return True


def _plan(
    planner: StatementPlanner,
    statement: _Statement,
    report: Report,
    unreliable: Set[str],
    *,
    is_last: bool,
) -> bool:
    """Plan a statement, and report its obstacles; return whether it has a plan.

    Args:
        planner: Plans it.
        statement: The statement.
        report: Receives the obstacles.
        unreliable: The views with an obstacle; that they have no plan is no further one.
        is_last: True for the last statement of the text.
    """
    for _ in range(MAX_OBSTACLES_PER_STATEMENT):
        try:
            statement.source.forget_reads()
            # The source has only this statement, so its number is 0.
            planner.plan(statement.source, statement.tree, 0, is_last=is_last)
            return True
        except SqlError as error:
            # No replacement causes these errors.
            is_genuine = isinstance(error, UnsupportedSqlError) or ": unknown " in str(error)
            table = _UNKNOWN_TABLE.search(str(error))
            if table is not None and table[1].casefold() in unreliable:
                return False
            if is_genuine or not _may_be_effect(statement, error):
                report(error, statement.name)
            if not _replace_part(statement, error):
                return False
        except RecursionError:
            message = "the text is nested too deeply; put parts of it in views"
            report(statement.source.error(statement.tree, message), statement.name)
            return False
    return False


def _may_be_effect(statement: _Statement, error: SqlError) -> bool:
    """Return whether an error may be the effect of a replacement.

    It is not if it is in another part of the same SELECT as all replacements, and this part neither
    names a replaced item nor has a subquery.
    """
    if not statement.may_mislead or statement.is_unreliable:
        return statement.may_mislead
    part = _part_at(statement, _offset_of(statement.source.text, error))
    if part is None:
        return True
    replacements = statement.replacements
    names = {node.alias.casefold() for node in replacements if isinstance(node, exp.Alias)}
    select = part.find_ancestor(exp.Select)
    return (
        any(node.find_ancestor(exp.Select) is not select for node in replacements)
        or part.find(exp.Query) is not None
        or any(column.name.casefold() in names for column in part.find_all(exp.Column))
    )


def _replace_part(statement: _Statement, error: SqlError) -> bool:
    """Replace the smallest part at or beside an error; return False if there is none."""
    node = _part_at(statement, _offset_of(statement.source.text, error))
    if node is None:
        return False
    parent = node.parent
    statement.may_mislead = True
    if isinstance(parent, exp.Select):
        null = exp.alias_(exp.null(), node.alias_or_name or "column", quoted=True)
        null.meta[IS_REPLACEMENT] = True
        node.replace(null)
        statement.replacements.append(null)
    elif isinstance(parent, exp.Order | exp.Schema | exp.Properties):
        statement.is_unreliable = True
        node.pop()
        if not parent.expressions:
            parent.pop()
    else:
        true = exp.true()
        true.meta[IS_REPLACEMENT] = True
        node.replace(true)
        statement.replacements.append(true)
    return True


def _part_at(statement: _Statement, offset: int) -> exp.Expr | None:
    """Return the smallest part that can be replaced at or beside an offset; None without one."""
    parts = [
        _Part(*extent, node)
        for node in statement.tree.walk()
        if _is_replaceable(node) and (extent := _extent(node)) is not None
    ]
    enclosing = min(
        (part for part in parts if part.first <= offset <= part.last),
        key=lambda part: part.last - part.first,
        default=None,
    )
    after = min(
        (part for part in parts if part.first > offset),
        key=lambda part: (part.first, -part.last),
        default=None,
    )
    before = max(
        (part for part in parts if part.last < offset), key=lambda part: part.last, default=None
    )
    source = statement.source
    chosen = enclosing
    is_inside = after is not None and (enclosing is None or after.last <= enclosing.last)
    if after is not None and is_inside and not _has_boundary(source, offset, after.first):
        chosen = after  # the error is at a word before the part, such as EXISTS
    if chosen is None and before is not None and not _has_boundary(source, before.last + 1, offset):
        chosen = before  # the error is at a word after the part, such as the type of a column
    return None if chosen is None else chosen.node


# The first words of the clauses that can follow the place of an error.
CLAUSE_STARTS: Final = frozenset(
    {
        *(TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY),
        *(TokenType.HAVING, TokenType.ORDER_BY, TokenType.JOIN, TokenType.ON, TokenType.COMMA),
        *(TokenType.QUALIFY, TokenType.LIMIT, TokenType.UNION, TokenType.AND),
    }
)


def _offset_of(text: str, error: SqlError) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1


def _has_boundary(source: SqlSource, start: int, end: int) -> bool:
    """Return whether a clause or an item begins between two offsets."""
    return any(
        start <= token.start < end and token.token_type in CLAUSE_STARTS for token in source.tokens
    )


def _is_replaceable(node: exp.Expr) -> bool:
    """Return whether a node is one of the parts in the table at the start of this module."""
    parent: exp.Expr | None = node.parent
    key = node.arg_key
    if IS_REPLACEMENT in node.meta or parent is None:
        return False
    if isinstance(parent, exp.Select):
        return key == "expressions" and not node.is_star
    if isinstance(parent, exp.Schema | exp.Properties):
        return key == "expressions" and isinstance(parent.find_ancestor(exp.Create), exp.Create)
    if isinstance(parent, exp.Order):
        return key == "expressions"
    if isinstance(node, exp.And):
        return False
    while isinstance(parent, exp.And | exp.Paren):
        key, parent = parent.arg_key, parent.parent
    if isinstance(parent, exp.Join):
        return key == "on" and not parent.side
    return isinstance(parent, exp.Where | exp.Having | exp.Qualify)


def _extent(node: exp.Expr) -> tuple[int, int] | None:
    """Return the first and the last offset of the words of a tree; None if sqlglot kept none."""
    positions = [part.meta for part in node.walk() if part.meta.get("start") is not None]
    if not positions:
        return None
    return min(meta["start"] for meta in positions), max(meta["end"] for meta in positions)
