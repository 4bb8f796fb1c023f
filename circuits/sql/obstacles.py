"""All obstacles of a text: not only the first error, but the errors of all statements.

Each statement is parsed and planned by itself. After an error inside a statement, the part that
has it is replaced, and the statement is planned again:

================================== ===============================================
an item of a SELECT list           becomes NULL, with the same name
a condition of WHERE, HAVING, ON   becomes TRUE
an item of ORDER BY or GROUP BY    is left out
a column or constraint of a table  is left out
TABLESAMPLE                        is left out
================================== ===============================================

An error elsewhere, such as in LIMIT, ends the search in its statement. A call of a function that
the text declares, with an error in the declaration, becomes NULL; a statement that reads such a
function in FROM is not planned. After a replacement, an
error may be the effect of it. So from then on, in this statement and in those that read its view,
only unsupported constructs and unknown names are reported; and the errors in other parts of the
same SELECT that do not name the item.

A statement can read a relation whose columns are unknown: it does not exist, or its own statement
has no plan. Then the relation gets the columns that the statement names, once with each of a few
types. Unknown tables and functions are reported, and the constructs that are refused with each of
these types.

Invariant: a text has no obstacle if and only if `circuits.sql.plan_sql` plans it; the first
obstacle of a text is the error that it raises, if no statement has an error of syntax.

Cost: one plan of the statement for each obstacle, at most `MAX_OBSTACLES_PER_STATEMENT`; with
unknown columns, one for each obstacle and type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from circuits.errors import SqlError, UnsupportedSqlError
from circuits.plan.nodes import Field, PlanNode, Scan
from circuits.sql.binding.environment import table_names
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
# The start of a statement that makes a relation; group 1 is its name.
_CREATED_RELATION: Final = re.compile(
    r"\s*(?:CREATE\s+(?:\w+\s+){0,4}?(?:TABLE|VIEW)|INSERT\s+INTO)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?[`\"]?(\w+)",
    re.IGNORECASE,
)
_UNKNOWN_FUNCTION: Final = re.compile(r": function \S+ is not supported;")
# A column of an unknown type has each of these in turn.
_STAND_IN_TYPES: Final = (pa.int64(), pa.string(), pa.timestamp("us"))
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
        is_fault_of_text: True if the text is wrong, False if the engine lacks the construct.
    """

    statement: str
    line: int
    column: int
    message: str
    excerpt: str
    is_fault_of_text: bool


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
        is_fault_of_text = not isinstance(error, UnsupportedSqlError)
        obstacles[error.line, error.column] = Obstacle(
            statement, error.line, error.column, message, excerpt, is_fault_of_text
        )
        return True

    source = SqlSource(text, dialect)
    try:
        tokens = source.tokenize()
    except SqlError as error:
        report(error, "statement 1")
        return list(obstacles.values())
    statements, recursive_views, incomplete = _parse_statements(text, tokens, dialect, name, report)
    if not statements and not obstacles:
        report(source.error_at(0, "the text has no statement; write a SELECT"), "statement 1")
    planner = StatementPlanner(relations, name, with_user_functions(READERS, functions, dialect))
    for fault in expand_functions([(s.source, s.tree) for s in statements], planner.readers):
        report(fault, "the functions")
    _replace_calls(statements, set(map(str.casefold, _DECLARED_FUNCTION.findall(text))))
    # The lower-case names of tables and views of which not all columns are known, because of an
    # error; and of those whose columns may be wrong.
    incomplete |= _declare(planner, statements, report)
    unreliable = set(incomplete)
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
            is_planned = _plan_cycle(planner, component, report, incomplete)
        else:
            is_last = numbers[0] + 1 == len(trees)
            is_planned = _plan(planner, component[0], report, incomplete, is_last=is_last)
        names = {statement.name.casefold() for statement in component}
        if not is_planned:
            incomplete |= names
        if not is_planned or any(statement.may_mislead for statement in component):
            unreliable |= names
    if not obstacles and not planner.plans:
        report(source.error_at(0, "the text has no view; add a SELECT or a CREATE VIEW"), name)
    return sorted(obstacles.values(), key=lambda obstacle: (obstacle.line, obstacle.column))


