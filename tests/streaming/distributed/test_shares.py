"""HyperCube shares against a search through all shares; the deltas of cells add up to the delta."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Query
from dbsp_wcoj.query import Atom as QueryAtom
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.shares import JoinAtom, choose_shares
from streaming.errors import StreamingError
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles.naive import add

NAMES = "abcd"
QUERIES = (
    "n() :- e(a, b), e(b, c), e(a, c)",
    "q(a, b, c) :- e(a, b), e(b, c), e(a, c)",
    "q(a, c) :- e(a, b), f(b, c)",
    "n() :- e(a, b), f(b, c), e(c, d)",
    "q(a, b, c) :- e(a, b), e(b, a), f(b, c), a < c",
    "n() :- e(a, a), f(a, b)",
    "q(a, b, c, d) :- e(a, b), f(c, d)",
)


def atoms_of(query: Query, sizes: dict[str, float]) -> list[JoinAtom]:
    return [
        JoinAtom(atom.relation, {v.name: k for k, v in enumerate(atom.terms)}, sizes[atom.relation])
        for atom in query.body
    ]


def least_load(atoms: list[JoinAtom], cells: int) -> float:
    """Return the least load, by trying all shares of all variables."""
    names = sorted({name for atom in atoms for name in atom.columns})
    loads = []
    for parts in itertools.product(range(1, cells + 1), repeat=len(names)):
        if math.prod(parts) <= cells:
            share = dict(zip(names, parts, strict=True))
            loads.append(sum(a.rows / math.prod(share[n] for n in a.columns) for a in atoms))
    return min(loads)


ATOMS = st.lists(
    st.builds(
        lambda relation, names, rows: JoinAtom(relation, {v: k for k, v in enumerate(names)}, rows),
        st.sampled_from("rst"),
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
        st.integers(1, 1000),
    ),
    min_size=1,
    max_size=4,
)


@LAW
@given(ATOMS, st.integers(1, 13))
def test_the_chosen_shares_have_the_least_load(atoms, cells):
    result = choose_shares(atoms, cells)
    assert result.cells <= cells
    assert result.load == pytest.approx(least_load(atoms, cells))


def test_shares_of_a_triangle_are_equal_and_small_relations_are_sent_to_all():
    edges = [JoinAtom("e", {x: 0, y: 1}) for x, y in ("ab", "bc", "ac")]
    assert dict(choose_shares(edges, 64).by_variable) == {"a": 4, "b": 4, "c": 4}
    assert choose_shares(edges, 64).load == 3 / 16
    star = [JoinAtom("fact", {"k": 0, "x": 1}, 10**6), JoinAtom("small", {"x": 0}, 10)]
    assert choose_shares(star, 8).replication(star[1]) * 10 < 10**3
    with pytest.raises(StreamingError, match="cells=0"):
        choose_shares(edges, 0)


def test_shares_of_thousands_of_cells_and_many_variables_are_found_among_powers_of_two():
    cycle = [JoinAtom("e", {f"v{i}": 0, f"v{(i + 1) % 7}": 1}) for i in range(7)]
    result = choose_shares(cycle, 4096)
    assert result.cells == 4096


def coordinate(value: int, variable: int, parts: int) -> int:
    return (value * 2654435761 + variable * 97 + (value >> 3)) % 1_000_003 % parts


def readers_of(grid: Grid, relation: str, row: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Return the pairs (cell, position of an atom) that need a row, each with weight 1."""
    numbers = {name: number for number, name in enumerate(grid.shares.by_variable)}
    readers = {}
    for number, atom in enumerate(grid.shares.atoms):
        if atom.relation != relation:
            continue
        result: dict[str, int] = {}
        for name, place in atom.columns.items():
            result[name] = coordinate(row[place], numbers[name], grid.shares.by_variable[name])
        home = grid.home(atom, result)
        for offset in grid.offsets(atom):
            readers[home + offset, number] = 1
    return readers


def unrolled(query: Query) -> Query:
    """Return the query with a separate relation for each atom."""
    body = tuple(
        QueryAtom(f"{atom.relation}_{number}", atom.terms) for number, atom in enumerate(query.body)
    )
    return Query(query.name, query.head, body, query.comparisons)


@LAW
@given(st.data())
def test_the_deltas_of_the_cells_add_up_to_the_delta_of_the_view(data):
    query = Query.parse(data.draw(st.sampled_from(QUERIES)))
    domain = data.draw(st.sampled_from(DOMAINS))
    cells = data.draw(st.sampled_from([1, 2, 3, 4, 8, 12]))
    sizes = {name: data.draw(st.integers(1, 9)) for name in query.relations}
    grid = Grid(choose_shares(atoms_of(query, sizes), cells))
    whole = DeltaQuery(query)
    own = [DeltaQuery(unrolled(query)) for _ in range(grid.cells)]
    for _ in range(data.draw(st.integers(1, 4))):
        deltas = {name: data.draw(relation_deltas(2, domain)) for name in query.relations}
        parts: list[dict] = [{} for _ in own]
        for name, delta in deltas.items():
            for row, weight in delta.items():
                for cell, number in readers_of(grid, name, row):
                    parts[cell].setdefault(f"{name}_{number}", {})[row] = weight
        actual = [
            view.step({name: zset(rows, arity=2) for name, rows in part.items()}).to_dict()
            for view, part in zip(own, parts, strict=True)
        ]
        expected = whole.step({name: zset(delta, arity=2) for name, delta in deltas.items()})
        assert add(*actual) == expected.to_dict()


def test_copies_are_as_predicted():
    edges = [JoinAtom("e", {x: 0, y: 1}) for x, y in ("ab", "bc", "ac")]
    rows = np.random.default_rng(1).integers(0, 1 << 30, (4000, 2)).tolist()
    for cells in (4, 8, 27, 64):
        grid = Grid(choose_shares(edges, cells))
        sizes = [len({cell for cell, _ in readers_of(grid, "e", (x, y))}) for x, y in rows]
        assert np.mean(sizes) == pytest.approx(grid.shares.copies("e"), rel=0.05)
