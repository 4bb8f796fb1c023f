"""A wrong argument of a public function raises an error of the package or a TypeError.

An argument of the wrong Python type raises a ``TypeError`` or a `DbspWcojError`. A value, a name, a
text or a table that is not valid raises a `DbspWcojError`. No ``AttributeError``, ``KeyError``,
``IndexError`` or ``ValueError`` of the implementation, and no error of Arrow, reaches the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import circuits
import dbsp_wcoj
from circuits import (
    Circuit,
    InputOptions,
    InputOptionsError,
    Lateness,
    Retention,
    Schema,
    SchemaError,
    StepLimits,
    UnknownInputError,
    compile_datalog,
    compile_sql,
    udf,
)
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import (
    Budget,
    CustomFormula,
    DbspWcojError,
    DeltaQuery,
    DeltaTerm,
    Formula,
    Query,
    Relations,
    Trace,
    ZSet,
    generic_join,
)

PAIR = pa.schema([("a", pa.int64()), ("b", pa.string())])
NUMBERS = pa.schema([("a", pa.int64()), ("b", pa.int64())])
ROWS = pa.table({"a": [1], "b": ["x"]})

WRONG_VALUES: dict[str, Any] = {
    "None": None,
    "True": True,
    "0": 0,
    "-1": -1,
    "2**70": 2**70,
    "1.5": 1.5,
    "nan": float("nan"),
    "text": "x",
    "empty text": "",
    "surrogate": "\ud800",
    "bytes": b"x",
    "list": [],
    "list of numbers": [1, 2],
    "list of lists": [[1, 2], [3]],
    "tuple": (1, "x"),
    "dict": {},
    "dict of nothing": {"e": None},
    "dict of a text": {"e": "x"},
    "dict of numbers": {1: 2},
    "object": object(),
    "function": len,
    "type": int,
    "floats": np.array([1.5]),
    "texts": np.array(["x"]),
    "objects": np.array([None, object()]),
    "cube": np.zeros((2, 2, 2), np.int64),
    "array": pa.array([1]),
    "type of Arrow": pa.int64(),
    "schema": PAIR,
    "table without columns": pa.table({}),
    "table": ROWS,
    "batch": pa.record_batch({"a": [1], "b": ["x"]}),
    "date": date(2020, 1, 1),
    "time": datetime(2020, 1, 1),
    "Z-set": ZSet.from_rows([(1, 2)]),
    "empty Z-set": ZSet.empty(0),
    "generator": (n for n in "x"),
}


def circuit(**options: Any) -> Circuit:
    return compile_sql("SELECT a, count(*) AS n FROM e GROUP BY a", {"e": PAIR}, **options)


def column(value: Any) -> pa.Array:
    """Return a column of one value; of the number 1 if Arrow cannot store the value."""
    try:
        return pa.array([value])
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError):
        return pa.array([1])


def retaining_circuit() -> Circuit:
    options = {"e": InputOptions(retain=Retention("a", 10))}
    materialized = circuit(materialize=True, input_options=options)
    materialized.step({"e": ROWS})
    return materialized


def trace() -> Trace:
    filled = Trace(2)
    filled.update(ZSet.from_rows([(1, 2)]))
    return filled


EDGES = ZSet.from_rows([(1, 2)])
PATHS = "q(a, c) :- e(a, b), e(b, c)"
SQL = "SELECT a FROM e"

#: Calls with valid arguments. The test replaces each argument by each wrong value.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "ZSet.from_rows": (ZSet.from_rows, {"rows": [(1, 2)], "weights": [1], "arity": 2}),
    "ZSet.from_columns": (ZSet.from_columns, {"columns": [[1], [2]], "weights": [1]}),
    "ZSet.empty": (ZSet.empty, {"arity": 2}),
    "ZSet.scalar": (ZSet.scalar, {"weight": 2}),
    "ZSet +": (lambda other: EDGES + other, {"other": EDGES}),
    "ZSet -": (lambda other: EDGES - other, {"other": EDGES}),
    "ZSet ==": (lambda other: other == EDGES, {"other": EDGES}),
    "Query.parse": (Query.parse, {"text": PATHS}),
    "generic_join": (
        generic_join,
        {
            "query": PATHS,
            "relations": {"e": EDGES},
            "order": ["a", "b", "c"],
            "engine": "compiled",
        },
    ),
    "generic_join of a sequence": (
        lambda relations: generic_join(PATHS, relations),
        {"relations": [EDGES] * 2},
    ),
    "DeltaQuery": (DeltaQuery, {"query": PATHS, "formula": "collapsed"}),
    "DeltaQuery with terms": (
        lambda formula: DeltaQuery(PATHS, formula=formula),
        {"formula": ["D2 += d1 N2", "D2 += O1 d2"]},
    ),
    "CustomFormula": (CustomFormula, {"terms": ["D1 += d1"]}),
    "CustomFormula.parse": (CustomFormula.parse, {"text": "D1 += d1"}),
    "DeltaTerm.parse": (DeltaTerm.parse, {"text": "D1 += d1"}),
    "DeltaQuery.step": (lambda deltas: DeltaQuery(PATHS).step(deltas), {"deltas": {"e": EDGES}}),
    "DeltaQuery.step, counted": (
        lambda deltas: DeltaQuery("n() :- e(a, b), e(b, c)").step(deltas),
        {"deltas": {"e": EDGES}},
    ),
    "DeltaQuery.prepare": (
        lambda deltas: DeltaQuery(PATHS).prepare(deltas),
        {"deltas": {"e": EDGES}},
    ),
    "DeltaQuery.step_chunks": (
        lambda deltas: list(DeltaQuery(PATHS).step_chunks(deltas)),
        {"deltas": {"e": EDGES}},
    ),
    "DeltaQuery.evaluate": (lambda step: DeltaQuery(PATHS).evaluate(step), {"step": 7}),
    "Relations.declare": (
        lambda name, arity: Relations().declare(name, arity, keep_rows=True),
        {"name": "e", "arity": 2},
    ),
    "Relations.stage": (lambda deltas: Relations().stage(deltas), {"deltas": {}}),
    "Trace": (Trace, {"arity": 2, "orders": [(1, 0)]}),
    "Trace.update": (lambda delta: trace().update(delta), {"delta": EDGES}),
    "Trace.prepare": (lambda delta: trace().prepare(delta), {"delta": EDGES}),
    "Trace.arrange": (lambda order: trace().arrange(order), {"order": (1, 0)}),
    "Trace.weights_of": (lambda rows: trace().weights_of(rows), {"rows": EDGES}),
    "StepLimits": (
        StepLimits,
        {"max_step_rows": 1, "max_step_bytes": 1, "max_seconds": 1.0},
    ),
    "Budget": (Budget, {"limits": StepLimits()}),
    "compile_sql": (
        compile_sql,
        {
            "text": SQL,
            "schemas": {"e": PAIR},
            "name": "v",
            "dialect": "duckdb",
            "outputs": None,
            "materialize": True,
            "formula": "collapsed",
            "threads": 1,
            "max_iterations": 10,
            "input_options": {},
            "limits": StepLimits(),
        },
    ),
    "compile_datalog": (
        compile_datalog,
        {
            "text": "v(x) :- e(x, y).",
            "schemas": {"e": PAIR},
            "outputs": ["v"],
            "materialize": ["v"],
            "formula": "collapsed",
            "input_options": {"e": InputOptions(keys=("a",))},
            "limits": StepLimits(),
        },
    ),
    "Circuit.step": (
        lambda tables, watermarks: retaining_circuit().step(tables, watermarks),
        {"tables": {"e": ROWS}, "watermarks": {"e": 1}},
    ),
    "Circuit.step, rows": (lambda rows: circuit().step({"e": rows}), {"rows": ROWS}),
    "Circuit.step, keyed rows": (
        lambda rows: circuit(input_options={"e": InputOptions(keys=("a",))}).step({"e": rows}),
        {"rows": ROWS},
    ),
    "Circuit.step, name": (lambda name: circuit().step({name: ROWS}), {"name": "e"}),
    "Circuit.step, weights": (
        lambda weights: circuit().step({"e": ROWS.append_column("weight", column(weights))}),
        {"weights": 1},
    ),
    "Circuit.step, value": (
        lambda value: circuit().step({"e": pa.table({"a": column(value), "b": ["x"]})}),
        {"value": 1},
    ),
    "Circuit.step, watermark": (
        lambda name, time: retaining_circuit().step({}, {name: time}),
        {"name": "e", "time": 7},
    ),
    "Circuit.digests": (lambda tables: circuit().digests(tables), {"tables": {"e": ROWS}}),
    "Circuit.schema": (lambda name: circuit().schema(name), {"name": "e"}),
    "Circuit.query": (
        lambda text, dialect: retaining_circuit().query(text, dialect=dialect),
        {"text": "SELECT a FROM e", "dialect": "duckdb"},
    ),
    "Circuit.explain": (lambda format: circuit().explain(format), {"format": "text"}),
    "Circuit.restore": (lambda value: circuit().restore(value), {"value": 7}),
    "Circuit.load": (lambda state: circuit().load(state), {"state": 7}),
    "Circuit.views": (lambda name: retaining_circuit().views[name], {"name": "e"}),
    "CircuitStep.state": (
        lambda stored: circuit().prepare({"e": ROWS}).state(stored),
        {"stored": {}},
    ),
    "CircuitStep.after": (
        lambda view: retaining_circuit().prepare({"e": ROWS}).after(view),
        {"view": "view"},
    ),
    "InputOptions": (
        InputOptions,
        {"keys": ("a",), "strict": False, "retain": Retention("a", 1), "sequence": "b"},
    ),
    "InputOptions of a circuit": (
        lambda keys, sequence: circuit(
            input_options={"e": InputOptions(keys=keys, sequence=sequence)}
        ),
        {"keys": ("a",), "sequence": None},
    ),
    "udf": (
        udf,
        {
            "function": len,
            "returns": "bigint",
            "parameters": ["string"],
            "vectorized": False,
            "call_on_null": False,
            "version": "1",
        },
    ),
    "functions of compile_sql": (
        lambda functions: circuit(functions=functions),
        {"functions": {"length_of": udf(len, returns="bigint")}},
    ),
    "Lateness": (Lateness, {"column": "a", "duration": "7 days"}),
    "Retention": (Retention, {"column": "a", "duration": "7 days", "days": 0, "seconds": 0}),
    "Retention of a circuit": (
        lambda column, duration: circuit(
            input_options={"e": InputOptions(retain=Retention(column, duration))}
        ),
        {"column": "a", "duration": 7},
    ),
    "compile_sql, schema": (
        lambda schema: compile_sql(SQL, {"e": schema}),
        {"schema": "a bigint, b text"},
    ),
    "compile_sql, type": (
        lambda name, type: compile_sql(SQL, {"e": {"a": pa.int64(), name: type}}),
        {"name": "b", "type": "text"},
    ),
    "Circuit.step, dicts": (
        lambda key, value: circuit().step({"e": [{"a": 1, "b": "x"}, {"a": 2, key: value}]}),
        {"key": "b", "value": "y"},
    ),
    "Circuit.step, list": (
        lambda row: circuit().step({"e": [row]}),
        {"row": {"a": 1}},
    ),
    "Schema.of": (Schema.of, {"relation": "e", "schema": PAIR}),
    "Schema.to_zset": (
        lambda table: Schema.of("e", PAIR).to_zset(table, Codecs()),
        {"table": ROWS},
    ),
    "Schema.to_table": (
        lambda zset: Schema.of("e", NUMBERS).to_table(zset, Codecs()),
        {"zset": EDGES},
    ),
}


def arguments_of_calls() -> Iterator[Any]:
    for call, (_, arguments) in CALLS.items():
        for argument in arguments:
            yield pytest.param(call, argument, id=f"{call}({argument})")


@pytest.mark.parametrize(("call", "argument"), list(arguments_of_calls()))
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_argument_is_a_typed_error(call: str, argument: str) -> None:
    function, arguments = CALLS[call]
    other_errors = []
    for name, value in WRONG_VALUES.items():
        try:
            function(**{**arguments, argument: value})
        except (DbspWcojError, TypeError) as error:
            assert str(error), name
        except Exception as error:
            other_errors.append(f"{argument}={name}: {type(error).__name__}: {error}")
    assert not other_errors, "\n".join(other_errors)


@pytest.mark.parametrize("call", CALLS)
def test_the_arguments_of_the_calls_are_valid(call: str) -> None:
    function, arguments = CALLS[call]
    if 7 in arguments.values() and len(arguments) == 1:
        pytest.skip("the call has no valid argument here")
    function(**arguments)


def build_strings(offsets: list[int], data: bytes) -> pa.Array:
    """Build an array of strings from offsets and bytes, without a check."""
    words = pa.py_buffer(np.array(offsets, np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, words, pa.py_buffer(data)])


WRONG_STEPS: dict[str, tuple[Any, type[Exception], str]] = {
    "None": (None, SchemaError, r"mapping from inputs to tables, not NoneType: give \{"),
    "a list": ([], SchemaError, "mapping from inputs to tables, not list"),
    "None for rows": ({"e": None}, SchemaError, "'e': rows must be a table, a frame, .*not None"),
    "a name that is a number": ({1: ROWS}, UnknownInputError, "1 is not the name of an input"),
    "an unknown name": ({"f": ROWS}, UnknownInputError, "'f' is not an input; inputs are e"),
    "a column twice": (
        {"e": pa.Table.from_arrays([*map(pa.array, ([1], [2], ["x"]))], names=["a", "a", "b"])},
        SchemaError,
        "repeated columns",
    ),
    "weights of texts": (
        {"e": ROWS.append_column("weight", pa.array(["1"]))},
        SchemaError,
        "'weight' is of type string, weights are integers",
    ),
    "weights of floats": (
        {"e": ROWS.append_column("weight", pa.array([1.0]))},
        SchemaError,
        "'weight' is of type double",
    ),
    "a text that is not UTF-8": (
        {"e": pa.table({"a": [1], "b": build_strings([0, 2], b"\xff\xfe")})},
        SchemaError,
        "'e': the table is damaged: .*UTF8",
    ),
    "offsets beyond the text": (
        {"e": pa.table({"a": [1, 2, 3], "b": build_strings([0, 9_000_000, 2, 3], b"abc")})},
        SchemaError,
        "'e': the table is damaged: .*[Oo]ffset",
    ),
}


@pytest.mark.parametrize("name", WRONG_STEPS)
def test_the_error_of_a_wrong_step_describes_a_right_one(name: str) -> None:
    tables, error, message = WRONG_STEPS[name]
    view = circuit(materialize=["e"])  # reads all columns
    for call in (view.step, view.prepare, view.digests):
        with pytest.raises(error, match=message):
            call(tables)
    assert view.step({"e": ROWS})["view"].num_rows == 1


@pytest.mark.parametrize("time", [float("nan"), "x", None, True, 1.5, 2**70, ROWS, object()])
def test_a_watermark_that_is_no_time_of_the_column_is_refused(time: object) -> None:
    view = retaining_circuit()
    with pytest.raises(
        InputOptionsError,
        match=r"(?s)input 'e': the watermark .* is of type int64: give a value of that type",
    ):
        view.step({}, {"e": time})
    with pytest.raises(
        InputOptionsError, match="watermarks are a mapping from inputs to times, not list"
    ):
        view.step({}, [time])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [None, InputOptions(keys=("a",)), InputOptions(retain=Retention("a", 10))]
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_a_record_batch_is_accepted_like_a_table(
    options: InputOptions | None, dictionary: bool
) -> None:
    texts = pa.array(["x", "y", "x"])
    columns = {
        "a": pa.array([1, 2, 3]),
        "b": texts.dictionary_encode() if dictionary else texts,
        "weight": pa.array([1, 1, 1]),
    }
    input_options = {} if options is None else {"e": options}
    output = circuit(input_options=input_options).step({"e": pa.record_batch(columns)})
    assert output == circuit(input_options=input_options).step({"e": pa.table(columns)})
    assert output["view"].num_rows == 3


def test_every_public_function_is_called_with_wrong_arguments() -> None:
    public = {*dbsp_wcoj.__all__, *circuits.__all__}
    errors = {name for name in public if name.endswith("Error")}
    called = {call.split(" ")[0].split(".")[0].rstrip(",") for call in CALLS}
    # Only the package creates these, or they have no arguments.
    not_called = {
        "CircuitStep",
        "PreparedStep",
        "RejectedRows",
        "RelationsStep",
        "Snapshot",
        "UserFunction",
    }
    not_called |= {"State", "StateStep", "Stats", "Views", "CircuitSpec", "incrementalize"}
    not_called |= {"CircuitOptions", "SqlNotice", "__version__"}
    assert public - errors - called - not_called == {"Formula", "generic_join_chunks", "warm_up"}
    assert isinstance(Formula.collapsed, Formula)
