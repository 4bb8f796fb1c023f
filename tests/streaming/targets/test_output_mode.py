"""Output modes: the table that a target receives, against dictionaries of rows."""

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


def difference(after: Counter, before: Counter) -> pa.Table:
    return table_of((r, after[r] - before[r]) for r in {*after, *before} if after[r] != before[r])


def unique(bag: dict) -> Counter:
    return Counter({row: 1 for row in {row[:2]: row for row in bag}.values()})


def of(rows, keys=("nr",), view="waiting"):
    return lambda after: OutputMode("upsert", keys).changes(view, rows, PostStepTable(after))


@given(st.lists(BAGS.map(unique), min_size=1, max_size=5))
def test_upserts_folded_by_key_are_the_view(bags):
    before: Counter = Counter()
    given_out = []
    for after in bags:
        step = difference(after, before)
        given_out.append(
            OutputMode("upsert", KEYS).changes("v", step, PostStepTable(table_of(after.items())))
        )
        before = after
        assert counted(fold_upserts(given_out, KEYS)) == after
        folded_by_hand = {row[:2]: (row, w) for t in given_out for row, w in weighted(t)}
        assert {row for row, w in folded_by_hand.values() if w > 0} == set(after)


def weighted(table: pa.Table) -> list:
    return [(row, weight) for row, weight in counted(table).items()]


@given(BAGS.map(unique), BAGS.map(unique))
def test_an_upsert_has_each_touched_key_once_and_only_those(before, after):
    step = difference(after, before)

    out = OutputMode("upsert", KEYS).changes("v", step, PostStepTable(table_of(after.items())))

    touched = {row[:2] for row in {*before, *after} if before[row] != after[row]}
    assert sorted((row[:2] for row in counted(out)), key=repr) == sorted(touched, key=repr)
    for row, weight in counted(out).items():
        assert weight == (1 if row in after else -1)
        assert weight == 1 or row in before
    assert out.schema == step.schema


@given(BAGS, BAGS)
def test_a_step_after_which_a_touched_key_has_not_one_row_is_refused(before, after):
    before, after = Counter(before), Counter(after)
    step = difference(after, before)
    touched = {row[:2] for row in {*before, *after} if before[row] != after[row]}
    rows_of_key = Counter(row[:2] for row in after.elements())
    broken = any(rows_of_key[key] > 1 for key in touched)
    state = PostStepTable(table_of(after.items()))

    if not broken:
        OutputMode("upsert", KEYS).changes("v", step, state)
        return
    with pytest.raises(TargetError, match=r"one row for every \(k, s\)"):
        OutputMode("upsert", KEYS).changes("v", step, state)


def test_two_rows_of_a_key_are_named_with_the_view_the_key_and_the_way_out():
    here = pa.table({"nr": [7, 7], "item": ["lamp", "desk"], "weight": [1, 1]})

    with pytest.raises(TargetError) as raised:
        of(here.slice(1))(here)

    message = str(raised.value)
    assert "view 'waiting'" in message
    assert "nr = 7" in message
    assert "'lamp'" in message and "'desk'" in message
    assert "mode='delta' or mode='complete'" in message and "item" in message


def test_two_rows_of_a_key_are_named_where_python_has_no_such_date():
    far = pa.array([3 * 10**6, -800_000], pa.int32()).view(pa.date32())
    here = pa.table({"nr": [7, 7], "due": far, "weight": [1, 1]})

    with pytest.raises(TargetError, match=r"10183-09-21.*0222-09-04 \(BC\)"):
        of(here.slice(1))(here)


def test_a_row_of_weight_two_or_minus_one_is_refused():
    for weight in (2, -1):
        rows = pa.table(
            {"nr": [None], "weight": [weight]}, pa.schema({"nr": "int8", "weight": "int64"})
        )
        with pytest.raises(TargetError, match=f"nr = NULL has .* with weight {weight}"):
            of(rows)(rows)


def test_nan_and_null_are_keys_like_others():
    schema = pa.schema({"x": pa.float64(), "n": pa.int64(), "weight": pa.int64()})
    after = pa.table([[float("nan"), None], [1, 2], [1, 1]], schema)
    step = pa.table([[float("nan"), float("nan"), None], [0, 1, 2], [-1, 1, 1]], schema)

    out = of(step, ["x"])(after)

    assert out.column("n").to_pylist() == [1, 2]
    assert out.column("weight").to_pylist() == [1, 1]


def test_delta_is_the_delta_and_complete_the_whole_view():
    step, whole = table_of([((1, "a", 0.5), 1)]), table_of([((1, "a", 0.5), 3)])

    assert OutputMode().changes("v", step) is step
    assert OutputMode("complete").changes("v", step, PostStepTable(whole)).equals(whole)
    assert not OutputMode().needs_view
    assert OutputMode("complete").needs_view and OutputMode("upsert", ["k"]).needs_view


def test_a_view_that_is_not_materialized_is_refused():
    with pytest.raises(TargetError, match=r"materialize=\['v'\]"):
        OutputMode("complete").changes("v", table_of([]))


def test_a_key_that_is_no_column_is_refused_with_the_columns():
    OutputMode("upsert", ["k", "s"]).check("v", SCHEMA.names)

    with pytest.raises(TargetError, match=r"'nr' .* columns are k, s, x"):
        OutputMode("upsert", ["k", "nr"]).check("v", SCHEMA.names)


@pytest.mark.parametrize(
    ("mode", "keys"),
    [
        ("append", ()),
        ("delta", ("k",)),
        ("complete", ("k",)),
        ("upsert", ()),
        ("upsert", ("k", "k")),
    ],
)
def test_modes_and_keys_that_do_not_go_together_are_refused(mode, keys):
    with pytest.raises(TargetError):
        OutputMode(mode, keys)


def test_only_touched_keys_are_looked_up():
    asked = []

    class After(PostStepTable):
        def rows_of(self, keys):
            asked.extend(keys.to_pylist())
            return super().rows_of(keys)

    schema = pa.schema({"nr": pa.int64(), "n": pa.int64(), "weight": pa.int64()})
    view = pa.table([list(range(100)), [1] * 100, [1] * 100], schema)
    step = pa.table([[5, 5, 200], [0, 1, 1], [-1, 1, -1]], schema)

    out = OutputMode("upsert", ["nr"]).changes("v", step, After(view))

    assert sorted(row["nr"] for row in asked) == [5, 200]
    assert out.to_pylist() == [
        {"nr": 5, "n": 1, "weight": 1},
        {"nr": 200, "n": 1, "weight": -1},
    ]


@pytest.mark.parametrize(
    "type_",
    [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.string_view())],
    ids=str,
)
def test_texts_in_views_are_keys_and_values(type_):
    plain = pa.binary() if type_ == pa.binary_view() else pa.string()
    column = pa.array(["a", "b"], plain)
    if pa.types.is_dictionary(type_):
        column = pa.DictionaryArray.from_arrays(
            pa.array([0, 1], pa.int8()), column.cast("string_view")
        )
    else:
        column = column.cast(type_)
    rows = pa.table({"k": column, "v": column, "weight": [1, -1]})

    out = of(rows, ["k"])(rows.slice(0, 1))

    assert out.schema == rows.schema
    assert out.to_pylist() == rows.to_pylist()
