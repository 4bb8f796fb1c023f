"""The entry points: compile SQL (`circuits.sql`) or Datalog (`circuits.datalog`) to a circuit.

::

    text  ->  plans (circuits.sql, circuits.datalog)  ->  CircuitSpec  ->  Circuit
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from circuits.circuit import Circuit
from circuits.circuit_spec import CircuitSpec, SourceText
from circuits.datalog import plan_datalog
from circuits.inputs.input_options import InputOptions
from circuits.notice import SqlNotice
from circuits.options import CircuitOptions
from circuits.plan.event_time import event_times
from circuits.plan.fixpoint import MAX_ITERATIONS
from circuits.plan.nodes import PlanNode
from circuits.plan.user_call_placement import place_user_calls
from circuits.schema import SchemaLike, arrow_schemas, schemas_of
from circuits.sql import Declarations, SqlSource, add_window_close, declared_by, plan_sql
from circuits.user_functions import UserFunction, check_functions
from dbsp_wcoj import Formula
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from dbsp_wcoj.planning.formula_candidates import FormulaName

__all__ = ["compile_datalog", "compile_sql", "default_outputs", "plans_of", "spec_of_sql"]


def compile_sql(
    text: str,
    schemas: Mapping[str, SchemaLike] | None = None,
    *,
    name: str = "view",
    dialect: str = "duckdb",
    outputs: Collection[str] | None = None,
    materialize: bool | Collection[str] = False,
    formula: FormulaName | str = Formula.collapsed,
    threads: int | None = None,
    max_iterations: int = MAX_ITERATIONS,
    input_options: Mapping[str, InputOptions] | None = None,
    limits: StepLimits = DEFAULT_LIMITS,
    functions: Mapping[str, UserFunction] | None = None,
    emit_on_window_close: bool | Collection[str] = False,
) -> Circuit:
    """Compile SQL to a circuit: each view is a bag of rows, with NULLs as in SQL.

    Args:
        text: One SELECT, or ``CREATE VIEW ... AS SELECT ...`` statements that may use each other.
            ``CREATE TABLE`` statements declare inputs (`circuits.sql.declarations`), and ``INSERT
            INTO v SELECT ...`` makes a view ``v``. Tables alone are a program if they are
            materialized.
        schemas: The columns of each input relation: a `pa.Schema`, a dict of types, DDL text, or a
            frame with these columns (`circuits.schema.arrow_schema`). NOT NULL columns make joins
            cheaper, because their values are not tested for NULL. The text can declare inputs
            instead.
        name: The name of the view of a plain SELECT.
        dialect: The dialect of the text, by the name that sqlglot uses.
        outputs: The views that ``step`` returns; None means all of them, except temporary and
            local views if there are others.
        materialize: The views and inputs that are kept whole, for ``views`` and ``query``: a
            collection of names, or True for all of them.
        formula: The delta formula of every join. With "auto", each join measures its work and
            chooses the formula itself.
        threads: The number of threads that share the work of a large step; None means the number
            of cores that the process may use. The results are the same for any number.
        max_iterations: The limit of iterations of a recursion per step. A recursion that has not
            converged by then raises `IterationError`.
        input_options: The options of each input: keys (its rows are upserts), strict deletes, and
            the retention of rows. They replace those that a declaration gives.
        limits: The rows, bytes and seconds that a step may use; `StepLimits.off()` for no limit.
        functions: User-defined functions that the text can call, by name: ``{"score": udf(...)}``
            (`circuits.udf`).
        emit_on_window_close: The views that emit each row once, when it is final: a collection of
            names, or True for all that are not temporary. It adds ``EMIT ON WINDOW CLOSE`` to them.

    Returns:
        A circuit without rows.

    Warns:
        SqlNotice: A part of a declaration has no effect, such as a CHECK; see
            `circuits.sql.declarations`.

    Raises:
        SqlError: The text is not valid SQL, or names an unknown relation, column or function.
        UnsupportedSqlError: The text uses unsupported SQL; the message names the construct and its
            position.
        ArgumentTypeError: An argument is of the wrong Python type.
        SchemaError: A schema has a column of an unknown or unsupported type.
        CircuitError: ``outputs`` or ``materialize`` name an unknown view or input.
        InputOptionsError: The options of an input do not fit its schema.
        FunctionError: A user-defined function has the name of a built-in one.

    Complexity:
        Depends on the text alone. The joins of each SELECT become one N-way join, whose work per
        step is within the AGM bound of its delta terms [1].

    References:
        [1] Ngo, Ré, Rudra. Skew Strikes Back. SIGMOD Record 42(4), 2013.
        [2] Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023.

    >>> import pyarrow as pa
    >>> circuit = compile_sql(
    ...     "SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src "
    ...     "JOIN e z ON z.src = x.src AND z.dst = y.dst",
    ...     {"e": pa.schema([("src", pa.int64()), ("dst", pa.int64())])},
    ...     name="triangles",
    ... )
    >>> circuit.step({"e": pa.table({"src": [1, 2, 1], "dst": [2, 3, 3]})})["triangles"].to_pylist()
    [{'n': 1, 'weight': 1}]

    Schemas can be text, and rows a list of dicts or a frame:

    >>> circuit = compile_sql(
    ...     "SELECT city, count(*) AS n FROM people GROUP BY city",
    ...     {"people": "name STRING NOT NULL, city STRING"},
    ... )
    >>> circuit.step({"people": [{"name": "ann", "city": "Rome"}]})["view"].to_pylist()
    [{'city': 'Rome', 'n': 1, 'weight': 1}]

    With options, an input takes the last row of each key, or forgets rows by their time:

    >>> orders = pa.schema([("nr", pa.int64()), ("city", pa.string())])
    >>> circuit = compile_sql(
    ...     "SELECT city, count(*) AS n FROM orders GROUP BY city",
    ...     {"orders": orders},
    ...     input_options={"orders": InputOptions(keys=("nr",))},
    ... )
    >>> circuit.step({"orders": pa.table({"nr": [1], "city": ["Rome"]})})["view"].to_pylist()
    [{'city': 'Rome', 'n': 1, 'weight': 1}]
    >>> circuit.step({"orders": pa.table({"nr": [1], "city": ["Oslo"]})})["view"].to_pylist()
    [{'city': 'Rome', 'n': 1, 'weight': -1}, {'city': 'Oslo', 'n': 1, 'weight': 1}]

    A text with its tables is a whole program:

    >>> circuit = compile_sql(
    ...     "CREATE TABLE orders (nr BIGINT PRIMARY KEY, city VARCHAR NOT NULL);"
    ...     "CREATE VIEW cities AS SELECT city, count(*) AS n FROM orders GROUP BY city;"
    ... )
    >>> circuit.step({"orders": [{"nr": 1, "city": "Rome"}]})["cities"].to_pylist()
    [{'city': 'Rome', 'n': 1, 'weight': 1}]
    """
    check_type("text", text, str, "SQL as a text")
    check_type("name", name, str, "the name of the view as a text")
    check_type("dialect", dialect, str, "the name of a dialect of sqlglot")
    allowed_types = (bool, list, tuple, set, frozenset)
    check_type(
        "emit_on_window_close", emit_on_window_close, allowed_types, "a list of views, or True"
    )
    text = add_window_close(text, emit_on_window_close, name=name, dialect=dialect)
    # Read once, because some frames can be read only once.
    given_schemas = {} if schemas is None else arrow_schemas(schemas)
    parsed = SqlSource(text, dialect)
    declarations = declared_by(parsed)
    for notice in declarations.notices:
        warnings.warn(notice, SqlNotice, stacklevel=2)
    options = CircuitOptions(
        outputs=outputs,
        materialize=materialize,
        formula=formula,
        max_iterations=max_iterations,
        input_options={} if input_options is None else input_options,
        limits=limits,
        threads=threads,
    )
    spec = spec_of_sql(parsed, declarations, given_schemas, options, name=name, functions=functions)
    return Circuit(spec)


def spec_of_sql(
    parsed: SqlSource,
    declarations: Declarations,
    schemas: Mapping[str, pa.Schema],
    options: CircuitOptions,
    *,
    name: str = "view",
    functions: Mapping[str, UserFunction] | None = None,
) -> CircuitSpec:
    """Plan SQL, without building the operators of a circuit, and without warnings.

    Args:
        parsed: The text, perhaps parsed, but not planned.
        declarations: What it declares.
        schemas: The columns of each input relation that the text need not declare.
        options: The options. If ``outputs`` is None, they are the views that are not temporary, or
            all of them if every view is temporary.
        name: The name of the view of a plain SELECT.
        functions: User-defined functions that the text can call, by name.

    Raises:
        SqlError, SchemaError, CircuitError, InputOptionsError, FunctionError: As `compile_sql`.

    >>> parsed = SqlSource("SELECT a FROM t", "duckdb")
    >>> schemas = {"t": pa.schema({"a": pa.int64()})}
    >>> spec = spec_of_sql(parsed, declared_by(parsed), schemas, CircuitOptions())
    >>> spec.outputs, Circuit(spec)
    (('view',), <Circuit of view from t: 0 steps>)
    """
    source = SourceText("sql", parsed.text, name, parsed.dialect)
    all_schemas = _with_declared_schemas(schemas, declarations)
    checked_functions = check_functions(functions)
    plans = plans_of(source, all_schemas, checked_functions, parsed)
    if not plans and not options.materialize:
        raise parsed.error_at(0, "the text has no view; add a SELECT or a CREATE VIEW")
    outputs = options.outputs
    if outputs is None:
        outputs = default_outputs(plans, declarations)
    input_options = _with_declared_options(options.input_options, declarations, plans)
    options = replace(options, outputs=outputs, input_options=input_options)
    return CircuitSpec(plans, all_schemas, options, source, checked_functions)


def _with_declared_schemas(
    given_schemas: Mapping[str, pa.Schema], declarations: Declarations
) -> dict[str, pa.Schema]:
    """Return the schemas of all inputs.

    A relation may be both given by the caller and declared in the text. If the types are equal, the
    declared schema is returned, because it says which columns are NOT NULL. If they differ, the
    planner raises an error later.
    """
    schemas = dict(given_schemas)
    names = {name.casefold(): name for name in given_schemas}
    for table in declarations.inputs.values():
        name = names.get(table.name.casefold(), table.name)
        declared_types = {field.name: field.type for field in table.fields}
        if (
            name not in given_schemas
            or {f.name: f.type for f in given_schemas[name]} == declared_types
        ):
            schemas[name] = table.schema
    return schemas


def _with_declared_options(
    given_options: Mapping[str, InputOptions],
    declarations: Declarations,
    plans: Mapping[str, PlanNode],
) -> dict[str, InputOptions]:
    """Return the options of all inputs: those that are given, or those that are declared.

    An input whose event time is a computed column gets the computation from the plan of a view that
    reads it. If no view reads it, there is no event time, so its declared lateness is dropped.
    """
    inputs_with_computed_time = {name.casefold() for name in event_times(plans)}
    check_type("input_options", given_options, Mapping, '{"name of the input": InputOptions(...)}')
    options = dict(given_options)
    names = {name.casefold() for name in options if isinstance(name, str)}
    for table in declarations.inputs.values():
        declared_options = table.options
        is_computed = declared_options.time_column in [column.name for column in table.computed]
        if is_computed and table.name.casefold() not in inputs_with_computed_time:
            declared_options = replace(declared_options, lateness=None)
        if declared_options and table.name.casefold() not in names:
            options[table.name] = declared_options
    return options


def default_outputs(plans: Mapping[str, PlanNode], declarations: Declarations) -> list[str]:
    """Return the views that are not temporary; all of them if every view is temporary."""
    temporary = {name.casefold() for name in declarations.temporary_views}
    return [name for name in plans if name.casefold() not in temporary] or list(plans)


def compile_datalog(
    text: str,
    schemas: Mapping[str, SchemaLike],
    *,
    outputs: Collection[str] | None = None,
    materialize: bool | Collection[str] = False,
    formula: FormulaName | str = Formula.collapsed,
    threads: int | None = None,
    max_iterations: int = MAX_ITERATIONS,
    input_options: Mapping[str, InputOptions] | None = None,
    limits: StepLimits = DEFAULT_LIMITS,
    functions: Mapping[str, UserFunction] | None = None,
) -> Circuit:
    """Compile Datalog rules to a circuit: each relation that rules define is a set of rows.

    Args:
        text: Rules ``head(x) :- body``. Several rules with the same head relation are alternatives,
            and rules may use each other's heads.
        schemas: The columns of each input relation, as for `compile_sql`.
        outputs: The heads that ``step`` returns; None means all of them.
        materialize: The heads and inputs that are kept whole, as for `compile_sql`.
        formula: As for `compile_sql`.
        threads: As for `compile_sql`.
        max_iterations: As for `compile_sql`.
        input_options: As for `compile_sql`.
        limits: As for `compile_sql`.
        functions: As for `compile_sql`.

    Returns:
        A circuit without rows.

    Raises:
        DatalogError: The text is not a program, or the program is unsafe, not stratified, or
            recursive and not monotone.
        ArgumentTypeError: An argument is of the wrong Python type.
        SchemaError: A schema has a column of an unknown or unsupported type.
        CircuitError: ``outputs`` or ``materialize`` name an unknown head or input.
        InputOptionsError: The options of an input do not fit its schema.

    Complexity:
        As for `compile_sql`: the body of each rule becomes one N-way join.

    >>> import pyarrow as pa
    >>> circuit = compile_datalog(
    ...     "open(x) :- edge(x, y), not closed(y).",
    ...     {"edge": "src bigint, dst bigint", "closed": {"node": pa.int64()}},
    ... )
    >>> circuit.step({"edge": pa.table({"src": [1, 2], "dst": [2, 3]})})["open"].to_pylist()
    [{'x': 1, 'weight': 1}, {'x': 2, 'weight': 1}]
    >>> circuit.step({"closed": pa.table({"node": [3]})})["open"].to_pylist()
    [{'x': 2, 'weight': -1}]
    """
    check_type("text", text, str, "Datalog rules as a text")
    options = CircuitOptions(
        outputs=outputs,
        materialize=materialize,
        formula=formula,
        max_iterations=max_iterations,
        input_options={} if input_options is None else input_options,
        limits=limits,
        threads=threads,
    )
    declared = arrow_schemas(schemas)  # read once, because some frames can be read only once
    source, checked_functions = SourceText("datalog", text), check_functions(functions)
    spec = CircuitSpec(
        plans_of(source, declared, checked_functions), declared, options, source, checked_functions
    )
    return Circuit(spec)


def plans_of(
    source: SourceText,
    schemas: Mapping[str, SchemaLike],
    functions: Mapping[str, UserFunction] | None = None,
    parsed: SqlSource | None = None,
) -> dict[str, PlanNode]:
    """Compile a text to the plan of each view.

    Args:
        source: The text, its language and its dialect.
        schemas: The input relations.
        functions: The user-defined functions by lower-case name.
        parsed: The same text of SQL, perhaps parsed, but not planned; None to parse it here.

    Raises:
        SqlError, DatalogError, SchemaError: As `compile_sql` and `compile_datalog`.
    """
    functions = functions or {}
    inputs = {name: schema.fields for name, schema in schemas_of(schemas).items()}
    if source.language == "sql":
        parsed = parsed or SqlSource(source.text, source.dialect)
        plans = plan_sql(parsed, inputs, name=source.name, functions=functions, needs_view=False)
    else:
        plans = plan_datalog(source.text, inputs, functions)
    return place_user_calls(plans, functions)