def _parse_statements(
    text: str, tokens: list[Token], dialect: str, name: str, report: Report
) -> tuple[list[_Statement], set[str], set[str]]:
    """Return the statements that can be parsed, and the names of two kinds of relations.

    These are the recursive views, and what the other statements make.

    The errors of the other statements are reported.
    """
    statements = []
    # All sources share them, because DECLARE RECURSIVE VIEW is a statement of its own.
    recursive_views: set[str] = set()
    incomplete: set[str] = set()
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
            created = _CREATED_RELATION.match(part)
            if created is not None:
                incomplete.add(created[1].casefold())
    return statements, recursive_views, incomplete


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


def _plan_cycle(
    planner: StatementPlanner, statements: list[_Statement], report: Report, incomplete: Set[str]
) -> bool:
    """Plan views that name each other, and report the first obstacle; return True without one."""
    try:
        planner.plan_cycle(statements[0].source, [statement.tree for statement in statements])
    except SqlError as error:
        if _unknown_table(error) not in incomplete:
            report(error, statements[0].name)
        return False
    return True


def _plan(
    planner: StatementPlanner,
    statement: _Statement,
    report: Report,
    incomplete: Set[str],
    *,
    is_last: bool,
) -> bool:
    """Plan a statement, and report its obstacles; return whether it has a plan.

    Args:
        planner: Plans it.
        statement: The statement.
        report: Receives the obstacles.
        incomplete: The relations of which not all columns are known.
        is_last: True for the last statement of the text.
    """
    is_declaration = isinstance(statement.tree, exp.Create | exp.Insert)
    body = statement.tree.expression if is_declaration else statement.tree
    if body is not None and incomplete & table_names(body):
        _plan_with_stand_ins(planner, statement, report, incomplete, is_last=is_last)
        return False
    for _ in range(MAX_OBSTACLES_PER_STATEMENT):
        error = _try_to_plan(planner, statement, is_last=is_last)
        if error is None:
            return True
        table = _unknown_table(error)
        # No replacement causes these errors.
        is_genuine = isinstance(error, UnsupportedSqlError) or ": unknown " in str(error)
        if is_genuine or not _may_be_effect(planner, statement, error):
            report(error, statement.name)
        if table:
            _plan_with_stand_ins(planner, statement, report, {*incomplete, table}, is_last=is_last)
            return False
        if not _replace_part(statement, error):
            return False
    return False


def _try_to_plan(
    planner: StatementPlanner, statement: _Statement, *, is_last: bool
) -> SqlError | None:
    """Plan a statement; return its first error, or None without one."""
    try:
        statement.source.forget_reads()
        # The source has only this statement, so its number is 0.
        planner.plan(statement.source, statement.tree, 0, is_last=is_last)
    except SqlError as error:
        return error
    except RecursionError:
        message = "the text is nested too deeply; put parts of it in views"
        return statement.source.error(statement.tree, message)
    return None


def _plan_with_stand_ins(
    planner: StatementPlanner,
    statement: _Statement,
    report: Report,
    incomplete: Set[str],
    *,
    is_last: bool,
) -> None:
    """Report the obstacles of a statement that do not depend on the columns of some relations."""
    found: list[dict[str, SqlError]] = []
    for type in _STAND_IN_TYPES:
        # The next types find no other unknown tables.
        trial = replace(statement, tree=statement.tree.copy(), replacements=[])
        unknown = {*incomplete}
        errors: dict[str, SqlError] = {}
        for _ in range(MAX_OBSTACLES_PER_STATEMENT):
            stand_ins = StatementPlanner({}, planner.name, planner.readers)
            stand_ins.declarations = planner.declarations
            stand_ins.scans = _with_stand_ins(planner, trial.tree, unknown, type)
            error = _try_to_plan(stand_ins, trial, is_last=is_last)
            if error is None:
                break
            errors[str(error)] = error
            table = _unknown_table(error)
            if table and table not in unknown:
                unknown.add(table)
            elif not _replace_part(trial, error):
                break
        found.append(errors)
    for message, error in {key: error for errors in found for key, error in errors.items()}.items():
        is_refused = isinstance(error, UnsupportedSqlError)
        if (
            _unknown_table(error)
            or _UNKNOWN_FUNCTION.search(message)
            or (is_refused and all(message in errors for errors in found))
        ):
            report(error, statement.name)


