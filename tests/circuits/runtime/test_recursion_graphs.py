"""Recursive views of changing graphs, against networkx and against textbook algorithms.

One graph is real: the dependencies between the classes of Kafka, commit by commit.
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
# Andersen's points-to analysis (PhD thesis, 1994): x = &y, x = y, x = *y, *x = y.
POINTS_TO = """
    pt(x, y) :- address(x, y).
    pt(x, z) :- copy(x, y), pt(y, z).
    pt(x, w) :- load(x, y), pt(y, z), pt(z, w).
    pt(z, w) :- store(x, y), pt(x, z), pt(y, w).
"""


class Edges:
    """A random graph, and random insertions and deletions of its edges."""

    def __init__(self, nodes: int, seed: int, loops: bool = True) -> None:
        self.draw = random.Random(seed)
        self.nodes = range(nodes)
        self.loops = loops
        self.present: set[tuple[int, int]] = set()

    def change(self, size: int) -> pa.Table:
        changes: dict[tuple[int, int], int] = {}
        while len(changes) < size:
            is_deletion = self.present and self.draw.random() < 0.45
            edge = (
                self.draw.choice(sorted(self.present))
                if is_deletion
                else (self.draw.choice(self.nodes), self.draw.choice(self.nodes))
            )
            if edge in changes or not (self.loops or edge[0] < edge[1]):
                continue
            changes[edge] = -1 if edge in self.present else 1
        self.present.symmetric_difference_update(changes)
        return table_of(EDGE, changes, changes.values())

    @property
    def graph(self) -> nx.DiGraph:
        return nx.DiGraph(self.present)


def pairs(table: pa.Table) -> set[tuple[Any, ...]]:
    bag = bag_of(table)
    assert set(bag.values()) <= {1}
    return set(bag)


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


def test_the_same_generation_is_that_of_products_of_adjacency_matrices():
    edges = Edges(12, 3, loops=False)
    circuit = compile_datalog(GENERATION, {"e": EDGE}, materialize=True)
    for _ in range(25):
        circuit.step({"e": edges.change(2)})
        adjacency = np.zeros((12, 12), bool)
        adjacency[tuple(np.array(sorted(edges.present), np.int64).reshape(-1, 2).T)] = True
        level = (adjacency.T @ adjacency) & ~np.eye(12, dtype=bool)
        expected = level
        for _ in range(12):  # edges lead to higher numbers only, so no path is longer
            level = adjacency.T @ level @ adjacency
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
    """Compute Andersen's analysis by repeating its four rules until nothing changes."""
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


def test_the_points_to_analysis_follows_the_program():
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
        """Return the imports after the first ``until`` commits, as pairs of classes."""
        stop = self.bounds[until - 1][1]
        live = Counter()
        for src, dst, op in zip(*(c[:stop].tolist() for c in self._columns), strict=True):
            live[src, dst] += op
        return {edge for edge, weight in live.items() if weight}


def check_history(circuit: Circuit, commits: int, checked_commits: Iterable[int]) -> None:
    history = History()
    checked = set(checked_commits)
    for number in range(min(commits, len(history.bounds))):
        circuit.step({"e": history.change(number)})
        if number in checked:
            expected = closure(nx.DiGraph(history.edges(number + 1)))
            assert pairs(circuit.views["depends"]) == expected, number


DEPENDS = "depends(x, z) :- e(x, z). depends(x, z) :- e(x, y), depends(y, z)."


@needs_data
def test_the_dependencies_between_classes_of_kafka_are_right_after_its_first_commits():
    draw = random.Random(8)
    circuit = compile_datalog(DEPENDS, {"e": EDGE}, materialize=True)
    check_history(circuit, 250, draw.sample(range(250), 12))


@needs_data
@pytest.mark.slow
def test_the_dependencies_between_classes_of_kafka_are_right_after_all_commits():
    draw = random.Random(9)
    circuit = compile_datalog(DEPENDS, {"e": EDGE}, materialize=True)
    check_history(circuit, 10_000, draw.sample(range(3766), 50))
