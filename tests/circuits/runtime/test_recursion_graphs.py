"""Recursive views of graphs that change, against networkx and algorithms of their own, and real
ones: which classes of Kafka depend on which, live over its history.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from circuits import Circuit, compile_datalog
from tests.support.shared_data import needs_data
from tests.support.shared_data import table as shared_table
from tests.support.tables import INT, bag_of, not_null_integers, table_of

EDGE = not_null_integers("src", "dst")
COST = pa.schema([("src", INT), ("dst", INT), ("cost", pa.float64())])
CLOSURE = "tc(x, z) :- e(x, z). tc(x, z) :- e(x, y), tc(y, z)."
COMPONENTS = f"{CLOSURE} scc(x, y) :- tc(x, y), tc(y, x)."
GENERATION = "sg(x, y) :- e(p, x), e(p, y), x != y. sg(x, y) :- e(p, x), sg(p, q), e(q, y)."
PATHS = "sp(x, 0.0) :- source(x). sp(y, min(d + c)) :- sp(x, d), w(x, y, c)."
# Andersen, by PhD thesis of 1994: x = &y, x = y, x = *y, *x = y.
POINTS_TO = """
    pt(x, y) :- address(x, y).
    pt(x, z) :- copy(x, y), pt(y, z).
    pt(x, w) :- load(x, y), pt(y, z), pt(z, w).
    pt(z, w) :- store(x, y), pt(x, z), pt(y, w).
"""


class Edges:
    """A random graph that loses and gets edges."""

    def __init__(self, nodes: int, seed: int, loops: bool = True) -> None:
        self.draw = random.Random(seed)
        self.nodes = range(nodes)
        self.loops = loops
        self.there: set[tuple[int, int]] = set()

    def change(self, size: int) -> pa.Table:
        chosen: dict[tuple[int, int], int] = {}
        while len(chosen) < size:
            lost = self.there and self.draw.random() < 0.45
            edge = (
                self.draw.choice(sorted(self.there))
                if lost
                else (self.draw.choice(self.nodes), self.draw.choice(self.nodes))
            )
            if edge in chosen or not (self.loops or edge[0] < edge[1]):
                continue
            chosen[edge] = -1 if edge in self.there else 1
        self.there.symmetric_difference_update(chosen)
        return table_of(EDGE, chosen, chosen.values())

    @property
    def graph(self) -> nx.DiGraph:
        return nx.DiGraph(self.there)


def pairs(table: pa.Table) -> set[tuple[Any, ...]]:
    found = bag_of(table)
    assert set(found.values()) <= {1}
    return set(found)


def closure(graph: nx.DiGraph) -> set[tuple[int, int]]:
    return {(a, b) for a in graph for c in graph[a] for b in {c} | nx.descendants(graph, c)}


def test_the_closure_is_that_of_networkx_after_every_change():
    edges, circuit = Edges(14, 1), compile_datalog(CLOSURE, {"e": EDGE}, materialize=True)
    for _ in range(40):
        circuit.step({"e": edges.change(2)})
        assert pairs(circuit.views["tc"]) == closure(edges.graph)


def test_strongly_connected_components_are_those_of_networkx():
    edges, circuit = Edges(12, 2), compile_datalog(COMPONENTS, {"e": EDGE}, materialize=True)
    for _ in range(30):
        circuit.step({"e": edges.change(3)})
        expected = {
            (a, b)
            for part in nx.strongly_connected_components(edges.graph)
            for a in part
            for b in part
            if len(part) > 1 or edges.graph.has_edge(a, a)
        }
        assert pairs(circuit.views["scc"]) == expected


def test_two_of_one_generation_have_a_way_up_and_down_of_equal_length():
    edges = Edges(12, 3, loops=False)
    circuit = compile_datalog(GENERATION, {"e": EDGE}, materialize=True)
    for _ in range(25):
        circuit.step({"e": edges.change(2)})
        there = np.zeros((12, 12), bool)
        there[tuple(np.array(sorted(edges.there), np.int64).reshape(-1, 2).T)] = True
        level = (there.T @ there) & ~np.eye(12, dtype=bool)
        expected = level
        for _ in range(12):  # edges go to higher numbers only, so that no way is longer
            level = there.T @ level @ there
            expected = expected | level
        assert pairs(circuit.views["sg"]) == set(map(tuple, np.argwhere(expected).tolist()))


def test_shortest_paths_are_dijkstras_when_costs_change():
    draw = random.Random(5)
    circuit = compile_datalog(
        PATHS, {"w": COST, "source": pa.schema([("n", INT)])}, materialize=True
    )
    circuit.step({"source": table_of(pa.schema([("n", INT)]), [(0,)])})
    graph = nx.DiGraph()
    graph.add_node(0)
    for _ in range(60):
        edge = (draw.randrange(12), draw.randrange(12))
        rows = []
        if graph.has_edge(*edge):
            rows.append(((*edge, graph.edges[edge]["cost"]), -1))
            graph.remove_edge(*edge)
        if draw.random() < 0.8:
            graph.add_edge(*edge, cost=draw.randrange(1, 40) / 4)
            rows.append(((*edge, graph.edges[edge]["cost"]), 1))
        if rows:
            circuit.step({"w": table_of(COST, [r for r, _ in rows], [w for _, w in rows])})
        expected = nx.single_source_dijkstra_path_length(graph, 0, weight="cost")
        assert dict(pairs(circuit.views["sp"])) == expected


def points_to(facts: dict[str, set[tuple[int, int]]]) -> set[tuple[int, int]]:
    """Andersen's analysis by a worklist."""
    points: dict[int, set[int]] = {}
    for x, y in facts["address"]:
        points.setdefault(x, set()).add(y)
    while True:
        before = {x: set(ys) for x, ys in points.items()}
        for x, y in facts["copy"]:
            points.setdefault(x, set()).update(points.get(y, ()))
        for x, y in facts["load"]:
            for z in list(points.get(y, ())):
                points.setdefault(x, set()).update(points.get(z, ()))
        for x, y in facts["store"]:
            for z in list(points.get(x, ())):
                points.setdefault(z, set()).update(points.get(y, ()))
        if before == points:
            return {(x, y) for x, ys in points.items() for y in ys}


