"""Large inputs in slices: the same results, all or nothing, and no sort of all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import EvaluationError, StepLimitError, StepLimits, compile_sql
from circuits.circuit import Circuit
from circuits.inputs.encoded_rows import MIN_SLICED_STAGE_ROWS, MIN_UNSORTED_ROWS
from circuits.runtime import linear_stage, partial_sum
from circuits.runtime.linear_stage import SLICE_ROWS, CollectedRows, find_unsorted_nodes
from circuits.runtime.operators import late_materialization, linear
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator
from circuits.runtime.row_batch import RowSlice
from dbsp_wcoj import WeightOverflowError, ZSet
from dbsp_wcoj.observer import SORT, observing
from dbsp_wcoj.zset import MAX_INT64, consolidated_rows

ROWS = MIN_SLICED_STAGE_ROWS + 4321
FEW = MIN_UNSORTED_ROWS - 1
SCHEMA = pa.schema(
    [("id", pa.int64()), ("kind", pa.string()), ("price", pa.decimal128(12, 2)), ("n", pa.int64())]
)
AGGREGATE = (
    "SELECT kind, sum(price * n) AS total, count(*) AS c, avg(n) AS mean FROM items "
    "WHERE n <> 3 GROUP BY kind"
)
JOIN = "SELECT a.id, k.name FROM items a JOIN kinds k ON a.kind = k.kind WHERE a.n = 5"
KINDS = pa.table({"kind": ["k1", "k2"], "name": ["one", "two"]})
# Fails for the kind "new".
NUMBERS = "SELECT CAST(substr(kind, 2) AS bigint) AS number FROM items"
WRONG = pa.table({"id": [1], "kind": ["new"], "price": [None], "n": [20]}, SCHEMA)
VIEWS = {
    "totals": AGGREGATE,
    "joined": JOIN,
    "counted": "SELECT count(*) AS c, sum(n) AS total FROM items",
    "kinds_of_n": "SELECT DISTINCT kind, n FROM items WHERE n < 4",
    "distinct_kinds": "SELECT n / 2 AS half, count(DISTINCT kind) AS kinds, max(price * n) AS most "
    "FROM items GROUP BY n / 2",
    "mapped": "SELECT n, n / 2 AS half FROM items WHERE price > 90",
    "joined_whole": "SELECT a.n, k.name FROM items a JOIN kinds k ON a.kind = k.kind",
}


def items(seed: int, rows: int = ROWS) -> pa.Table:
    """Rows in no order; some occur more than once, and some have a NULL."""
    random = np.random.default_rng(seed)
    n = random.integers(0, 9, rows)
    return pa.table(
        {
            "id": random.integers(0, rows // 2, rows),
            "kind": [f"k{kind}" for kind in random.integers(0, 5, rows)],
            "price": pa.array(random.integers(0, 10000, rows), pa.int32()).cast(
                pa.decimal128(12, 2)
            ),
            "n": pa.array(n, mask=random.random(rows) < 0.01),
        },
        SCHEMA,
    )


def circuit_of(views: dict[str, str]) -> Circuit:
    text = ";".join(f"CREATE VIEW {name} AS {query}" for name, query in views.items())
    return compile_sql(text, {"items": SCHEMA, "kinds": KINDS.schema})


def contents(steps: Sequence[dict[str, pa.Table]]) -> dict[str, Counter[tuple[object, ...]]]:
    """The sum of the deltas of each view."""
    sums: dict[str, Counter[tuple[object, ...]]] = {name: Counter() for name in steps[0]}
    for step in steps:
        for name, delta in step.items():
            *columns, weights = (column.to_pylist() for column in delta.columns)
            for *row, weight in zip(*columns, weights, strict=True):
                sums[name][tuple(row)] += weight
    return {name: Counter({row: w for row, w in rows.items() if w}) for name, rows in sums.items()}


class SortedRows:
    """Records the number of rows of each sort."""

    def __init__(self) -> None:
        self.sorts: list[int] = []
        self._phases: list[str] = []

    def begin_phase(self, phase: str) -> None:
        self._phases.append(phase)

    def end_phase(self, rows: int) -> None:
        if self._phases.pop() == SORT:
            self.sorts.append(rows)

    def begin_term(self, term: object, *, resumed: bool) -> None: ...

    def end_term(self) -> None: ...

    def begin_kernel(self, state: object) -> None: ...

    def end_kernel(self) -> None: ...


@pytest.mark.parametrize("rows", [ROWS, MIN_UNSORTED_ROWS + 4321])
def test_one_large_step_equals_many_small_ones(rows: int) -> None:
    table = items(1, rows)
    large, small = circuit_of(VIEWS), circuit_of(VIEWS)
    assert large.graph.takes_slices("items")

    sliced = [large.step({"items": table, "kinds": KINDS})]
    parts = [small.step({"kinds": KINDS})]
    for start in range(0, rows, FEW):
        parts.append(small.step({"items": table.slice(start, FEW)}))

    assert contents(sliced) == contents(parts)
    more = items(2, rows)
    sliced.append(large.step({"items": more}))
    sliced.append(large.step({"items": table.append_column("weight", pa.array([-1] * rows))}))
    fresh = circuit_of(VIEWS)
    expected = [fresh.step({"kinds": KINDS})]
    for start in range(0, rows, FEW):
        expected.append(fresh.step({"items": more.slice(start, FEW)}))
    assert contents(sliced) == contents(expected)


@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.integers(0, 2), st.integers(0, 2)), st.integers(1, 3), min_size=1
        ),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_rows_collected_by_slice_are_the_sum_of_the_slices(
    slices: list[dict[tuple[int, int], int]], are_in_order: bool
) -> None:
    zsets = [ZSet.from_rows(list(rows), list(rows.values())) for rows in slices]
    if are_in_order:
        zsets.sort(key=lambda zset: min(zset.to_dict()))
    total = ZSet.empty(2)
    collected = CollectedRows(2, sum(map(len, zsets)) + 1)
    for zset in zsets:
        total = total + zset
        collected.append(zset)

    result = collected.to_zset()

    result._check()
    assert result == total


def test_weights_of_collected_rows_do_not_wrap_around() -> None:
    row = ZSet.from_rows([(1,)], [MAX_INT64])
    collected = CollectedRows(1, 2)
    collected.append(row)
    collected.append(row)
    with pytest.raises(WeightOverflowError):
        collected.to_zset()


def test_weights_count_as_repeated_rows() -> None:
    table = items(3)
    weights = pa.array(np.random.default_rng(4).integers(1, 4, ROWS))
    weighted, repeated = circuit_of(VIEWS), circuit_of(VIEWS)

    step = weighted.step({"items": table.append_column("weight", weights), "kinds": KINDS})
    expected = [repeated.step({"kinds": KINDS})]
    rows = table.take(pa.array(np.repeat(np.arange(ROWS), weights.to_numpy())))
    for start in range(0, len(rows), FEW):
        expected.append(repeated.step({"items": rows.slice(start, FEW)}))

    assert contents([step]) == contents(expected)


def test_an_error_in_the_last_slice_leaves_nothing() -> None:
    views = VIEWS | {"numbers": NUMBERS}
    circuit, reference = circuit_of(views), circuit_of(views)
    table = items(5)
    lengths = circuit.graph.codecs.lengths()

    with pytest.raises(EvaluationError, match="ew"):
        circuit.step({"items": pa.concat_tables([table, WRONG]), "kinds": KINDS})

    assert circuit.graph.steps == 0
    assert circuit.graph.codecs.lengths() == lengths
    assert all(trace.is_empty for trace in circuit.graph.traces.values())
    few = items(6, 100)
    assert contents([circuit.step({"items": few, "kinds": KINDS})]) == contents(
        [reference.step({"items": few, "kinds": KINDS})]
    )


def test_rows_that_cancel_are_not_evaluated() -> None:
    circuit = circuit_of({"v": NUMBERS})
    table = pa.concat_tables([items(7), WRONG, WRONG])
    weights = pa.array([1] * ROWS + [1, -1])

    step = circuit.step({"items": table.append_column("weight", weights)})

    assert sum(contents([step])["v"].values()) == ROWS


def test_a_step_of_one_slice_sorts_only_the_rows_that_pass_a_filter() -> None:
    circuit, sorted_rows = circuit_of({"v": "SELECT id, n FROM items WHERE n = 5"}), SortedRows()
    table = items(8, MIN_UNSORTED_ROWS)

    with observing(sorted_rows):
        circuit.step({"items": table})

    assert sorted_rows.sorts == [table.column("n").to_pylist().count(5)]


AGGREGATED_MAP = (
    "SELECT abs(k) AS k, count(*) AS rows, count(x * x) AS present, "
    "count(DISTINCT x * x) AS squares, sum(DISTINCT x * x) AS total, min(x * x) AS least "
    "FROM t GROUP BY abs(k)"
)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from([-1, 1, 2]), st.sampled_from([None, -2, 1, 2]), st.sampled_from([-2, -1, 1])
    ),
    max_size=5,
)


def aggregate_in_python(weights: Counter[tuple[int, int | None]]) -> set[tuple[object, ...]]:
    """The rows of AGGREGATED_MAP; values of negative weight are absent."""
    rows: set[tuple[object, ...]] = set()
    for k in {k for k, _ in weights}:
        values = {x: weight for (key, x), weight in weights.items() if key == k}
        present = sum(weight for x, weight in values.items() if x is not None)
        squares = [x for x, weight in values.items() if x is not None and weight > 0]
        if sum(values.values()) > 0:
            total = sum(squares) if squares else None
            least = min(squares) if squares else None
            rows.add((k, sum(values.values()), present, len(squares), total, least))
    return rows


@given(steps=st.lists(CHANGES, min_size=1, max_size=4))
def test_an_aggregate_of_a_map_is_that_of_all_rows(steps: list[list[tuple[int, int, int]]]) -> None:
    circuit = compile_sql(AGGREGATED_MAP, {"t": "k bigint, x bigint"})
    assert find_unsorted_nodes(circuit.graph.nodes, set(circuit.graph.views.values()))
    weights: Counter[tuple[int, int | None]] = Counter()
    outputs = []
    for changes in steps:
        rows = [{"k": k, "x": x, "weight": weight} for k, x, weight in changes]
        outputs.append(circuit.step({"t": rows}))
        for k, x, weight in changes:
            weights[abs(k), None if x is None else x * x] += weight
        assert contents(outputs)["view"] == Counter(aggregate_in_python(weights))


def test_a_map_that_only_aggregates_read_is_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = compile_sql(AGGREGATED_MAP, {"t": "k bigint, x bigint"})
    circuit.step({"t": [{"k": 1, "x": 1}]})
    sorts: list[int] = []

    def sort(rows: np.ndarray, weights: np.ndarray) -> ZSet:
        sorts.append(len(weights))
        return consolidated_rows(rows, weights)

    monkeypatch.setattr(linear, "consolidated_rows", sort)
    circuit.step({"t": [{"k": k, "x": k} for k in range(9)]})

    assert sorts == []


def test_a_map_that_is_a_view_or_joined_is_sorted() -> None:
    mapped = "CREATE VIEW mapped AS SELECT abs(k) AS k FROM t;"
    counted = "CREATE VIEW counted AS SELECT k, count(*) AS n FROM mapped GROUP BY k;"
    joined = "CREATE VIEW joined AS SELECT a.k FROM mapped a JOIN t b ON a.k = b.k;"
    for outputs, is_unsorted in ((["counted"], True), (["mapped", "counted"], False)):
        circuit = compile_sql(mapped + counted, {"t": "k bigint"}, outputs=outputs)
        published = {circuit.graph.views[name] for name in outputs}
        assert bool(find_unsorted_nodes(circuit.graph.nodes, published)) is is_unsorted
    # The aggregate would sort the rows (k, x) itself.
    least = "SELECT abs(k) AS k, min(abs(x)) AS least FROM t GROUP BY abs(k)"
    circuit = compile_sql(least, {"t": "k bigint, x bigint"})
    assert not find_unsorted_nodes(circuit.graph.nodes, set(circuit.graph.views.values()))
    circuit = compile_sql(mapped + counted + joined, {"t": "k bigint"})
    assert not find_unsorted_nodes(circuit.graph.nodes, set())


def test_a_load_sorts_no_more_rows_than_a_slice_at_once() -> None:
    circuit, sorted_rows = circuit_of({"v": AGGREGATE}), SortedRows()

    with observing(sorted_rows):
        circuit.step({"items": items(8)})

    # Per row: its count, a NULL, and up to two digits of each of the two sums.
    assert max(sorted_rows.sorts) <= 6 * SLICE_ROWS


def test_a_step_of_one_slice_adds_up_no_partial_aggregates(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit, calls = circuit_of({"v": AGGREGATE}), []

    def count(*arrays: np.ndarray) -> ZSet:
        calls.append(arrays)
        return consolidated_rows(*arrays)

    monkeypatch.setattr(partial_sum, "consolidated_rows", count)
    monkeypatch.setattr(partial_sum, "store", count)
    (one_slice,) = contents([circuit.step({"items": items(8, MIN_UNSORTED_ROWS)})]).values()
    assert calls == [] and one_slice


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("aggregates", [1, 3])
def test_the_first_buffers_of_all_aggregates_and_threads_have_the_size_of_one(
    monkeypatch: pytest.MonkeyPatch, threads: int, aggregates: int
) -> None:
    sizes: set[tuple[int, int]] = set()

    def create(
        arity: int, buffer_bytes: int, summands: int, first_bytes: int
    ) -> partial_sum.PartialSum:
        sizes.add((buffer_bytes, first_bytes))
        return partial_sum.PartialSum(arity, buffer_bytes, summands, first_bytes=first_bytes)

    monkeypatch.setattr(linear_stage, "PartialSum", create)
    views = "".join(
        f"CREATE VIEW v{k} AS SELECT n + {k} AS n, count(*) AS c FROM items GROUP BY n + {k};"
        for k in range(aggregates)
    )
    circuit = compile_sql(views, {"items": SCHEMA}, threads=threads)
    circuit.step({"items": items(8)})
    most = partial_sum.BUFFER_BYTES // threads
    assert sizes == {(most, most // aggregates)}


def test_the_limit_of_bytes_counts_the_values_of_all_slices() -> None:
    circuit = compile_sql(
        "SELECT repeat(kind, 100) AS texts FROM items",
        {"items": SCHEMA},
        limits=StepLimits(max_step_bytes=1_000_000),
    )

    # A slice has 1.6 MB of texts, all rows have 27 MB. The limit adds the 5 MB of the input.
    with pytest.raises(StepLimitError, match="max_step_bytes"):
        circuit.step({"items": items(11)})


def test_a_replayed_step_has_the_same_digests_in_any_order() -> None:
    circuit = circuit_of({"v": AGGREGATE})
    table = items(9)
    order = np.random.default_rng(10).permutation(ROWS)
    step = circuit.prepare({"items": table})
    digests = step.digests
    step.commit()

    assert circuit.digests({"items": table.take(pa.array(order))}) == digests
    assert circuit.digests({"items": table.slice(1)}) != digests


def test_a_column_that_nobody_reads_is_not_gathered() -> None:
    class Columns(list[np.ndarray]):
        def __init__(self, columns: Sequence[np.ndarray]) -> None:
            super().__init__(columns)
            self.read: list[int] = []

        def __getitem__(self, index):  # type: ignore[no-untyped-def, override]
            self.read.append(index)
            return super().__getitem__(index)

    columns = Columns([np.arange(4), np.arange(4) * 10, np.arange(4) * 100])
    rows = RowSlice(columns, np.array([1, 2, 3, 4])).select(np.array([0, 2, 3]))
    rows = rows.select(np.array([1, 2]))

    assert rows.row_array[1].tolist() == rows.row_array[1].tolist() == [20, 30]
    assert rows.weight_array.tolist() == [3, 4]
    assert columns.read == [1]


AGGREGATED_JOIN = (
    "SELECT o.region, count(*) AS rows, sum(l.quantity * l.price) AS total, sum(o.tax) AS tax "
    "FROM lines l LEFT JOIN orders o ON l.number = o.number GROUP BY o.region"
)
JOIN_SCHEMAS = {
    "lines": "number bigint, quantity bigint, price bigint",
    "orders": "number bigint, region bigint, tax bigint",
}
JOIN_CHANGES = st.fixed_dictionaries(
    {
        name: st.lists(
            st.tuples(
                st.sampled_from([1, 2]),
                st.sampled_from([None, 3]),
                st.sampled_from([None, 5, 6]),
                st.sampled_from([-1, 1, 2]),
            ),
            max_size=4,
        )
        for name in JOIN_SCHEMAS
    }
)


def join_circuit() -> Circuit:
    """A circuit in which the rows of a join are decoded for a map or an aggregate."""
    circuit = compile_sql(AGGREGATED_JOIN, JOIN_SCHEMAS)
    nodes = circuit.graph.nodes
    unsorted_nodes = find_unsorted_nodes(nodes, set(circuit.graph.views.values()))
    kinds = {type(nodes[position].operator) for position in unsorted_nodes}
    assert kinds == {RowIdDecodeOperator, linear.MapOperator}
    return circuit


@given(steps=st.lists(JOIN_CHANGES, min_size=1, max_size=4))
def test_an_aggregate_of_decoded_rows_is_that_of_all_rows(
    steps: list[dict[str, list[tuple[int, int | None, int | None, int]]]],
) -> None:
    live, outputs = join_circuit(), []
    total: dict[str, list[dict[str, int | None]]] = {name: [] for name in JOIN_SCHEMAS}
    for changes in steps:
        tables = {}
        for name, rows in changes.items():
            columns = (*JOIN_SCHEMAS[name].replace(" bigint", "").split(", "), "weight")
            tables[name] = [dict(zip(columns, row, strict=True)) for row in rows]
            total[name] += tables[name]
        outputs.append(live.step(tables))

    # The observer makes this circuit compute all deltas as sorted Z-sets.
    whole = join_circuit()
    whole.observe(lambda name, kind, views: None)
    assert contents(outputs) == contents([whole.step(total)])


@pytest.mark.parametrize("rows", [9, MIN_UNSORTED_ROWS])
def test_decoded_rows_that_only_aggregates_read_are_not_sorted(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    circuit = join_circuit()
    numbers = np.arange(rows)
    orders = pa.table({"number": numbers, "region": numbers % 3, "tax": numbers})
    lines = pa.table({"number": numbers, "quantity": numbers, "price": numbers})
    circuit.step({"orders": orders, "lines": lines})
    sorts: list[int] = []

    def sort(rows: np.ndarray, weights: np.ndarray) -> ZSet:
        sorts.append(len(rows))
        return consolidated_rows(rows, weights)

    monkeypatch.setattr(linear, "consolidated_rows", sort)
    monkeypatch.setattr(late_materialization, "consolidated_rows", sort)
    circuit.step({"lines": lines})

    assert max(sorts) == 2  # the encoded rows (number, row id); decoded rows have more columns
