"""From a text to a circuit: SQL by `circuits.sql`, Datalog by `circuits.datalog`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor

from circuits.circuit import Circuit
from circuits.circuit_spec import SourceText
from circuits.datalog import plan_datalog
from circuits.inputs.input_options import InputOptions
from circuits.plan.fixpoint import MAX_ITERATIONS
from circuits.plan.nodes import Plan
from circuits.schema import SchemaLike, arrow_schemas, schemas_of
from circuits.sql import plan_sql
from dbsp_wcoj import Formula
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits

__all__ = ["compile_datalog", "compile_sql", "plans_of"]


def compile_sql(
    text: str,
    schemas: Mapping[str, SchemaLike],
    *,
    name: str = "view",
    dialect: str = "duckdb",
    outputs: Collection[str] | None = None,
    materialize: bool | Collection[str] = False,
    formula: Formula | str = Formula.collapsed,
    executor: Executor | None = None,
    parts: int = 1,
    iterations: int = MAX_ITERATIONS,
    rules: Mapping[str, InputOptions] | None = None,
    limits: StepLimits = DEFAULT_LIMITS,
) -> Circuit:
    """Make a circuit of SQL: bags of rows, NULLs as in SQL.

    Args:
        text: One SELECT, or ``CREATE VIEW ... AS SELECT ...`` statements that may use each other.
        schemas: The columns of each input relation: a `pa.Schema`, a dict of types, DDL text, or a
            frame that has them (`circuits.schema.arrow_schema`). Columns that are not nullable
            need no tests for NULL.
        name: What the view of a plain SELECT is called.
        dialect: The dialect of the text, as sqlglot calls it.
        outputs: The views that ``step`` returns; all when not given.
        materialize: Which views and inputs are kept whole, for ``views`` and ``query``.
        formula: The delta formula of every join; or "auto", by which each join chooses for itself.
        executor: Threads for large steps; none by default.
        parts: Into how many parts a delta is split over the executor.
        iterations: How often a recursion may go round in a step; one that still changes is refused.
        rules: By input: whether its rows are upserts, strict, and for how long they are kept.
        limits: How many rows, bytes and seconds a step may use; `StepLimits.off()` for no limit.

    Raises:
        SqlError: The text is no SQL, or names what is not there.
        UnsupportedSqlError: It uses what is not supported; the message says what and where.
        ArgumentTypeError: An argument is of the wrong Python type.
        SchemaError: A schema has a column of a type that does not exist or cannot be held.
        InputOptionsError: Rules do not go with the schema of their input.

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

    With rules an input takes the last row of each key, or forgets rows by their time:

    >>> orders = pa.schema([("nr", pa.int64()), ("city", pa.string())])
    >>> circuit = compile_sql(
    ...     "SELECT city, count(*) AS n FROM orders GROUP BY city",
    ...     {"orders": orders},
    ...     rules={"orders": InputOptions(keys=("nr",))},
    ... )
    >>> circuit.step({"orders": pa.table({"nr": [1], "city": ["Rome"]})})["view"].to_pylist()
    [{'city': 'Rome', 'n': 1, 'weight': 1}]
    >>> circuit.step({"orders": pa.table({"nr": [1], "city": ["Oslo"]})})["view"].to_pylist()
    [{'city': 'Rome', 'n': 1, 'weight': -1}, {'city': 'Oslo', 'n': 1, 'weight': 1}]
    """
    check_type("text", text, str, "SQL as a text")
    check_type("name", name, str, "the name of the view as a text")
    check_type("dialect", dialect, str, "the name of a dialect of sqlglot")
    source = SourceText("sql", text, name, dialect)
    schemas = arrow_schemas(schemas)  # once, since a frame may be read only once
    return Circuit(
        plans_of(source, schemas),
        schemas,
        outputs=outputs,
        materialize=materialize,
        formula=formula,
        executor=executor,
        parts=parts,
        iterations=iterations,
        rules=rules,
        source=source,
        limits=limits,
    )


def compile_datalog(
    text: str,
    schemas: Mapping[str, SchemaLike],
    *,
    outputs: Collection[str] | None = None,
    materialize: bool | Collection[str] = False,
    formula: Formula | str = Formula.collapsed,
    executor: Executor | None = None,
    parts: int = 1,
    iterations: int = MAX_ITERATIONS,
    rules: Mapping[str, InputOptions] | None = None,
    limits: StepLimits = DEFAULT_LIMITS,
) -> Circuit:
    """Make a circuit of Datalog rules: every head is a set.

    Args:
        text: Rules; those of one head are alternatives, and they may use each other's heads.
        schemas: The columns of each input relation, as for `compile_sql`.
        outputs: The heads that ``step`` returns; all when not given.
        materialize: Which heads and inputs are kept whole, for ``views`` and ``query``.
        formula: The delta formula of every join; or "auto", by which each join chooses for itself.
        executor: Threads for large steps; none by default.
        parts: Into how many parts a delta is split over the executor.
        iterations: How often a recursion may go round in a step; one that still changes is refused.
        rules: By input: whether its rows are upserts, strict, and for how long they are kept.
        limits: How many rows, bytes and seconds a step may use; `StepLimits.off()` for no limit.

    Raises:
        DatalogError: The text is no program, or one that is unsafe, not stratified, or recursive
            and not monotone.
        ArgumentTypeError: An argument is of the wrong Python type.
        SchemaError: A schema has a column of a type that does not exist or cannot be held.
        InputOptionsError: Rules do not go with the schema of their input.

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
    source = SourceText("datalog", text)
    schemas = arrow_schemas(schemas)
    return Circuit(
        plans_of(source, schemas),
        schemas,
        outputs=outputs,
        materialize=materialize,
        formula=formula,
        executor=executor,
        parts=parts,
        iterations=iterations,
        rules=rules,
        source=source,
        limits=limits,
    )


def plans_of(source: SourceText, schemas: Mapping[str, SchemaLike]) -> dict[str, Plan]:
    """Compile a text to the plan of each view.

    Args:
        source: The text, its language and its dialect.
        schemas: The input relations.

    Raises:
        SqlError, DatalogError, SchemaError: As `compile_sql` and `compile_datalog`.
    """
    inputs = {name: schema.fields for name, schema in schemas_of(schemas).items()}
    if source.language == "sql":
        plans = plan_sql(source.text, inputs, name=source.name, dialect=source.dialect)
    else:
        plans = plan_datalog(source.text, inputs)
    return dict(plans)
