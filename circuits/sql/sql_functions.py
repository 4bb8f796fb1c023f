"""Functions with a body in SQL: CREATE FUNCTION ... RETURN and CREATE MACRO ... AS.

A call is replaced by the body with the arguments in place of the parameters, before a statement is
planned; a call in FROM by a subquery. So a function costs what its body costs::

    CREATE FUNCTION tax(x DECIMAL(9, 2)) RETURNS DECIMAL(9, 2) RETURN x * 0.2;
    tax(price)                              CAST(CAST(price AS DECIMAL(9, 2)) * 0.2 AS ...)

    CREATE FUNCTION tax(x NUMERIC) RETURNS NUMERIC LANGUAGE SQL AS $$ SELECT x * 0.2 $$;
    tax(price)                              CAST(CAST(price AS NUMERIC) * 0.2 AS NUMERIC)

    CREATE MACRO recent(d, n := 7) AS TABLE SELECT * FROM orders WHERE day > d - n;
    FROM recent(DATE '2026-01-31') r        FROM (SELECT * FROM orders WHERE day > ... - 7) r

A name in a body must have one meaning:

- A body without a subquery has no columns, only parameters.
- In a body with a subquery, a parameter must not have the name of a column of its tables. (Spark
  would read the column.)
- An argument of such a body must not have a column that could be one of its tables. (DuckDB would
  read the column of the table.) The name of another table before the column makes it unambiguous.

An error in a replaced call points to the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeGuard

from sqlglot import exp

from circuits.errors import SqlError
from circuits.plan.nodes import PlanNode
from circuits.sql.aggregation.grouping import has_aggregate
from circuits.sql.binding.aggregate_names import AGGREGATE_NAMES
from circuits.sql.binding.clause import ReaderTable
from circuits.sql.expressions.user_functions import is_unused_name
from circuits.sql.syntax.source import IN_FUNCTION, SqlSource

__all__ = ["check_parameters", "expand_functions", "is_function"]

#: The most nodes of the syntax tree that replaces a call.
MAX_NODES: Final = 10_000
# A key of ``meta`` of a statement: its calls of functions whose bodies read tables.
_CALLS: Final = "calls_of_functions"
_IGNORED_PROPERTIES: Final = (
    exp.TemporaryProperty,
    exp.StabilityProperty,
    exp.SchemaCommentProperty,
    exp.SqlReadWriteProperty,
    exp.ReturnsProperty,
)
_KINDS: Final = ("FUNCTION", "MACRO")


class _CallThatReads(NamedTuple):
    """A call of a function whose body reads tables, for `check_parameters`."""

    offset: int
    function: str
    parameters: frozenset[str]
    tables: frozenset[str]


@dataclass(frozen=True)
class _Parameter:
    name: str
    type: exp.DataType | None
    default: exp.Expr | None


@dataclass(frozen=True)
class _Signature:
    """One form of a function: its parameters, its body, and the columns of RETURNS TABLE."""

    parameters: tuple[_Parameter, ...]
    body: exp.Expr
    is_table: bool
    columns: tuple[exp.ColumnDef, ...] = ()


@dataclass(frozen=True)
class _Function:
    name: str
    source: SqlSource
    signatures: tuple[_Signature, ...]


def is_function(tree: exp.Expr) -> TypeGuard[exp.Create]:
    """Return whether a statement declares a function in SQL."""
    return isinstance(tree, exp.Create) and tree.kind in _KINDS


def expand_functions(
    statements: Sequence[tuple[SqlSource, exp.Expr]], readers: ReaderTable
) -> Iterator[SqlError]:
    """Replace the calls of the functions that the statements declare; yield the errors.

    Args:
        statements: The statements, whose trees are changed.
        readers: The table of the functions that exist already, whose names are taken.
    """
    functions: dict[str, _Function] = {}
    for source, tree in statements:
        if not is_function(tree):
            continue
        try:
            function = _read_function(source, tree, readers)
            if function.name not in functions:
                functions[function.name] = function
            elif not tree.args.get("exists"):
                raise source.error(
                    tree.this, f"function {function.name}() is declared twice; drop one declaration"
                )
        except SqlError as error:
            yield error
    if not functions:
        return
    expansion = _Expansion(functions)
    for source, tree in statements:
        if is_function(tree):
            continue
        try:
            expansion.expand(source, tree)
        except SqlError as error:
            yield error


def check_parameters(source: SqlSource, tree: exp.Expr, scans: Mapping[str, PlanNode]) -> None:
    """Refuse calls whose body has a parameter with the name of a column of its tables.

    Args:
        source: The text.
        tree: A statement whose calls are replaced.
        scans: The relations that it can name.
    """
    calls: Iterable[_CallThatReads] = tree.meta.get(_CALLS, ())
    for call in calls:
        for name, scan in scans.items():
            columns = {field.name.casefold() for field in scan.fields}
            for parameter in sorted(call.parameters & columns):
                if name.casefold() in call.tables:
                    raise source.error_at(
                        call.offset,
                        f"parameter {parameter!r} of {call.function}() has the name of a "
                        f"column of {name!r}; rename the parameter",
                    )


def _read_function(source: SqlSource, tree: exp.Create, readers: ReaderTable) -> _Function:
    """Return the function that a statement declares."""
    target, body = tree.this, tree.args.get("expression")
    if not isinstance(target, exp.UserDefinedFunction) or body is None:
        raise _unsupported(source, tree, "without a body in SQL")
    name = target.this.name.casefold()
    is_known = name in AGGREGATE_NAMES or name in readers.function_names(is_spark=source.is_spark)
    if is_known or not is_unused_name(name, source.dialect):
        raise source.error(target, f"function {name}() exists already; choose another name")
    returned, columns = None, ()
    is_table = is_sql = False
    for part in tree.args["properties"].expressions if tree.args.get("properties") else ():
        if isinstance(part, exp.LanguageProperty):
            if part.name.upper() != "SQL":
                raise _unsupported(source, tree, f"in {part.name}")
            is_sql = True
        elif not isinstance(part, _IGNORED_PROPERTIES):
            raise _unsupported(source, tree, f"with {source.describe(part)}")
        if isinstance(part, exp.ReturnsProperty):
            is_table = bool(part.args.get("is_table"))
            returned = part.this if isinstance(part.this, exp.DataType) else None
            columns = tuple(part.this.expressions) if is_table else ()
    if isinstance(body, exp.MacroOverloads):
        is_after_as = False
        forms = [
            (part.expressions, part.this, bool(part.args.get("is_table")))
            for part in body.expressions
        ]
    else:
        # A text after AS is a body in another language, or the name of a class of Java.
        is_after_as = tree.kind == "FUNCTION" and not isinstance(body, exp.Return)
        body = body.this if isinstance(body, exp.Return) else body
        forms = [(target.expressions, body, is_table)]
    signatures = []
    for parts, value, is_query in forms:
        parameters = tuple(
            _read_parameter(source, part, f"${number}") for number, part in enumerate(parts, 1)
        )
        is_text = isinstance(value, exp.Heredoc) or (is_after_as and value.is_string)
        if isinstance(value, exp.Block) or (is_text and not is_sql):
            raise _unsupported(source, tree, "with a body in another language")
        if is_text:
            value = _parse_body(source, tree, value.name, parameters)
            if not is_query:
                value = _single_expression(value)
        tree_of_body = _body(value, returned, is_query)
        _check_body(source, name, parameters, tree_of_body)
        signatures.append(_Signature(parameters, tree_of_body, is_query, columns))
    return _Function(name, source, tuple(signatures))


def _unsupported(source: SqlSource, tree: exp.Create, construct: str) -> SqlError:
    return source.unsupported(
        tree,
        f"CREATE {tree.kind} {construct}",
        "write RETURN and an expression in SQL; functions={...} adds functions of Python",
        word="create",
    )


def _parse_body(
    source: SqlSource, tree: exp.Create, text: str, parameters: Sequence[_Parameter]
) -> exp.Expr:
    """Return the query in the text of a body, such as ``$$ SELECT x + 1 $$``.

    The errors in it have their places in the whole text. ``$1`` is the first parameter.
    """
    name_offset = tree.this.this.this.meta["start"]
    token = next(
        token
        for token in source.tokens
        if token.start > name_offset and token.text.strip() == text.strip()
    )
    start = max(source.text.find(text, token.start), token.start)
    before = re.sub(r"[^\n]", " ", source.text[:start])
    queries = SqlSource(before + text, source.dialect).parse()
    if len(queries) != 1 or not isinstance(queries[0], exp.Query):
        raise source.error_at(start, "the body of a function in SQL is one SELECT")
    for node in list(queries[0].find_all(exp.Parameter, exp.Placeholder)):
        number = node.this.name if isinstance(node.this, exp.Expr) else str(node.this)
        if not number.isdecimal() or not 1 <= int(number) <= len(parameters):
            raise source.error_at(start, f"${number} is no parameter of the function")
        column = exp.column(exp.to_identifier(parameters[int(number) - 1].name, quoted=True))
        column.meta.update(node.meta)
        node.replace(column)
    return queries[0]


def _single_expression(query: exp.Expr) -> exp.Expr:
    """Return the expression of a SELECT without other clauses, or the query itself."""
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return query
    if any(value for name, value in query.args.items() if name != "expressions"):
        return query
    expression: exp.Expr = query.expressions[0].unalias()
    return expression


def _read_parameter(source: SqlSource, part: exp.Expr, position: str) -> _Parameter:
    """Return a parameter; ``position`` is the name of one that is only a type, such as ``$1``."""
    if isinstance(part, exp.Identifier) and source.is_postgres:  # the name of a type
        return _Parameter(position, exp.DataType.build(part.name, dialect=source.dialect), None)
    if isinstance(part, exp.Identifier):
        return _Parameter(part.name.casefold(), None, None)
    if not isinstance(part, exp.ColumnDef):
        raise source.unsupported(part, "this parameter", "write a name and a type")
    default = None
    for constraint in part.args.get("constraints") or ():
        if isinstance(constraint.kind, exp.DefaultColumnConstraint):
            default = constraint.kind.this
        elif not isinstance(
            constraint.kind, exp.NotNullColumnConstraint | exp.CommentColumnConstraint
        ):
            raise source.unsupported(constraint, "this part of a parameter", "leave it out")
    return _Parameter(part.name.casefold(), part.args.get("kind"), default)


def _body(value: exp.Expr, returned: exp.DataType | None, is_query: bool) -> exp.Expr:
    """Return the tree that replaces a call, of the type of RETURNS."""
    if isinstance(value, exp.Subquery) and is_query:
        value = value.this
    if isinstance(value, exp.Query) and not isinstance(value, exp.Subquery):
        value = exp.Subquery(this=value.copy())
    elif not isinstance(value, exp.Func | exp.Subquery):
        value = exp.Paren(this=value.copy())
    return value.copy() if returned is None else exp.Cast(this=value.copy(), to=returned.copy())


def _check_body(
    source: SqlSource, name: str, parameters: Sequence[_Parameter], body: exp.Expr
) -> None:
    """Refuse names that do not have one meaning in a body."""
    names = {parameter.name for parameter in parameters}
    if body.find(exp.Query) is None:
        for column in body.find_all(exp.Column):
            first = (column.table or column.name).casefold()
            if first not in names | _lambda_names(column) and column.table.casefold() != name:
                raise source.error(
                    column, f"{first!r} is no parameter of {name}(); add it to its parameters"
                )
        return
    for alias in body.find_all(exp.Alias, exp.TableAlias):
        words = [alias.alias, *(part.name for part in alias.args.get("columns") or ())]
        for word in words:
            if word.casefold() in names:
                raise source.error(
                    alias, f"{word!r} is a parameter of {name}() and an alias; rename one of them"
                )


def _lambda_names(node: exp.Expr) -> set[str]:
    """Return the parameters of the lambdas around a node."""
    names: set[str] = set()
    ancestor = node.find_ancestor(exp.Lambda)
    while ancestor is not None:
        names |= {part.name.casefold() for part in ancestor.expressions}
        ancestor = ancestor.find_ancestor(exp.Lambda)
    return names


class _Expansion:
    """Replaces calls of functions.

    Args:
        functions: The functions by lower-case name.
    """

    def __init__(self, functions: Mapping[str, _Function]) -> None:
        self._functions = functions
        # The functions whose bodies are being expanded, to find a recursion.
        self._active: list[str] = []
        # The parameters of the innermost of these. In its calls they are no columns, so
        # `_check_columns` accepts them.
        self._parameters: set[str] = set()
        # The expanded body of each form of a function, and the expanded defaults by parameter.
        self._bodies: dict[tuple[str, int, str], exp.Expr] = {}

    def expand(self, source: SqlSource, tree: exp.Expr) -> None:
        """Replace the calls in a tree; its root must not be a call."""
        calls = [
            node
            for node in tree.find_all(exp.Anonymous)
            if node.name.casefold() in self._functions and node is not tree
        ]
        for call in calls:
            self._name_item(source, call)
        for call in reversed(calls):  # the calls in the arguments of others first
            self._replace(source, tree, call)

    @staticmethod
    def _name_item(source: SqlSource, call: exp.Anonymous) -> None:
        """Name an item of a SELECT list after its text, because the call in it is replaced."""
        item: exp.Expr = call
        while item.parent is not None and not isinstance(item.parent, exp.Select):
            item = item.parent
        is_item = isinstance(item.parent, exp.Select) and item.arg_key == "expressions"
        if is_item and not isinstance(item, exp.Alias | exp.Star):
            alias = exp.alias_(exp.null(), source.default_name(item), quoted=True)
            item.replace(alias)
            alias.set("this", item)

    def _replace(self, source: SqlSource, tree: exp.Expr, call: exp.Anonymous) -> None:
        function = self._functions[call.name.casefold()]
        parent: exp.Expr | None = call.parent
        is_table = isinstance(parent, exp.Table | exp.Lateral) and not parent.args.get("view")
        number, arguments = _bind_arguments(source, function, call, is_table)
        signature = function.signatures[number]
        for parameter in signature.parameters:
            if parameter.name not in arguments and parameter.default is not None:
                arguments[parameter.name] = self._expanded(
                    source, function, (number, parameter.name), parameter.default, call
                )
        body = self._expanded(source, function, (number, ""), signature.body, call).copy()
        tables = {
            name.casefold()
            for table in body.find_all(exp.Table)
            for name in (table.name, table.alias)
            if name
        }
        if body.find(exp.Query) is not None:
            reads_rows = body.find(exp.From) is not None
            for argument in arguments.values():
                _check_aggregate(source, function.name, argument)
                if reads_rows:
                    _check_columns(source, function.name, argument, tables, self._parameters)
        _point_to(body, call)
        _substitute(source, function.name, body, signature.parameters, arguments, call)
        if sum(1 for _ in body.walk()) > MAX_NODES:
            raise source.error(
                call, f"the body of {function.name}() with these arguments is too large"
            )
        if tables:
            reading = _CallThatReads(
                call.meta.get("start", 0), function.name, frozenset(arguments), frozenset(tables)
            )
            tree.meta.setdefault(_CALLS, []).append(reading)
        if not is_table or parent is None:
            call.replace(body)
            return
        query = _query_of(function.name, signature, body)
        alias = exp.TableAlias(this=exp.to_identifier(function.name))
        query.set("alias", parent.args.get("alias") or alias)
        if isinstance(parent, exp.Lateral):
            parent.set("alias", query.args["alias"].copy())
            query.set("alias", None)
            call.replace(query)
        else:
            query.set("joins", parent.args.get("joins"))
            parent.replace(query)

    def _expanded(
        self,
        source: SqlSource,
        function: _Function,
        part: tuple[int, str],
        tree: exp.Expr,
        call: exp.Anonymous,
    ) -> exp.Expr:
        """Return a body or default of a function without calls of other functions.

        Args:
            source: The text of the call.
            function: The function.
            part: The number of the form, and the parameter; empty for the body.
            tree: The body or default.
            call: The call.
        """
        key = function.name, *part
        if key not in self._bodies:
            if function.name in self._active:
                raise source.error(call, f"function {function.name}() calls itself; use a CTE")
            signature, outer_parameters = function.signatures[part[0]], self._parameters
            self._active.append(function.name)
            self._parameters = {parameter.name for parameter in signature.parameters}
            # In parentheses, so that the root is no call.
            root = exp.Paren(this=tree.copy())
            try:
                self.expand(function.source, root)
            finally:
                self._parameters = outer_parameters
                self._active.pop()
            self._bodies[key] = root.this
        return self._bodies[key]


def _bind_arguments(
    source: SqlSource, function: _Function, call: exp.Anonymous, is_table: bool
) -> tuple[int, dict[str, exp.Expr]]:
    """Return the form of a function that a call names, and its arguments without defaults."""
    positional: list[exp.Expr] = []
    named: dict[str, exp.Expr] = {}
    for part in call.expressions:
        if isinstance(part, exp.Kwarg | exp.PropertyEQ):
            named[part.this.name.casefold()] = part.expression
        else:
            positional.append(part)
    for number, signature in enumerate(function.signatures):
        names = [parameter.name for parameter in signature.parameters]
        arguments = dict(zip(names, positional, strict=False)) | named
        defaults = {p.name for p in signature.parameters if p.default is not None}
        is_complete = set(arguments) | defaults == set(names)
        if len(positional) + len(named) == len(arguments) and is_complete:
            if signature.is_table != is_table:
                place = "in FROM" if signature.is_table else "as a value"
                raise source.error(call, f"function {function.name}() must be called {place}")
            return number, arguments
    forms = " or ".join(
        f"{function.name}({', '.join(p.name for p in s.parameters)})" for s in function.signatures
    )
    raise source.error(call, f"these are not the arguments of {forms}")


def _check_aggregate(source: SqlSource, name: str, argument: exp.Expr) -> None:
    """Refuse an aggregate as an argument: the subquery of the body would compute it."""
    if has_aggregate(argument) or argument.find(exp.Window) is not None:
        raise source.unsupported(
            argument,
            f"an aggregate or a window function as an argument of {name}(), which has a subquery,",
            "compute it in a query in FROM and use its name here",
        )


def _check_columns(
    source: SqlSource, name: str, argument: exp.Expr, tables: set[str], parameters: set[str]
) -> None:
    """Refuse a column that the subquery of a body might have."""
    for column in argument.find_all(exp.Column):
        is_parameter = not column.table and column.name.casefold() in (
            parameters | _lambda_names(column)
        )
        if not is_parameter and column.table.casefold() in {"", *tables}:
            raise source.error(
                column,
                f"column {column.name!r} as an argument of {name}(), which has a subquery; write "
                "it with the name of its table"
                + (", by an alias that the function does not use" if column.table else ""),
            )


def _point_to(body: exp.Expr, call: exp.Anonymous) -> None:
    """Give the nodes of a body the position of a call."""
    positions = ("line", "col", "start", "end")
    place = {key: call.meta[key] for key in positions if key in call.meta}
    for node in body.walk():
        if node is body or "start" in node.meta:
            for key in positions:
                node.meta.pop(key, None)
            node.meta.update(place)
        node.meta[IN_FUNCTION] = True


def _substitute(
    source: SqlSource,
    function: str,
    body: exp.Expr,
    parameters: Sequence[_Parameter],
    arguments: Mapping[str, exp.Expr],
    call: exp.Anonymous,
) -> None:
    """Replace the parameters in a body by the arguments."""
    values = {}
    for parameter in parameters:
        argument = arguments[parameter.name]
        is_plain = isinstance(argument, exp.Column | exp.Literal | exp.Paren | exp.Func)
        value = argument.copy() if is_plain else exp.Paren(this=argument.copy())
        if parameter.type is not None:
            value = exp.Cast(this=value, to=parameter.type.copy())
        values[parameter.name] = value
    for column in list(body.find_all(exp.Column)):
        table, name = column.table.casefold(), column.name.casefold()
        lambda_names = _lambda_names(column)
        if (not table or table == function) and name in values and name not in lambda_names:
            replacement, key = values[name].copy(), name
        elif table in values and table not in lambda_names:  # the field of a struct
            replacement, key = exp.Dot(this=values[table].copy(), expression=column.this), table
        else:
            continue
        for part in arguments[key].find_all(exp.Column):
            if part.name.casefold() in lambda_names and not part.table:
                raise source.error(
                    call,
                    f"column {part.name!r} has the name of a parameter of a lambda in "
                    f"{function}(); write it with the name of its table",
                )
        column.replace(replacement)


def _query_of(function: str, signature: _Signature, body: exp.Expr) -> exp.Expr:
    """Return the body of a table function as a query with the columns of RETURNS TABLE."""
    if not signature.columns:
        return body
    names = [exp.to_identifier(f"column {n}", quoted=True) for n in range(len(signature.columns))]
    values = [
        exp.alias_(
            exp.Cast(this=exp.Column(this=name.copy()), to=column.args["kind"].copy()),
            column.name,
            quoted=True,
        )
        for name, column in zip(names, signature.columns, strict=True)
    ]
    body.set("alias", exp.TableAlias(this=exp.to_identifier(function), columns=names))
    return exp.Subquery(this=exp.Select(expressions=values, from_=exp.From(this=body)))