def _with_stand_ins(
    planner: StatementPlanner, tree: exp.Expr, incomplete: Set[str], type: pa.DataType
) -> dict[str, PlanNode]:
    """Return the relations, where the incomplete ones have the columns that a statement names."""
    tables = list(tree.find_all(exp.Table))
    relations = {table.alias_or_name.casefold(): table.name.casefold() for table in tables}
    columns: dict[str, dict[str, str]] = {relation: {} for relation in relations.values()}
    for column in tree.find_all(exp.Column):
        relation = relations.get(column.table.casefold(), "")
        if not column.table:
            select = column.find_ancestor(exp.Select)
            # It is a column of a relation in the same SELECT, if it can be.
            near = [table for table in tables if table.find_ancestor(exp.Select) is select]
            names = [table.name.casefold() for table in near]
            if incomplete.isdisjoint(names):
                names = list(relations.values())
            if column.name.casefold() not in _columns_of(planner, names):
                relation = next((name for name in names if name in incomplete), "")
        if relation and not column.is_star:
            columns[relation].setdefault(column.name.casefold(), column.name)
    for join in tree.find_all(exp.Join):
        for name in join.args.get("using") or []:
            for relation_columns in columns.values():
                relation_columns.setdefault(name.name.casefold(), name.name)
    scans = {name.casefold(): (name, scan) for name, scan in planner.scans.items()}
    result = dict(planner.scans)
    for relation in incomplete & columns.keys():
        name, scan = scans.get(relation, (relation, None))
        fields = list(scan.fields) if scan is not None else []
        given = {column.name.casefold() for column in fields}
        fields += [
            Field(column, type) for key, column in columns[relation].items() if key not in given
        ]
        result[name] = Scan(name, tuple(fields or [Field("column", type)]))
    return result


def _columns_of(planner: StatementPlanner, names: Collection[str]) -> set[str]:
    """Return the lower-case names of the known columns of relations."""
    return {
        column.name.casefold()
        for name, scan in planner.scans.items()
        if name.casefold() in names
        for column in scan.fields
    }


def _unknown_table(error: SqlError) -> str:
    """Return the table that an error says is unknown, in lower case; empty for other errors."""
    match = _UNKNOWN_TABLE.search(str(error))
    return match[1].casefold() if match is not None else ""


def _may_be_effect(planner: StatementPlanner, statement: _Statement, error: SqlError) -> bool:
    """Return whether an error may be the effect of a replacement.

    It is not if it is in another part of the same SELECT as all replacements, and this part neither
    names a replaced item nor has a subquery. A name in an item or condition is that of a column of
    FROM, if there is one, not that of an item.
    """
    if not statement.may_mislead or statement.is_unreliable:
        return statement.may_mislead
    part = _part_at(statement, _offset_of(statement.source.text, error))
    if part is None:
        return True
    replacements = statement.replacements
    names = {node.alias.casefold() for node in replacements if isinstance(node, exp.Alias)}
    select = part.find_ancestor(exp.Select)
    if isinstance(part.parent, exp.Select | exp.Where | exp.Join):
        names -= _columns_of(planner, table_names(statement.tree))
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
    if isinstance(node, exp.TableSample):
        node.pop()  # the columns remain, so no error is its effect
        return True
    statement.may_mislead = True
    if isinstance(parent, exp.Select):
        is_named = isinstance(node, exp.Alias | exp.Column)
        name = node.alias_or_name if is_named else statement.source.default_name(node)
        null = exp.alias_(exp.null(), name or "column", quoted=True)
        null.meta[IS_REPLACEMENT] = True
        node.replace(null)
        statement.replacements.append(null)
    elif isinstance(parent, exp.Group | exp.Order | exp.Schema | exp.Properties):
        statement.is_unreliable = True
        node.pop()
        if not any(parent.iter_expressions()):
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
    if isinstance(node, exp.TableSample):
        return True
    if isinstance(parent, exp.Select):
        return key == "expressions" and not node.is_star
    if isinstance(parent, exp.Schema | exp.Properties):
        return key == "expressions" and isinstance(parent.find_ancestor(exp.Create), exp.Create)
    if isinstance(parent, exp.Group | exp.Order):
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
