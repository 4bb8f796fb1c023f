"""Relations as prefix extenders, against a scan of their rows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj.errors import (
    ArityError,
    ColumnTypeError,
    UnsafeVariableError,
    VariableOrderError,
    WeightError,
)
from dbsp_wcoj.query import Query
from dbsp_wcoj.reference.extenders import RelationExtender

VALUES = st.integers(0, 3)
RELATIONS = st.integers(1, 3).flatmap(
    lambda arity: st.dictionaries(st.tuples(*[VALUES] * arity), st.integers(-2, 2), min_size=1)
)


@given(RELATIONS, st.data())
def test_count_propose_and_intersect_agree_with_a_scan_of_the_rows(relation, data):
    arity = len(next(iter(relation)))
    levels = data.draw(st.lists(st.integers(0, 4), min_size=arity, max_size=arity))
    level = data.draw(st.sampled_from(levels))
    prefix = data.draw(st.tuples(*[VALUES] * level))
    extensions = data.draw(st.lists(VALUES, unique=True))

    extender = RelationExtender(relation, levels)

    expected = {
        value
        for row, weight in relation.items()
        if weight
        for value in [row[levels.index(level)]]
        if all(row[levels.index(k)] == v for k, v in zip(levels, row, strict=True))
        and all(v == prefix[k] for k, v in zip(levels, row, strict=True) if k < level)
    }
    extender._check()
    assert extender.levels == tuple(sorted(set(levels)))
    assert extender.count(prefix) == len(expected)
    assert extender.propose(prefix) == sorted(expected)
    assert extender.intersect(prefix, extensions) == [
        extension for extension in extensions if extension in expected
    ]


@given(RELATIONS, st.permutations(range(3)))
def test_weight_finds_the_row_within_a_row_over_all_variables(relation, levels):
    arity = len(next(iter(relation)))
    extender = RelationExtender(relation, levels[:arity])

    for row, weight in relation.items():
        full_row = [9, 9, 9]
        for level, value in zip(levels, row, strict=False):
            full_row[level] = value
        assert extender.weight(full_row) == weight
    assert extender.weight([9, 9, 9]) == 0


def test_a_relation_participates_in_the_levels_of_its_columns():
    extender = RelationExtender([(1, 2)], [3, 1])

    assert extender.levels == (1, 3)
    assert [extender.participates(level) for level in range(5)] == [False, True, False, True, False]


def test_plain_rows_weigh_one_each_and_equal_rows_add_up():
    extender = RelationExtender(["a", "b", "a"], [0])

    assert extender.weight(["a"]) == 2


def test_rows_of_weight_zero_are_dropped():
    extender = RelationExtender({(1, 2): 0, (1, 3): 1, (4, 5): 0}, [0, 1])

    assert extender.propose(()) == [1]
    assert extender.propose((1,)) == [3]


def test_columns_of_one_level_must_agree():
    extender = RelationExtender({(1, 1): 5, (1, 2): 7, (3, 3): 0}, [0, 0])

    assert extender.propose(()) == [1]
    assert extender.weight((1,)) == 5


def test_an_atom_selects_by_its_constants_and_takes_the_levels_of_its_variables():
    atom = Query.parse("q(y) :- r(y, 'k', x, y)").body[0]
    relation = {(1, "k", 5, 1): 3, (1, "k", 6, 2): 1, (2, "j", 5, 2): 1, (2, "k", 4, 2): -1}

    extender = RelationExtender.for_atom(atom, relation, ["x", "z", "y"])

    assert extender.levels == (0, 2)
    assert extender.propose(()) == [4, 5]
    assert extender.weight((5, "anything", 1)) == 3


@pytest.mark.parametrize(("relation", "allowed"), [({(1,): 2}, ["x"]), ({(9,): 2}, []), ({}, [])])
def test_an_atom_of_constants_accepts_all_values_or_none_on_level_zero(relation, allowed):
    atom = Query.parse("q() :- r(1)").body[0]

    extender = RelationExtender.for_atom(atom, relation, [])

    assert extender.levels == (0,)
    assert extender.intersect((), ["x"]) == allowed
    assert extender.count(()) == (math.inf if allowed else 0)
    assert extender.weight(()) == relation.get((1,), 0)


def test_an_atom_of_constants_cannot_bind_a_variable():
    with pytest.raises(UnsafeVariableError, match="level 0 meets only an atom without variables"):
        RelationExtender([()], []).propose(())


def test_values_only_need_an_order_and_a_hash():
    extender = RelationExtender({("Ada", 1.5): 1, ("Ada", 0.5): 1, ("Bob", 2.0): 1}, [1, 0])

    assert extender.propose(()) == [0.5, 1.5, 2.0]


@pytest.mark.parametrize(
    ("relation", "error", "message"),
    [
        ({(1, 2, 3): 1}, ArityError, r"row \(1, 2, 3\) has 3 values for 2 columns"),
        ({(1, 2): 1.5}, WeightError, r"weight 1.5 of row \(1, 2\) is not an integer"),
        ({(1, 2): 1, ("a", 2): 1}, ColumnTypeError, "level 0 holds values without an order"),
        ({(1, 2): 1, (1, "a"): 1}, ColumnTypeError, "level 1 holds values without an order"),
    ],
)
def test_rows_that_do_not_fit_are_refused(relation, error, message):
    with pytest.raises(error, match=message):
        RelationExtender(relation, [0, 1])


def test_an_atom_refuses_rows_of_another_arity_and_orders_without_its_variables():
    atom = Query.parse("q(x) :- r(x, 1)").body[0]

    with pytest.raises(ArityError, match=r"row \(5,\) has 1 values, but 'r\(x, 1\)' has arity 2"):
        RelationExtender.for_atom(atom, {(5,): 1}, ["x"])
    with pytest.raises(VariableOrderError, match=r"\['x'\] of 'r\(x, 1\)' are not in the order"):
        RelationExtender.for_atom(atom, {}, ["y"])
