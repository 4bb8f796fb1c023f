"""Output modes: the table that a target receives, compared with dictionaries of rows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.errors import TargetError
from streaming.targets.output_mode import OutputMode, PostStepTable, fold_upserts
from tests.generators.view_histories import KEYS, ROWS, SCHEMA, counted, table_of

BAGS = st.dictionaries(ROWS, st.integers(1, 2), max_size=6)


def delta_of(after: Counter, before: Counter) -> pa.Table:
    return table_of((r, after[r] - before[r]) for r in {*after, *before} if after[r] != before[r])


def one_row_per_key(bag: dict) -> Counter:
    return Counter({row: 1 for row in {row[:2]: row for row in bag}.values()})


def upserts(delta, after, keys=("nr",)):
    """Return the upserts of a delta of the view that has the rows ``after``."""
    return OutputMode("upsert", keys).changes("waiting", delta, PostStepTable(after))


@given(st.lists(BAGS.map(one_row_per_key), min_size=1, max_size=5))
def test_upserts_folded_by_key_are_the_view(bags):
    before: Counter = Counter()
    received = []
    for after in bags:
        step = delta_of(after, before)
        received.append(
            OutputMode("upsert", KEYS).changes("v", step, PostStepTable(table_of(after.items())))
        )
        before = after
        assert counted(fold_upserts(received, KEYS)) == after
        folded_by_hand = {row[:2]: (row, w) for t in received for row, w in weighted(t)}
        assert {row for row, w in folded_by_hand.values() if w > 0} == set(after)


def weighted(table: pa.Table) -> list:
    return [(row, weight) for row, weight in counted(table).items()]


@given(BAGS.map(one_row_per_key), BAGS.map(one_row_per_key))
def test_upserts_have_each_changed_key_exactly_once(before, after):
    step = delta_of(after, before)

    out = OutputMode("upsert", KEYS).changes("v", step, PostStepTable(table_of(after.items())))

    changed = {row[:2] for row in {*before, *after} if before[row] != after[row]}
    assert sorted((row[:2] for row in counted(out)), key=repr) == sorted(changed, key=repr)
    for row, weight in counted(out).items():
        assert weight == (1 if row in after else -1)
        assert weight == 1 or row in before
    assert out.schema == step.schema


@given(BAGS, BAGS)
def test_a_step_that_leaves_a_changed_key_with_two_rows_is_refused(before, after):
    before, after = Counter(before), Counter(after)
    step = delta_of(after, before)
    changed = {row[:2] for row in {*before, *after} if before[row] != after[row]}
    rows_of_key = Counter(row[:2] for row in after.elements())
    is_refused = any(rows_of_key[key] > 1 for key in changed)
    state = PostStepTable(table_of(after.items()))

    if not is_refused:
        OutputMode("upsert", KEYS).changes("v", step, state)
        return
    with pytest.raises(TargetError, match=r"one row for every \(k, s\)"):
        OutputMode("upsert", KEYS).changes("v", step, state)


def test_an_error_for_two_rows_of_a_key_names_them_and_a_remedy():
    view = pa.table({"nr": [7, 7], "item": ["lamp", "desk"], "weight": [1, 1]})

    with pytest.raises(TargetError) as raised:
        upserts(view.slice(1), view)

    message = str(raised.value)
    assert "view 'waiting'" in message
    assert "nr = 7" in message
    assert "'lamp'" in message and "'desk'" in message
    assert "mode='delta' or mode='complete'" in message and "item" in message


def test_an_error_for_two_rows_of_a_key_shows_dates_that_python_cannot_represent():
    dates = pa.array([3 * 10**6, -800_000], pa.int32()).view(pa.date32())
    view = pa.table({"nr": [7, 7], "due": dates, "weight": [1, 1]})

    with pytest.raises(TargetError, match=r"10183-09-21.*0222-09-04 \(BC\)"):
        upserts(view.slice(1), view)


def test_a_row_of_weight_two_or_minus_one_is_refused():
    for weight in (2, -1):
        rows = pa.table(
            {"nr": [None], "weight": [weight]}, pa.schema({"nr": "int8", "weight": "int64"})
        )
        with pytest.raises(TargetError, match=f"nr = NULL has .* with weight {weight}"):
            upserts(rows, rows)


def test_nan_and_null_are_keys_like_other_values():
    schema = pa.schema({"x": pa.float64(), "n": pa.int64(), "weight": pa.int64()})
    after = pa.table([[float("nan"), None], [1, 2], [1, 1]], schema)
    step = pa.table([[float("nan"), float("nan"), None], [0, 1, 2], [-1, 1, 1]], schema)

    out = upserts(step, after, ["x"])

    assert out.column("n").to_pylist() == [1, 2]
    assert out.column("weight").to_pylist() == [1, 1]


def test_delta_is_the_delta_and_complete_the_whole_view():
    step, view = table_of([((1, "a", 0.5), 1)]), table_of([((1, "a", 0.5), 3)])

    assert OutputMode().changes("v", step) is step
    assert OutputMode("complete").changes("v", step, PostStepTable(view)).equals(view)
    assert not OutputMode().needs_view
    assert OutputMode("complete").needs_view and OutputMode("upsert", ["k"]).needs_view


def test_a_view_that_is_not_materialized_is_refused():
    with pytest.raises(TargetError, match=r"materialize=\['v'\]"):
        OutputMode("complete").changes("v", table_of([]))


def test_an_unknown_key_column_is_refused_and_the_columns_named():
    OutputMode("upsert", ["k", "s"]).check("v", SCHEMA.names)

    with pytest.raises(TargetError, match=r"'nr' .* columns are k, s, x"):
        OutputMode("upsert", ["k", "nr"]).check("v", SCHEMA.names)


@pytest.mark.parametrize(
    ("mode", "keys"),
    [
        ("append", ("k",)),
        ("delta", ("k",)),
        ("complete", ("k",)),
        ("upsert", ()),
        ("upsert", ("k", "k")),
    ],
)
def test_modes_and_keys_that_do_not_go_together_are_refused(mode, keys):
    with pytest.raises(TargetError):
        OutputMode(mode, keys)


def test_only_changed_keys_are_looked_up():
    looked_up = []

    class RecordingTable(PostStepTable):
        def rows_of(self, keys):
            looked_up.extend(keys.to_pylist())
            return super().rows_of(keys)

    schema = pa.schema({"nr": pa.int64(), "n": pa.int64(), "weight": pa.int64()})
    view = pa.table([list(range(100)), [1] * 100, [1] * 100], schema)
    step = pa.table([[5, 5, 200], [0, 1, 1], [-1, 1, -1]], schema)

    out = OutputMode("upsert", ["nr"]).changes("v", step, RecordingTable(view))

    assert sorted(row["nr"] for row in looked_up) == [5, 200]
    assert out.to_pylist() == [
        {"nr": 5, "n": 1, "weight": 1},
        {"nr": 200, "n": 1, "weight": -1},
    ]


@pytest.mark.parametrize(
    "type_",
    [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.string_view())],
    ids=str,
)
def test_string_view_and_binary_view_columns_are_keys_and_values(type_):
    stored_type = pa.binary() if type_ == pa.binary_view() else pa.string()
    column = pa.array(["a", "b"], stored_type)
    if pa.types.is_dictionary(type_):
        column = pa.DictionaryArray.from_arrays(
            pa.array([0, 1], pa.int8()), column.cast("string_view")
        )
    else:
        column = column.cast(type_)
    rows = pa.table({"k": column, "v": column, "weight": [1, -1]})

    out = upserts(rows, rows.slice(0, 1), ["k"])

    assert out.schema == rows.schema
    assert out.to_pylist() == rows.to_pylist()