def test_what_pointers_point_to_follows_the_program():
    draw = random.Random(6)
    names = ("address", "copy", "load", "store")
    circuit = compile_datalog(POINTS_TO, dict.fromkeys(names, EDGE), materialize=True)
    facts: dict[str, set[tuple[int, int]]] = {name: set() for name in names}
    for _ in range(50):
        name = draw.choice(names)
        fact = (draw.randrange(9), draw.randrange(9))
        weight = -1 if fact in facts[name] else 1
        facts[name] ^= {fact}
        circuit.step({name: table_of(EDGE, [fact], [weight])})
        assert pairs(circuit.views["pt"]) == points_to(facts)


class History:
    """Imports between the classes of Kafka, commit by commit."""

    def __init__(self) -> None:
        events = shared_table("git-imports-kafka/git-imports-kafka-events")
        self._columns = [events[name] for name in ("src", "dst", "op")]
        cuts = np.flatnonzero(np.diff(events["tx"])) + 1
        self.bounds = list(zip([0, *cuts], [*cuts, len(events["tx"])], strict=True))

    def change(self, number: int) -> pa.Table:
        start, stop = self.bounds[number]
        src, dst, op = (column[start:stop] for column in self._columns)
        return pa.table([src, dst, op], names=["src", "dst", "weight"])

    def edges(self, until: int) -> set[tuple[int, int]]:
        """The imports after so many commits, as pairs of modules."""
        stop = self.bounds[until - 1][1]
        live = Counter()
        for src, dst, op in zip(*(c[:stop].tolist() for c in self._columns), strict=True):
            live[src, dst] += op
        return {edge for edge, weight in live.items() if weight}


def check_history(circuit: Circuit, commits: int, looked_at: Iterable[int]) -> None:
    history = History()
    checked = set(looked_at)
    for number in range(min(commits, len(history.bounds))):
        circuit.step({"e": history.change(number)})
        if number in checked:
            expected = closure(nx.DiGraph(history.edges(number + 1)))
            assert pairs(circuit.views["depends"]) == expected, number


DEPENDS = "depends(x, z) :- e(x, z). depends(x, z) :- e(x, y), depends(y, z)."


@needs_data
def test_which_classes_of_kafka_depend_on_which_is_known_after_each_of_its_first_commits():
    draw = random.Random(8)
    circuit = compile_datalog(DEPENDS, {"e": EDGE}, materialize=True)
    check_history(circuit, 250, draw.sample(range(250), 12))


@needs_data
@pytest.mark.slow
def test_which_classes_of_kafka_depend_on_which_is_known_after_every_commit():
    draw = random.Random(9)
    circuit = compile_datalog(DEPENDS, {"e": EDGE}, materialize=True)
    check_history(circuit, 10_000, draw.sample(range(3766), 50))
