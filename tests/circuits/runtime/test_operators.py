"""Operators: each equals D ∘ Q ∘ I, composed of the operators D and I; and laws of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.plan.expressions import Column, Literal
from circuits.plan.nodes import Field, Values
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.runtime.graph import Graph
from circuits.runtime.operators import linear
from circuits.runtime.operators.aggregates.aggregate import AggregateOperator
from circuits.runtime.operators.aggregates.partial_aggregate import (
    FinalAggregateOperator,
    PartialAggregateOperator,
)
from circuits.runtime.operators.distinct import DistinctOperator
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator, JoinOptions
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator, RowIdEncodeOperator
from circuits.runtime.operators.linear import (
    FilterOperator,
    MapOperator,
    NegateOperator,
    UnionOperator,
)
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.top_k import NumberedTopKOperator, TopKOperator
from circuits.runtime.operators.values import ValuesOperator
from circuits.runtime.operators.windows.window import WindowOperator
from circuits.schema import Schema
from circuits.sql import plan_sql
from circuits.types.codecs.codec import NULL, Codecs
from circuits.types.functions import call
from dbsp_wcoj import Relations, WeightOverflowError, ZSet
from tests.circuits.state.test_snapshot import INPUTS as PEOPLE
from tests.circuits.state.test_snapshot import VIEWS as PEOPLE_VIEWS
from tests.circuits.state.test_snapshot import steps as people_steps
from tests.generators.plans import RELATIONS, History, plans
from tests.support.delay import Delay
from tests.support.differentiate import Differentiate

LAW = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
INT = pa.int64()
ALL_CLASSES = {
    AggregateOperator,
    ValuesOperator,
    DistinctOperator,
    FilterOperator,
    Integrate,
    JoinOperator,
    MapOperator,
    NegateOperator,
    RowIdEncodeOperator,
    PartialAggregateOperator,
    TopKOperator,
    NumberedTopKOperator,
    WindowOperator,
    FinalAggregateOperator,
    UnionOperator,
    RowIdDecodeOperator,
}
VALUES = st.sampled_from([NULL, -1, 0, 1, 2])
ZSETS = st.lists(st.tuples(st.tuples(VALUES, VALUES), st.integers(-2, 3)), max_size=5).map(
    lambda changes: ZSet.from_rows([r for r, _ in changes], [w for _, w in changes], arity=2)
)
STREAMS = st.lists(ZSETS, max_size=6)


class IncrementalDefinition:
    """D ∘ Q ∘ I of one operator of a graph: integrate the inputs, evaluate, differentiate."""

    def __init__(self, graph: Graph, number: int) -> None:
        node = graph.nodes[number]
        self.inputs = node.inputs
        self.integrated = [Integrate(len(graph.nodes[i].plan.fields)) for i in node.inputs]
        self.operator = node.operator
        self.differentiate = Differentiate(len(node.plan.fields))

    def step(self, deltas) -> ZSet:
        for integrate, number in zip(self.integrated, self.inputs, strict=True):
            integrate.step(deltas[number])
        totals = [integrate.total for integrate in self.integrated]
        return self.differentiate.step(self.operator.evaluate(totals))


def assert_incremental(graph: Graph, stream) -> set[type]:
    """Assert that the delta of every operator is D ∘ Q ∘ I of its inputs in every step.

    An observer sees each operator, so filters in a row run one by one.

    Return the classes of the operators.
    """
    graph.observer = lambda position: None
    definitions = {
        number: IncrementalDefinition(graph, number)
        for number, node in enumerate(graph.nodes)
        if node.operator is not None
    }
    for inputs in stream:
        step = graph.prepare(inputs)
        for number, definition in definitions.items():
            assert step.deltas[number] == definition.step(step.deltas), graph.nodes[number].plan
            step.deltas[number]._check()
        step.commit()
    return {type(definition.operator) for definition in definitions.values()}


@LAW
@given(st.data())
def test_each_operator_of_a_random_plan_has_its_incremental_form(data):
    graph = Graph(Codecs(), JoinOptions(), lambda: 0.0)
    for name, fields in RELATIONS.items():
        graph.add_input(name, fields)
    graph.add_view("view", rewrite_plan(data.draw(plans())))
    graph.integrate(graph.views["view"])
    history = History()
    assert_incremental(graph, (history.change(data.draw) for _ in range(4)))


@pytest.mark.parametrize("seed", range(4))
def test_every_class_of_operators_has_its_incremental_form(seed):
    schemas = {name: Schema.of(name, schema) for name, schema in PEOPLE.items()}
    codecs = Codecs()
    graph = Graph(codecs, JoinOptions(), lambda: 0.0)
    for name, schema in schemas.items():
        graph.add_input(name, schema.fields)
    constants = "CREATE VIEW constants AS SELECT 1 AS x, 'one' AS t UNION ALL SELECT 2, NULL;"
    oldest = """CREATE VIEW oldest AS SELECT city, name, row_number() OVER w AS place FROM person
        WINDOW w AS (PARTITION BY city ORDER BY born) QUALIFY row_number() OVER w <= 2;"""
    text = PEOPLE_VIEWS + constants + oldest
    for name, plan in plan_sql(text, {n: s.fields for n, s in schemas.items()}).items():
        graph.add_view(name, rewrite_plan(plan))
        graph.integrate(graph.views[name])
    stream = (
        {name: schemas[name].to_zset(table, codecs) for name, table in tables.items()}
        for tables in people_steps(8, seed)
    )
    assert assert_incremental(graph, stream) == ALL_CLASSES


@given(STREAMS)
def test_integrate_and_differentiate_are_inverse(stream):
    integrate, differentiate = Integrate(2), Differentiate(2)
    for zset in stream:
        integrate.step(zset)
        assert differentiate.step(integrate.total) == zset
    integrate, differentiate = Integrate(2), Differentiate(2)
    for zset in stream:
        integrate.step(differentiate.step(zset))
        assert integrate.total == zset


@given(STREAMS)
def test_integrate_is_the_sum_and_differentiate_the_difference_from_the_step_before(stream):
    integrate, differentiate = Integrate(2), Differentiate(2)
    before, total = ZSet.empty(2), ZSet.empty(2)
    for zset in stream:
        integrate.step(zset)
        total = total + zset
        assert integrate.total == total
        assert differentiate.step(zset) == zset - before
        before = zset


@given(STREAMS)
def test_delaying_shows_the_step_before_and_nothing_first(stream):
    delay = Delay(2)
    assert [delay.step(zset) for zset in stream] == [ZSet.empty(2), *stream][: len(stream)]


@given(STREAMS)
def test_the_integral_is_its_own_delay_and_the_input(stream):
    """I(s) = s + z⁻¹(I(s))."""
    integrate, delay = Integrate(2), Delay(2)
    for zset in stream:
        integrate.step(zset)
        assert integrate.total == zset + delay.step(integrate.total)


@given(st.lists(st.integers(-3, 3), max_size=6))
def test_a_stream_without_columns_is_integrated_too(weights):
    integrate = Integrate(0)
    for weight in weights:
        integrate.step(ZSet.scalar(weight))
    assert integrate.total == ZSet.scalar(sum(weights))


def test_an_integral_that_overflows_refuses_the_step_and_is_unchanged():
    integrate = Integrate(1)
    integrate.step(ZSet.from_rows([(1,)], [2**62]))
    with pytest.raises(WeightOverflowError):
        integrate.step(ZSet.from_rows([(1,), (2,)], [2**62, 1]))
    assert integrate.total.to_dict() == {(1,): 2**62}


FIELDS = (Field("a", INT), Field("b", INT))
A, B = Column(0, INT), Column(1, INT)
CODECS = Codecs()
LINEAR = {
    "filter": FilterOperator(call("or", call("lt", A, B), call("is_null", A)), FIELDS, CODECS),
    "map to one column": MapOperator([call("coalesce", A, B)], FIELDS, CODECS),
    "map to none": MapOperator([], FIELDS, CODECS),
    "map to more": MapOperator([B, call("add", A, B), Literal(None, INT)], FIELDS, CODECS),
    "negate": NegateOperator(),
    "row ids": RowIdEncodeOperator(1),
}


@pytest.mark.parametrize("name", list(LINEAR))
@given(ZSETS, ZSETS)
def test_linear_operators_keep_sums_zero_and_no_state(name, first, second):
    operator = LINEAR[name]
    context = StepContext(False, Relations().stage({}))
    result = operator.evaluate([first + second])
    assert result == operator.evaluate([first]) + operator.evaluate([second])
    assert not len(operator.evaluate([ZSet.empty(2)]))
    assert operator.prepare([first], context) == (operator.evaluate([first]), None)
    result._check()


@given(ZSETS, ZSETS, ZSETS)
def test_a_union_is_the_sum_of_its_inputs(first, second, third):
    union = UnionOperator(2)
    assert union.evaluate([first, second, third]) == first + second + third
    assert union.evaluate([]) == ZSet.empty(2)


@given(ZSETS)
def test_filters_and_maps_agree_with_python_row_by_row(zset):
    def decoded(row):
        return [None if value == NULL else value for value in row]

    def is_kept(a, b):
        return a is None or (b is not None and a < b)

    kept = {row: weight for row, weight in zset if is_kept(*decoded(row))}
    assert LINEAR["filter"].evaluate([zset]).to_dict() == kept
    sums = {}
    for row, weight in zset:
        a, b = decoded(row)
        code = next((value for value in (a, b) if value is not None), NULL)
        sums[code,] = sums.get((code,), 0) + weight
    mapped = LINEAR["map to one column"].evaluate([zset])
    assert mapped.to_dict() == {row: weight for row, weight in sums.items() if weight}
    assert LINEAR["map to none"].evaluate([zset]) == ZSet.scalar(sum(w for _, w in zset))
    assert LINEAR["negate"].evaluate([zset]).to_dict() == {row: -w for row, w in zset}


@pytest.mark.parametrize("expressions", [[], [Literal(1, INT)]])
def test_a_map_whose_sums_overflow_is_an_error(expressions):
    zset = ZSet.from_rows([(0, 0), (1, 0)], [2**62, 2**62])
    with pytest.raises(WeightOverflowError):
        MapOperator(expressions, FIELDS, CODECS).evaluate([zset])


def test_a_count_of_rows_is_exact_where_sums_on_the_way_leave_int64():
    zset = ZSet.from_rows([(0, 0), (1, 0), (2, 0)], [2**62, 2**62, -(2**62)])
    assert MapOperator([], FIELDS, CODECS).evaluate([zset]) == ZSet.scalar(2**62)


@given(STREAMS, st.integers(0, 2))
def test_decoded_row_ids_give_back_the_rows_and_a_row_keeps_its_id(stream, kept):
    encoder = RowIdEncodeOperator(kept)
    decoder = RowIdDecodeOperator([(kept, encoder)], 2)
    first = [encoder.evaluate([zset]) for zset in stream]
    assert [decoder.evaluate([encoded]) for encoded in first] == stream
    assert [encoder.evaluate([zset]) for zset in stream] == first
    assert all(encoded.arity == kept + 1 for encoded in first)


def test_the_row_id_of_a_row_that_an_outer_join_padded_is_null_in_every_column():
    encoder = RowIdEncodeOperator(1)
    encoder.evaluate([ZSet.from_rows([(1, 5, 6)])])
    decoder = RowIdDecodeOperator([(1, encoder)], 3)
    with_null_id = ZSet.from_rows([(1, 0), (2, NULL)])
    assert decoder.evaluate([with_null_id]).to_dict() == {(1, 5, 6): 1, (2, NULL, NULL): 1}


def test_decoded_rows_without_order_are_distinct() -> None:
    encoder = RowIdEncodeOperator(1)
    rows = ZSet.from_rows([(1, NULL, NULL), (1, 7, 8), (2, 5, 6)])
    encoded = encoder.evaluate([rows])
    decoder = RowIdDecodeOperator([(1, encoder)], 3)

    unsorted_rows = decoder.decode_unsorted(encoded)
    assert ZSet.from_columns(unsorted_rows.row_array, unsorted_rows.weight_array) == rows
    # A left join without a match: the row id is NULL. The row is that of columns that are NULL.
    without_match = decoder.decode_unsorted(encoded + -ZSet.from_rows([(1, NULL)]))
    assert without_match.row_array.T.tolist() == [[1, 7, 8], [2, 5, 6]]


@pytest.mark.parametrize(
    ("fields", "rows", "expected"),
    [
        ((Field("a", INT),), ((1,), (1,), (None,)), {(1,): 2, (NULL,): 1}),
        ((Field("a", INT),), (), {}),
        ((), ((), ()), {(): 2}),
        ((), (), {}),
        ((Field("t", pa.string()), Field("x", pa.null())), (("a", None),), {(0, NULL): 1}),
    ],
)
def test_constants_are_output_once_in_the_first_step(fields, rows, expected):
    constants = ValuesOperator(Values(fields, rows), Codecs())
    shared = Relations().stage({})
    assert constants.evaluate([]).to_dict() == expected
    assert constants.prepare([], StepContext(True, shared))[0].to_dict() == expected
    assert constants.prepare([], StepContext(False, shared)) == (ZSet.empty(len(fields)), None)


def test_a_map_of_many_rows_equals_the_map_of_its_parts():
    rng = np.random.default_rng(2)
    all_rows = ZSet.from_columns(rng.integers(0, 300, (2, 50_000)), rng.integers(-2, 4, 50_000))
    half = len(all_rows) // 2
    parts = [
        ZSet.from_columns([c[part] for c in all_rows.columns], all_rows.weights[part])
        for part in (slice(half), slice(half, None))
    ]
    for operator in LINEAR.values():
        results = [operator.evaluate([part]) for part in parts]
        assert operator.evaluate([all_rows]) == results[0] + results[1]


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)),
        st.sampled_from([-1, 1, 2, 2**62, -(2**62)]),
        max_size=24,
    ),
    st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_a_projection_in_slices_equals_the_projection_of_all_rows(rows, columns, ratio):
    zset = ZSet.from_rows(rows.keys(), rows.values(), arity=3)
    fields = tuple(Field(name, pa.int64()) for name in "abc")
    operator = MapOperator(
        [Literal(7, pa.int64()) if c is None else Column(c, pa.int64()) for c in columns],
        fields,
        Codecs(),
    )
    expected = result_or_error(operator, zset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "MIN_SLICED_MAP_ROWS", 1)
        patch.setattr(linear, "SLICE_ROWS", 4)
        patch.setattr(linear, "MIN_ROWS_PER_RESULT", ratio)
        assert result_or_error(operator, zset) == expected


def result_or_error(operator: MapOperator, zset: ZSet) -> ZSet | None:
    try:
        return operator.evaluate([zset])
    except WeightOverflowError:
        return None


def test_a_projection_to_the_first_column_is_computed_in_slices(monkeypatch):
    monkeypatch.setattr(linear, "MIN_SLICED_MAP_ROWS", 8)
    monkeypatch.setattr(linear, "SLICE_ROWS", 4)
    sizes = []
    compute = MapOperator.compute
    monkeypatch.setattr(
        MapOperator, "compute", lambda self, r, b: sizes.append(len(r)) or compute(self, r, b)
    )
    zset = ZSet.from_rows([(k // 3, k) for k in range(10)])
    fields = (Field("a", pa.int64()), Field("b", pa.int64()))
    keys = MapOperator([Column(0, pa.int64()), Literal(0, pa.int64())], fields, Codecs())
    assert keys.evaluate([zset]).to_dict() == {(0, 0): 3, (1, 0): 3, (2, 0): 3, (3, 0): 1}
    assert sizes == [4, 4, 2]
