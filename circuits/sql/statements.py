"""The statements of a text: tables, views and inserts in order.

A view can name the tables of the text and the views before it. An ``INSERT INTO sink SELECT`` is a
view with the name of the sink; if the text declares the sink, the view has the columns of the
declaration, and its values are cast to their types. `circuits.sql.declarations` reads CREATE TABLE.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from circuits.plan.expressions import Column, Expression
from circuits.plan.nodes import Field, Map, PlanNode, Scan
from circuits.plan.window_close import WindowClose
from circuits.sql.binding.clause import REFUSE_COLUMN, ReaderTable
from circuits.sql.binding.environment import Environment, rename_columns, table_names
from circuits.sql.binding.select_builder import QueryReader
from circuits.sql.computed_columns import with_computed_columns, with_normal_jsonb
from circuits.sql.declarations import (
    WEIGHT_COLUMN,
    Declarations,
    TableDeclaration,
    inserted_table,
    read_declarations,
    view_properties,
)
from circuits.sql.expressions.casts import cast_by_dialect
from circuits.sql.expressions.readers import READERS
from circuits.sql.expressions.user_functions import with_user_functions
from circuits.sql.queries import query
from circuits.sql.queries.equations import Equation, order_by_needs, plan_equations
from circuits.sql.sql_functions import check_parameters, expand_functions, is_function
from circuits.sql.syntax.parsing import EMIT_ON_CLOSE
from circuits.sql.syntax.source import SqlSource
from circuits.user_functions import UserFunction

__all__ = [
    "StatementPlanner",
    "add_window_close",
    "computed_tables",
    "declared_by",
    "names_itself",
    "order_statements",
    "plan_sql",
    "split_statements",
]

NO_FUNCTIONS: Final[Mapping[str, UserFunction]] = {}
NO_TABLES: Final[Mapping[str, PlanNode]] = {}
# Advice for a statement that is not supported, by its first word.
ADVICE: Final = {
    "SET": "pass options to compile_sql, or leave it out",
    "DROP": "leave it out: a text has the views that it creates",
    "ALTER": "change the CREATE statement",
    "DELETE": "pass rows with a negative weight",
    "UPDATE": "pass the old row with weight -1 and the new one",
}


# Without these words, a text has queries only.
_DECLARING_WORDS: Final = frozenset({"CREATE", "DECLARE", "INSERT"})


class _View(NamedTuple):
    name: str
    plan: PlanNode


def declared_by(text: str | SqlSource, dialect: str = "duckdb") -> Declarations:
    """Return what a text declares besides its views: inputs, sinks, temporary views.

    A text of queries only is not parsed.

    Args:
        text: The statements; an `SqlSource` is parsed only once by this function and `plan_sql`.
        dialect: The dialect of a text.

    Raises:
        SqlError, UnsupportedSqlError: As `plan_sql`, if the text declares something.

    >>> declared_by("CREATE TABLE e (src BIGINT NOT NULL, dst BIGINT); SELECT src FROM e").inputs
    {'e': TableDeclaration(name='e', fields=(Field(name='src', type=DataType(int64), \
nullable=False), Field(name='dst', type=DataType(int64), nullable=True)), keys=(), lateness=None, \
computed=())}
    """
    source = text if isinstance(text, SqlSource) else SqlSource(text, dialect)
    words = (word for token in source.tokenize() for word in token.text.upper().split())
    if _DECLARING_WORDS.isdisjoint(words):
        return Declarations()
    return read_declarations((source, tree) for tree in source.parse())


def computed_tables(
    text: str,
    relations: Mapping[str, tuple[Field, ...]],
    *,
    dialect: str = "duckdb",
    functions: Mapping[str, UserFunction] = NO_FUNCTIONS,
) -> dict[str, PlanNode]:
    """Return the plans of the tables of a text that have computed columns, by name.

    The arguments are those of `plan_sql`.

    Raises:
        SqlError, UnsupportedSqlError: As `plan_sql`.

    >>> tables = computed_tables("CREATE TABLE t (a INT, b AS a + 1); SELECT b FROM t", {})
    >>> [field.name for field in tables["t"].fields]
    ['a', 'b']
    """
    source = SqlSource(text, dialect)
    readers = with_user_functions(READERS, functions, dialect)
    planner = StatementPlanner(relations, readers=readers)
    planner.declare([(source, tree) for tree in source.parse()])
    return {name: plan for name, plan in planner.scans.items() if not isinstance(plan, Scan)}


def add_window_close(
    text: str, views: bool | Collection[str], *, name: str = "view", dialect: str = "duckdb"
) -> str:
    """Return a text with EMIT ON WINDOW CLOSE at the end of views that do not have it yet.

    Args:
        text: The statements.
        views: The names of the views; True for all that are not temporary, False for none.
        name: The name of the view of a plain SELECT.
        dialect: The dialect of the text.

    Raises:
        SqlError: The text is not valid SQL, or has no view of a name.

    >>> add_window_close("CREATE VIEW v AS SELECT 1; SELECT 2 -- two", ["view"])
    'CREATE VIEW v AS SELECT 1; SELECT 2\\nEMIT ON WINDOW CLOSE -- two'
    """
    if views is False:
        return text
    source = SqlSource(text, dialect)
    trees = source.parse()
    declarations = read_declarations((source, tree) for tree in trees)
    temporary_views = {view.casefold() for view in declarations.temporary_views}
    names_as_written = None if views is True else {view.casefold(): view for view in views}
    ends: list[int] = []
    known_views: set[str] = set()
    for tree, end in zip(trees, _statement_ends(source), strict=True):
        is_query = isinstance(tree, exp.Query | exp.Values | exp.Pivot)
        view = name.casefold() if is_query else _view_name(tree)
        known_views.add(view)
        is_wanted = (
            view not in temporary_views if names_as_written is None else view in names_as_written
        )
        if view and is_wanted and _emit_offset(tree) is None:
            ends.append(end)
    for view, name_as_written in (names_as_written or {}).items():
        if view not in known_views:
            known = ", ".join(sorted(filter(None, known_views))) or "none"
            raise source.error_at(
                0,
                f"emit_on_window_close names {name_as_written!r}; the text has the views: {known}",
            )
    for end in reversed(ends):
        text = f"{text[:end]}\nEMIT ON WINDOW CLOSE{text[end:]}"
    return text


def split_statements(text: str, dialect: str = "duckdb") -> list[str]:
    """Return the statements of a text, without the semicolons between them.

    Raises:
        SqlError: The text has a character or a quote that is not valid SQL.

    >>> split_statements("SELECT ';' AS a; -- one\\nSELECT 2;")
    ["SELECT ';' AS a", 'SELECT 2']
    """
    source = SqlSource(text, dialect)
    tokens = source.tokenize()
    statements = []
    start: int | None = None
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            start, end = token.start if start is None else start, token.end + 1
        elif start is not None:
            statements.append(text[start:end])
            start = None
    return statements if start is None else [*statements, text[start:end]]


def _statement_ends(source: SqlSource) -> list[int]:
    """Return the offset after the last token of each statement of a text that was parsed."""
    ends: list[int] = []
    previous: Token | None = None
    for token in source.tokens:
        is_end = token.token_type == TokenType.SEMICOLON
        if is_end and previous is not None:
            ends.append(previous.end + 1)
        previous = None if is_end else token
    return ends if previous is None else [*ends, previous.end + 1]


def plan_sql(
    text: str | SqlSource,
    relations: Mapping[str, tuple[Field, ...]],
    *,
    name: str = "view",
    dialect: str = "duckdb",
    allow_declarations: bool = True,
    functions: Mapping[str, UserFunction] = NO_FUNCTIONS,
    tables: Mapping[str, PlanNode] = NO_TABLES,
    keep_order: bool = False,
    needs_view: bool = True,
) -> dict[str, PlanNode]:
    """Return the plans of the views that a text defines, in order.

    Args:
        text: One SELECT, or any number of ``CREATE TABLE``, ``CREATE VIEW v AS SELECT ...`` and
            ``INSERT INTO v SELECT ...`` and then perhaps a SELECT. A view can name other
            views and all tables. An `SqlSource` can be planned only once.
        relations: The columns of each relation that the text can name, besides those that it
            declares. A relation that is also declared has the columns of the declaration.
        name: The name of the view of a plain SELECT.
        dialect: The dialect of sqlglot to read the text in.
        allow_declarations: False if CREATE TABLE is an error.
        functions: The user-defined functions by lower-case name. Their calls are expressions of
            the plans; `circuits.plan.user_call_placement` makes nodes of them.
        tables: The plans of relations with computed columns, as `computed_tables` returns them.
        keep_order: True if the ORDER BY of the last statement, a SELECT, becomes a `TopK` without
            a limit. False if it is checked and dropped, because a view has no order.
        needs_view: False if a text of tables only is accepted.

    Raises:
        SqlError: The text is not valid SQL, or a name is unknown; the error has line and column.
        UnsupportedSqlError: A construct is valid SQL, but not supported.
        FunctionError: A user-defined function has the name of a built-in one.

    Complexity:
        O(len(text)), except for comparisons of subexpressions by GROUP BY and ORDER BY.

    >>> import pyarrow as pa
    >>> e = (Field("src", pa.int64()), Field("dst", pa.int64()))
    >>> plans = plan_sql("SELECT x.src FROM e x JOIN e y ON x.dst = y.src", {"e": e}, name="two")
    >>> print(plans["two"].input.predicate, plans["two"].names)
    eq(#1, #2) ('src',)
    >>> plan_sql("SELECT src FROM e WHERE dts > 3", {"e": e})
    Traceback (most recent call last):
    ...
    circuits.errors.SqlError: line 1, column 25: unknown column 'dts'; in FROM: e.src, e.dst
      SELECT src FROM e WHERE dts > 3
                              ^
    """
    source = text if isinstance(text, SqlSource) else SqlSource(text, dialect)
    dialect = source.dialect
    try:
        trees = source.parse()
        if not trees and not source.types:
            raise source.error_at(0, "the text has no statement; write a SELECT")
        if keep_order and trees:
            _keep_order(trees[-1])
        readers = with_user_functions(READERS, functions, dialect)
        planner = StatementPlanner(relations, name, readers, tables)
        planner.declare([(source, tree) for tree in trees])
        for table in planner.declarations.inputs:
            if not allow_declarations:
                raise source.error_at(0, f"a query cannot declare table {table!r}; drop it")
        for numbers in order_statements(source.recursive_views, trees):
            if len(numbers) > 1 or names_itself(source, trees[numbers[0]]):
                planner.plan_cycle(source, [trees[number] for number in numbers])
                continue
            (number,) = numbers
            planner.plan(source, trees[number], number, is_last=number + 1 == len(trees))
        if needs_view and not planner.plans:
            raise source.error_at(0, "the text has no view; add a SELECT or a CREATE VIEW")
    except RecursionError:
        raise source.error_at(
            0, "the text is nested too deeply; put parts of it in views"
        ) from None
    return planner.plans


def _keep_order(query: exp.Expr) -> None:
    """Add LIMIT ALL to a query with ORDER BY and without LIMIT, so that it becomes a `TopK`."""
    if query.args.get("order") and not query.args.get("limit"):
        query.set("limit", exp.Limit(expression=exp.var("ALL")))


@dataclass
class StatementPlanner:
    """Plans statements one after another; a view is a relation for the statements after it.

    Args:
        relations: The columns of the relations that are given.
        name: The name of the view of a plain SELECT.
        readers: The readers of expressions.
        tables: The plans of given relations with computed columns.

    Attributes:
        plans: The plans of the views so far.
        scans: The plans of the relations that a statement can name.
        declarations: The tables of the text.
    """

    relations: Mapping[str, tuple[Field, ...]]
    name: str = "view"
    readers: ReaderTable = READERS
    tables: Mapping[str, PlanNode] = field(default_factory=dict)
    plans: dict[str, PlanNode] = field(default_factory=dict, init=False)
    scans: dict[str, PlanNode] = field(default_factory=dict, init=False)
    declarations: Declarations = field(default_factory=Declarations, init=False)

    def __post_init__(self) -> None:
        self.scans = {
            name: self.tables.get(name) or Scan(name, fields)
            for name, fields in self.relations.items()
        }

    def _environment(self, source: SqlSource) -> Environment:
        query_reader: QueryReader = query  # the module has the functions of this interface
        return Environment(source, self.scans, query_reader, self.readers, views=self.plans)

    def declare(self, statements: list[tuple[SqlSource, exp.Expr]]) -> None:
        """Add the tables that the statements declare, and replace calls of declared functions.

        Raises:
            SqlError: A function or a table is not valid, or a table differs from a relation that is
                given.
        """
        for error in expand_functions(statements, self.readers):
            raise error
        self.declarations = read_declarations(statements)
        create_statements = {
            tree.this.this.name: (source, tree)
            for source, tree in reversed(statements)
            if isinstance(tree, exp.Create) and tree.kind == "TABLE"
        }
        for name, table in self.declarations.tables.items():
            self._add_table(*create_statements[name], table)

    def _add_table(self, source: SqlSource, tree: exp.Create, table: TableDeclaration) -> None:
        is_sink = table.name.casefold() in self.declarations.sinks
        for name, scan in self.scans.items():
            if name.casefold() == table.name.casefold():
                if is_sink:
                    raise source.error(
                        tree.this, f"table {name!r} is an input and a target of INSERT INTO"
                    )
                _check_same_columns(source, tree, scan, table)
                self.scans[name] = self._with_computed_columns(source, name, table)
                return
        if not is_sink:
            self.scans[table.name] = self._with_computed_columns(source, table.name, table)

    def _with_computed_columns(
        self, source: SqlSource, name: str, table: TableDeclaration
    ) -> PlanNode:
        """Return the plan of a table, which is an input or a sink."""
        scan = Scan(name, table.fields)
        if not table.computed:
            return with_normal_jsonb(scan)
        is_input = table.name.casefold() not in self.declarations.sinks
        event_time = table.lateness[0] if table.lateness is not None and is_input else None
        environment = self._environment(source)
        rows = with_computed_columns(environment, name, scan, table.computed, event_time)
        return with_normal_jsonb(rows)

    def plan(self, source: SqlSource, tree: exp.Expr, number: int, *, is_last: bool) -> None:
        """Plan a statement and add its view.

        Args:
            source: The text.
            tree: The statement.
            number: Its position among the statements, from 0.
            is_last: True if no statement follows.

        Raises:
            SqlError, UnsupportedSqlError: As `plan_sql`.
        """
        if isinstance(tree, exp.Comment) or (isinstance(tree, exp.Create) and tree.kind == "TABLE"):
            return  # a declaration
        if is_function(tree):
            return
        check_parameters(source, tree, self.scans)
        environment = self._environment(source)
        view = _plan_statement(environment, self.declarations, tree, self.name, number)
        emit = _emit_offset(tree)
        if emit is not None:
            view = view._replace(plan=WindowClose(view.plan, f"{source.place(emit)}: "))
        source.check_all_read(tree)
        if not isinstance(tree, exp.Create | exp.Insert) and not is_last:
            raise source.error(tree, "a SELECT before other statements; make it a CREATE VIEW")
        _check_name(source, tree, view.name, self.scans)
        _check_columns(source, tree, view)
        self.plans[view.name] = view.plan
        self.scans[view.name] = Scan(view.name, view.plan.fields)
        sink = self.declarations.tables.get(view.name)
        if isinstance(tree, exp.Insert) and sink is not None:
            self.scans[view.name] = self._with_computed_columns(source, view.name, sink)

    def plan_cycle(self, source: SqlSource, trees: list[exp.Expr]) -> None:
        """Plan recursive views, and add them."""
        environment = self._environment(source)
        for tree in trees:
            check_parameters(source, tree, self.scans)
            emit = _emit_offset(tree)
            if emit is not None:
                raise source.unsupported_at(
                    emit,
                    "EMIT ON WINDOW CLOSE of a recursive view",
                    "write it in a view that reads the recursive one",
                )
        for tree, view in zip(trees, _plan_cycle(environment, trees), strict=True):
            source.check_all_read(tree)
            _check_name(source, tree, view.name, self.scans)
            _check_columns(source, tree, view)
            self.plans[view.name] = view.plan
            self.scans[view.name] = Scan(view.name, view.plan.fields)


def _emit_offset(tree: exp.Expr) -> int | None:
    """Return where a statement has EMIT ON WINDOW CLOSE; None if it has none."""
    body = tree.expression if isinstance(tree, exp.Create | exp.Insert) else tree
    offset: int | None = body.meta.get(EMIT_ON_CLOSE)
    return offset


def _view_name(tree: exp.Expr) -> str:
    """Return the lower-case name of the view that a statement creates; empty for others."""
    if not isinstance(tree, exp.Create | exp.Insert) or tree.expression is None:
        return ""
    if isinstance(tree, exp.Create) and tree.kind != "VIEW":
        return ""
    table = tree.this.find(exp.Table)
    return table.name.casefold() if table is not None else ""


def order_statements(
    recursive_views: Collection[str], trees: Sequence[exp.Expr]
) -> list[tuple[int, ...]]:
    """Return the numbers of the statements, each after the views that it names.

    Views that name each other are together in one tuple.

    Args:
        recursive_views: The views that may name themselves.
        trees: The statements.
    """
    # By the name of the view. A statement without a view, or with a second view of a name, has its
    # number as its name.
    numbers: dict[str, int] = {}
    for number, tree in enumerate(trees):
        name = _view_name(tree)
        numbers.setdefault(name if name and name not in numbers else f"#{number}", number)
    needs = {
        name: frozenset(
            other
            for other in _relations_read(trees[number]) & numbers.keys()
            if other != name or name in recursive_views
        )
        for name, number in numbers.items()
    }
    return [tuple(numbers[name] for name in names) for names in order_by_needs(needs)]


def _relations_read(tree: exp.Expr) -> set[str]:
    """Return the relations that the query of a statement names, in lower case."""
    return table_names(tree.expression if _view_name(tree) else tree)


def names_itself(source: SqlSource, tree: exp.Expr) -> bool:
    """Return whether a statement is a recursive view that names itself."""
    name = _view_name(tree)
    return name in source.recursive_views and name in _relations_read(tree)


def _plan_cycle(environment: Environment, trees: list[exp.Expr]) -> list[_View]:
    """Return the views of statements that name each other, or of one that names itself."""
    source = environment.source
    names = [_view_name(tree) for tree in trees]
    # In Feldera, only one view of a cycle is declared to be recursive.
    if not source.recursive_views.intersection(names):
        raise source.error(
            trees[0].this,
            f"the views {', '.join(map(repr, names))} name each other; write CREATE RECURSIVE "
            "VIEW to make them a recursion",
        )
    equations = []
    for tree in trees:
        target, column_names = _read_create_view(source, tree)
        equations.append(Equation(target.name, tree, tree.expression, column_names, environment))
    plans = plan_equations(equations)
    return [_View(equation.name, plan) for equation, plan in zip(equations, plans, strict=True)]


def _check_same_columns(
    source: SqlSource, tree: exp.Create, scan: PlanNode, table: TableDeclaration
) -> None:
    """Refuse a declaration that differs from the relation that the caller gives."""
    given_types = {column.name: column.type for column in scan.fields}
    declared_types = {column.name: column.type for column in table.fields}
    for name, type in declared_types.items():
        if given_types.get(name) != type:
            difference = (
                f"has type {given_types[name]}" if name in given_types else "does not exist"
            )
            raise source.error(
                tree.this,
                f"table {table.name!r} declares column {name!r} as {type}; it {difference} in the "
                "schema that is given; make both equal, or give one of them",
            )
    surplus = [name for name in given_types if name not in declared_types]
    if surplus:
        raise source.error(
            tree.this,
            f"table {table.name!r} does not declare column {surplus[0]!r} of the schema that is "
            "given; make both equal, or give one of them",
        )


def _plan_statement(
    environment: Environment, declarations: Declarations, tree: exp.Expr, name: str, number: int
) -> _View:
    source = environment.source
    if isinstance(tree, exp.Create):
        return _plan_create_view(environment, tree)
    if isinstance(tree, exp.Insert):
        return _plan_insert(environment, declarations, tree)
    if not isinstance(tree, exp.Query | exp.Values | exp.Pivot):
        tokens = source.statement_tokens(number)
        source.refuse_foreign_construct(tokens)
        offset, word = tokens[0].start, tokens[0].text.upper()
        advice = ADVICE.get(word, "write SELECT or CREATE VIEW")
        if isinstance(tree, exp.Command) and word == "CREATE":
            word = "this CREATE"
        raise source.unsupported_at(offset, word, advice)
    return _View(name, rename_columns(source, query.plan_query(environment, tree), []).plan)


def _plan_create_view(environment: Environment, tree: exp.Expr) -> _View:
    source = environment.source
    target, column_names = _read_create_view(source, tree)
    derived = query.plan_query(environment, tree.expression)
    return _View(target.name, rename_columns(source, derived, column_names).plan)


def _read_create_view(source: SqlSource, tree: exp.Expr) -> tuple[exp.Table, list[exp.Identifier]]:
    """Return the name of a view and the names of its columns, if they are given."""
    assert isinstance(tree, exp.Create)
    if tree.kind != "VIEW":
        raise source.unsupported(tree, f"CREATE {tree.kind}", "write CREATE VIEW", word="create")
    source.allow_arguments(tree, "this", "kind", "replace", "expression", "exists", "properties")
    view_properties(source, tree)
    target, column_names = tree.this, []
    if isinstance(target, exp.Schema):
        source.allow_arguments(target, "this", "expressions")
        target, column_names = target.this, target.expressions
    names = [_read_column_name(source, part) for part in column_names]
    source.allow_arguments(target, "this")
    if tree.expression is None:
        raise source.error(target, "CREATE VIEW without AS SELECT; add it")
    return target, names


def _read_column_name(source: SqlSource, part: exp.Expr) -> exp.Identifier:
    """Return the name in the column list of a view; a comment after it has no effect."""
    if isinstance(part, exp.ColumnDef) and part.kind is None:
        kinds = [constraint.kind for constraint in part.args.get("constraints") or []]
        if all(isinstance(kind, exp.CommentColumnConstraint) for kind in kinds):
            source.mark_read(part)
            part = part.this
    if not isinstance(part, exp.Identifier):
        raise source.unsupported(part, "a column definition in CREATE VIEW", "give names only")
    return part


def _plan_insert(environment: Environment, declarations: Declarations, tree: exp.Insert) -> _View:
    source = environment.source
    target, column_names = inserted_table(source, tree)
    if not isinstance(tree.expression, exp.Query):
        raise source.unsupported(
            tree.expression or target, "INSERT without SELECT", "pass the rows in a step", "insert"
        )
    source.allow_arguments(tree, "this", "expression")
    derived = query.plan_query(environment, tree.expression)
    for table in declarations.tables.values():
        if table.name.casefold() == target.name.casefold():
            plan = _cast_to_sink(environment, tree, derived.plan, table, column_names)
            return _View(table.name, plan)
    return _View(target.name, rename_columns(source, derived, column_names).plan)


def _cast_to_sink(
    environment: Environment,
    tree: exp.Insert,
    plan: PlanNode,
    table: TableDeclaration,
    column_names: list[exp.Identifier],
) -> PlanNode:
    """Return the plan with the columns of the declared sink, in its order and of its types."""
    source = environment.source
    declared_names = [column.name.casefold() for column in table.fields]
    inserted_names = [name.name.casefold() for name in column_names] or declared_names
    fields = plan.fields
    if sorted(inserted_names) != sorted(declared_names) or len(fields) != len(declared_names):
        raise source.error(
            tree.expression,
            f"INSERT INTO {table.name!r} has {len(fields)} values for {len(inserted_names)} "
            f"columns, and the table has {len(declared_names)}: "
            f"{', '.join(c.name for c in table.fields)}; give each column one value",
        )
    values: list[Expression] = []
    clause = environment.clause("INSERT", REFUSE_COLUMN)
    for column, name in zip(table.fields, declared_names, strict=True):
        position = inserted_names.index(name)
        value: Expression = Column(position, fields[position].type)
        if value.type != column.type:
            value = cast_by_dialect(clause, tree.expression, value, column.type, lenient=False)
        values.append(value)
    return Map(plan, tuple(values), tuple(column.name for column in table.fields))


def _check_name(
    source: SqlSource, tree: exp.Expr, name: str, scans: Mapping[str, PlanNode]
) -> None:
    if any(relation.casefold() == name.casefold() for relation in scans):
        fault = f"view {name!r} has the name of an existing relation or view; choose another"
        if isinstance(tree, exp.Insert):
            fault = (
                f"{name!r} is already an input or a view; insert into another name, and write "
                "several queries for one sink with UNION ALL"
            )
        raise source.error(tree.this if isinstance(tree, exp.Create | exp.Insert) else tree, fault)


def _check_columns(source: SqlSource, tree: exp.Expr, view: _View) -> None:
    """Refuse a column with the name of the column of the weights."""
    select = tree.expression if isinstance(tree, exp.Create | exp.Insert) else tree
    items = {item.alias_or_name.casefold(): item for item in select.expressions}
    for column in view.plan.fields:
        if column.name.casefold() == WEIGHT_COLUMN:
            raise source.error(
                items.get(WEIGHT_COLUMN, select),
                f"column {column.name!r} of view {view.name!r} has the name of the weights; "
                "rename it",
            )
