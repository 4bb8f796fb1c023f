"""The rows of a materialized view as a prepared step will leave them; digests of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import InputOptions, Retention, UnknownViewError, compile_sql
from tests.support.tables import bag_of

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])
COLUMNS = ("a", "b", "c")
VALUES = st.sampled_from([None, 0, 1, 2])
TEXTS = st.sampled_from([None, "x", "y"])
ROWS = st.lists(st.tuples(VALUES, TEXTS, VALUES, st.sampled_from([-1, 1, 2])), max_size=8)
KEYS = st.sets(st.sampled_from(COLUMNS), min_size=1)


def table(rows):
    columns = list(zip(*rows, strict=True)) or [[], [], [], []]
    return pa.table(list(map(list, columns)), schema=SCHEMA.append(pa.field("weight", pa.int64())))


@given(st.lists(ROWS, min_size=1, max_size=4), KEYS)
def test_a_prepared_step_shows_a_view_as_it_is_after_the_commit(steps, keys):
    circuit = compile_sql("SELECT a, b, c FROM r", {"r": SCHEMA}, name="v", materialize=True)
    for rows in steps:
        step = circuit.prepare({"r": table(rows)})
        after = step.after("v")
        changed_keys = step.outputs["v"].select(sorted(keys)).group_by(sorted(keys)).aggregate([])
        rows_of_keys, all_rows = bag_of(after.rows_of(changed_keys)), bag_of(after.rows())
        step.commit()
        view = bag_of(circuit.views["v"])
        places = [COLUMNS.index(name) for name in sorted(keys)]
        expected = {tuple(row) for row in zip(*changed_keys.to_pydict().values(), strict=True)}
        assert all_rows == view
        assert rows_of_keys == {
            row: weight
            for row, weight in view.items()
            if tuple(row[place] for place in places) in expected
        }


@pytest.mark.parametrize("on_expiry", [None, "retract", "keep"])
def test_a_prepared_step_shows_an_input_as_it_is_after_the_commit(on_expiry):
    options = {}
    if on_expiry is not None:
        options = {"r": InputOptions(retain=Retention("c", 5, on_expiry=on_expiry))}
    circuit = compile_sql(
        "SELECT a, b, c FROM r", {"r": SCHEMA}, materialize=["r"], input_options=options
    )
    for rows in ([(1, "x", 2, 1), (2, "y", 6, 2)], [(3, "z", 9, 1)], [(3, "z", 9, -1)]):
        step = circuit.prepare({"r": table(rows)})
        after = step.after("r").rows()
        step.commit()
        assert bag_of(after) == bag_of(circuit.views["r"])
    assert len(bag_of(circuit.views["r"])) == (2 if on_expiry is None else 1)


def test_a_view_that_is_not_materialized_cannot_be_shown():
    circuit = compile_sql("SELECT a FROM r", {"r": SCHEMA}, name="v")
    with pytest.raises(UnknownViewError, match="materialize"):
        circuit.prepare({}).after("v")


def test_digests_are_equal_for_the_same_rows_in_any_order_only():
    circuit = compile_sql("SELECT a, b FROM r", {"r": SCHEMA}, name="v")
    rows = [(1, "x", 2, 1), (3, "y", 4, 1)]
    step = circuit.prepare({"r": table(rows)})
    step.commit()
    assert circuit.digests({"r": table(rows[::-1])}) == step.digests
    assert circuit.digests({"r": table([(1, "new", 2, 1), rows[1]])}) != step.digests
    # No view reads column c, so its values are not part of the digest.
    assert circuit.digests({"r": table([(1, "x", 9, 1), rows[1]])}) == step.digests
