"""Heavy values: however they are spread, each combination of rows is in exactly one cell."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections import Counter
from itertools import product
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.distributed.execution.placement import hash_values, place_rows
from streaming.distributed.planning import skew
from streaming.distributed.planning.grid import Grid, HeavyGroup
from streaming.distributed.planning.shares import JoinAtom, Shares, choose_shares
from streaming.distributed.planning.skew import (
    _choose_combinations,
    count_values,
    heavy_values,
    skew_grid,
)
from streaming.errors import StreamingError
from tests.generators.strategies import LAW

TRIANGLE = (
    JoinAtom("e", {"a": 0, "b": 1}),
    JoinAtom("e", {"b": 0, "c": 1}),
    JoinAtom("e", {"a": 0, "c": 1}),
)
JOINS: dict[str, tuple[JoinAtom, ...]] = {
    "triangle": TRIANGLE,
    "two by one key, with payloads": (JoinAtom("r", {"k": 0}), JoinAtom("s", {"k": 1})),
    "star": (JoinAtom("f", {"x": 0, "y": 1}), JoinAtom("r", {"x": 0}), JoinAtom("s", {"y": 0})),
    "a pair of keys": (JoinAtom("r", {"k": 0, "l": 1}), JoinAtom("s", {"l": 0, "k": 1})),
    "path": (
        JoinAtom("e", {"a": 0, "b": 1}),
        JoinAtom("r", {"b": 0, "c": 1}),
        JoinAtom("e", {"c": 0, "d": 1}),
    ),
    "loop": (
        JoinAtom("e", {"a": 0}),
        JoinAtom("e", {"a": 0, "b": 1}),
        JoinAtom("e", {"b": 0, "a": 1}),
    ),
    "product": (JoinAtom("r", {"a": 0}), JoinAtom("s", {"b": 0})),
}
VALUE = st.integers(0, 3)
ROWS = st.lists(st.tuples(VALUE, VALUE, VALUE), min_size=1, max_size=7, unique=True)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    """Draw shares, and spread some of the values 0 to 3 in some way."""
    atoms = JOINS[draw(st.sampled_from(sorted(JOINS)))]
    names = sorted({name for atom in atoms for name in atom.columns})
    shares = Shares(atoms, {name: draw(st.integers(1, 6)) for name in names})
    number = {name: position for position, name in enumerate(shares.by_variable)}
    heavy = []
    for name in names:
        tuples = [*product(range(4), repeat=len(shares.together[name]))]
        left = draw(st.permutations(tuples))
        for _ in range(draw(st.integers(0, 2))):
            chosen, left = left[:1], left[1:]
            parts, share = [], shares.by_variable[name]
            for atom in atoms:
                parts.append(draw(st.integers(1, share)) if name in atom.columns else 1)
                share //= parts[-1]
            hashes = hash_values(
                [pa.array(column) for column in zip(*chosen, strict=True)], number[name]
            )
            heavy.append(HeavyGroup(name, tuple(parts), tuple(hashes.tolist())))
    return Grid(shares, tuple(heavy))


def joined(atoms: tuple[JoinAtom, ...], rows: list[list[tuple[int, ...]]]) -> Counter:
    """Return the combinations of rows, one of each atom, that agree on all variables."""
    result: Counter = Counter()
    for combination in product(*rows):
        values: dict[str, int] = {}
        pairs = [
            (name, row[place])
            for atom, row in zip(atoms, combination, strict=True)
            for name, place in atom.columns.items()
        ]
        if all(values.setdefault(name, value) == value for name, value in pairs):
            result[combination] += 1
    return result


@LAW
@given(grids(), st.data())
def test_the_joins_of_the_cells_add_up_to_the_join_whatever_values_are_heavy(grid, data):
    """The sum of the joins of the cells is the join: each combination occurs once."""
    atoms = grid.shares.atoms
    relations = {atom.relation: data.draw(ROWS, atom.relation) for atom in atoms}
    actual: list[list[list]] = [[[] for _ in atoms] for _ in range(grid.cells)]
    for name, rows in relations.items():
        result = place_rows(name, [pa.array(column) for column in zip(*rows, strict=True)], grid)
        readers = [position for position, atom in enumerate(atoms) if atom.relation == name]
        for row, cell, roles in zip(result.rows, result.cells, result.roles, strict=True):
            for bit, position in enumerate(readers):
                if roles >> bit & 1:
                    actual[cell][position].append(rows[row])
    summed: Counter = Counter()
    for cell in actual:
        summed += joined(atoms, cell)
    assert summed == joined(atoms, [relations[atom.relation] for atom in atoms])
    assert Grid.of_json(json.loads(json.dumps(grid.to_json()))) == grid


def hub_graph(edges: int = 4000) -> list[tuple[int, int]]:
    """Return edges, half of which leave node 0."""
    rng = np.random.default_rng(5)
    others = rng.integers(1, edges, (edges // 2, 2)).tolist()
    return [*((0, node) for node in range(1, edges // 2 + 1)), *map(tuple, others)]


def count_stored(grid: Grid, rows: list[tuple[int, int]]) -> np.ndarray:
    """Return the number of rows that each cell stores, summed over the atoms."""
    result = place_rows("e", [pa.array(column) for column in zip(*rows, strict=True)], grid)
    bits = sum((result.roles >> bit) & 1 for bit in range(len(grid.shares.atoms)))
    return np.bincount(result.cells, bits, grid.cells)


@pytest.mark.parametrize("cells", [8, 27, 64, 512])
@pytest.mark.parametrize("to_hub", [False, True])
def test_a_hub_of_half_of_all_edges_leaves_no_cell_with_twice_the_mean(cells, to_hub):
    rows = [(b, a) if to_hub else (a, b) for a, b in hub_graph()]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    shares = choose_shares(TRIANGLE, cells)
    counts = {
        (position, name): count_values([columns[column]])
        for position, atom in enumerate(TRIANGLE)
        for name, column in atom.columns.items()
    }
    grid = skew_grid(shares, counts)
    assert any("0" in heavy.texts for heavy in grid.heavy)
    spread, alone = count_stored(grid, rows), count_stored(Grid(shares), rows)
    assert spread.max() <= 1.3 * spread.mean()
    assert spread.max() < 0.85 * alone.max()
    atoms = tuple(JoinAtom(a.relation, a.columns, float(len(rows))) for a in TRIANGLE)
    predicted = Grid(Shares(atoms, shares.by_variable), grid.heavy).load
    assert predicted == pytest.approx(spread.mean(), rel=0.05)


def test_a_heavy_key_of_a_binary_join_splits_the_rows_of_both_atoms():
    atoms = (JoinAtom("r", {"k": 0}), JoinAtom("s", {"k": 0}))
    key = pa.array([7] * 1000 + [*range(1000)])
    counts = {(place, "k"): count_values([key]) for place in (0, 1)}
    (heavy,) = heavy_values(choose_shares(atoms, 16), counts)
    assert heavy.splits == (4, 4)
    assert heavy.texts == ("7",)


def test_the_memory_of_the_choice_does_not_grow_with_the_number_of_atoms(monkeypatch):
    """Six atoms have thousands of combinations of parts, and each has thousands of values."""
    draw = np.random.default_rng(1)
    atoms = [JoinAtom(f"r{n}", {"k": 0}) for n in range(6)]
    values = [pa.array(draw.zipf(1.3, 20_000) % 10_000) for _ in atoms]
    counts = {(n, "k"): count_values([column]) for n, column in enumerate(values)}
    tracemalloc.start()
    groups = heavy_values(choose_shares(atoms, 64), counts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e8
    monkeypatch.setattr(skew, "MAX_LOADS", 1 << 40)
    assert heavy_values(choose_shares(atoms, 64), counts) == groups


def test_even_values_are_not_spread():
    counts = {(place, "k"): count_values([pa.array(range(5000))]) for place in (0, 1)}
    assert (
        heavy_values(choose_shares([JoinAtom("r", {"k": 0}), JoinAtom("s", {"k": 0})], 8), counts)
        == ()
    )


def test_keys_of_one_group_are_hashed_together():
    atoms = (JoinAtom("r", {"country": 0, "user": 1}), JoinAtom("s", {"country": 1, "user": 0}))
    grid = Grid(choose_shares(atoms, 8))
    rows = [[1] * 800, [*range(800)]]
    result = place_rows("r", [pa.array(column) for column in rows], grid)
    assert Counter(result.cells.tolist()).most_common()[0][1] < 140
    other = place_rows("s", [pa.array(column) for column in reversed(rows)], grid)
    assert result.cells.tolist() == other.cells.tolist()


def test_a_spread_that_does_not_fit_is_refused():
    shares = Shares(TRIANGLE, {"a": 4, "b": 2, "c": 1})
    for heavy in (
        HeavyGroup("a", (3, 1, 2), (1,)),
        HeavyGroup("a", (1, 2, 1), (1,)),
        HeavyGroup("a", (2, 1), (1,)),
        HeavyGroup("z", (1, 1, 1), (1,)),
    ):
        with pytest.raises(StreamingError, match="give one number for each atom"):
            Grid(shares, (heavy,))
    with pytest.raises(StreamingError, match="in two groups of heavy values"):
        Grid(shares, (HeavyGroup("a", (2, 1, 1), (1,)), HeavyGroup("a", (1, 1, 2), (1, 2))))
    assert math.prod(shares.by_variable.values()) == 8


def test_a_hub_of_many_atoms_is_spread():
    atoms = [JoinAtom(f"r{k}", {"v": 0}, 1000.0 + k) for k in range(20)]
    shares = Shares(tuple(atoms), {"v": 256})
    counts = {(k, "v"): count_values([pa.array([7] * 500 + [*range(500)])]) for k in range(20)}
    with patch.object(skew, "MAX_LOADS", 1):  # a table of loads would be slow here
        (group, *_) = heavy_values(shares, counts)
    assert "7" in group.texts and sorted(group.splits) == [1] * 12 + [2] * 8


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(1, 17),
)
def test_doubled_parts_have_the_least_load_of_all_powers_of_two(loads, share):
    numbers = np.array(loads, float)
    with patch.object(skew, "MAX_COMBINATIONS", 0):
        combinations, best, least = _choose_combinations(numbers, share)
    assert (combinations.prod(axis=1) <= share).all()
    assert np.allclose((numbers / combinations[best]).sum(axis=1), least)
    powers = [1, 2, 4, 8, 16]
    for row, load in zip(numbers, least, strict=True):
        assert np.isclose(
            load,
            min(
                sum(row / parts) for parts in product(powers, repeat=3) if math.prod(parts) <= share
            ),
        )
