"""The benchmark of patterns at tiny sizes; its counts equal counts by enumeration."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import typer

from benchmarks.graph import generate_graph
from benchmarks.patterns import __main__ as patterns
from benchmarks.patterns.labelled_graph import LabelledGraph, label_graph
from benchmarks.patterns.measured_elsewhere import BEST
from benchmarks.patterns.pattern import NAMED, SHAPES, Pattern, Shape, generate_pattern
from benchmarks.result import Result
from benchmarks.verdict import Verdict

TINY = label_graph(generate_graph(4, 60, 3), seed=1, labels=3)
SMALL = label_graph(generate_graph(7, 900, 3), seed=1)


def enumerate_homomorphisms(graph: LabelledGraph, pattern: Pattern, edges: int) -> int:
    pairs = set(zip(graph.edges.source[:edges], graph.edges.target[:edges], strict=True))
    pairs |= {(b, a) for a, b in pairs}
    return sum(
        all((image[a], image[b]) in pairs for a, b in pattern.edges)
        and all(graph.labels[image[i]] == label for i, label in enumerate(pattern.labels))
        for image in product(range(len(graph.labels)), repeat=pattern.vertices)
    )


@pytest.mark.parametrize(
    "pattern",
    [
        Pattern("triangle", ((0, 1), (1, 2), (0, 2)), (0, 1, 2)),
        Pattern("square", ((0, 1), (1, 2), (2, 3), (0, 3)), (0, 1, 0, 1)),
        Pattern("path", ((0, 1), (1, 2), (2, 3))),
    ],
)
def test_duckdb_and_the_view_count_what_an_enumeration_counts(pattern: Pattern) -> None:
    loaded, edges = TINY.loaded_count, TINY.edges.edges
    expected = [enumerate_homomorphisms(TINY, pattern, n) for n in (loaded, edges)]

    assert [patterns.count_by_duckdb(TINY, pattern, n) for n in (loaded, edges)] == expected
    rows = patterns.measure_pattern(TINY, pattern, (1, 3), None, verdict := Verdict())
    assert [row["matches"] for row in rows] == [expected[1] - expected[0]] * 2
    assert verdict.comparisons > 0
    assert verdict.differences == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vertices", [4, 6])
def test_generated_patterns_have_their_shape_and_an_answer(shape: Shape, vertices: int) -> None:
    pattern = generate_pattern(SMALL, vertices, shape, 0)

    assert pattern.vertices == len(pattern.labels) == vertices
    assert len(set(map(frozenset, pattern.edges))) == len(pattern.edges)
    if shape == "tree":
        assert len(pattern.edges) == vertices - 1
    elif shape == "sparse":
        assert len(pattern.edges) == vertices
    else:
        assert len(pattern.edges) >= 1.5 * vertices
    assert patterns.count_by_duckdb(SMALL, pattern, SMALL.edges.edges) > 0


def test_a_graph_without_such_a_pattern_is_refused() -> None:
    edge = label_graph(generate_graph(1, 9, 0), seed=0)

    with pytest.raises(ValueError, match="found no tree pattern of 4 vertices"):
        generate_pattern(edge, 4, "tree", 0)


def test_the_text_files_have_all_vertices_edges_and_patterns(tmp_path: Path) -> None:
    TINY.write(tmp_path, "tiny")

    graph = [line.split() for line in (tmp_path / "tiny.graph").read_text().splitlines()]
    stream = [line.split() for line in (tmp_path / "tiny.stream").read_text().splitlines()]
    labels = {int(line[1]): int(line[2]) for line in graph if line[0] == "v"}
    pairs = [(int(line[1]), int(line[2])) for line in graph + stream if line[0] == "e"]
    assert labels == dict(enumerate(TINY.labels.tolist()))
    assert pairs == list(zip(TINY.edges.source, TINY.edges.target, strict=True))
    assert len(stream) == TINY.edges.edges - TINY.loaded_count
    assert {line[0] for line in stream} == {"e"}


def test_the_core_has_the_edges_among_the_vertices_with_most_neighbours() -> None:
    core = SMALL.core(20)

    degrees = SMALL.neighbours().degrees
    kept = set(np.concatenate([core.edges.source, core.edges.target]).tolist())
    assert len(kept) == 20
    assert min(degrees[list(kept)]) >= sorted(degrees)[-20]


def test_every_named_pattern_has_a_figure_of_another_engine() -> None:
    assert [pattern.name for pattern in NAMED] == list(BEST)


def test_the_command_writes_its_tables_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "generate_graph", lambda *arguments: generate_graph(7, 900, 3))
    monkeypatch.setattr(patterns, "_SIZES", (4,))
    monkeypatch.setattr(patterns, "NAMED", NAMED[:2])

    patterns.main(quick=True, batch=[100], files=tmp_path / "files", json=tmp_path / "result.json")

    tables = Result.read(tmp_path / "result.json").tables
    assert [row["pattern"] for row in tables["Named patterns"]] == ["triangle", "4-clique"]
    assert len(tables["Generated patterns"]) == 2 * len(SHAPES)
    assert {path.name for path in (tmp_path / "files").glob("*.query")} == {
        *("triangle.query", "4-clique.query", "dense-4.query", "sparse-4.query", "tree-4.query")
    }


def test_a_wrong_count_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "generate_graph", lambda *arguments: generate_graph(7, 900, 3))
    monkeypatch.setattr(patterns, "count_by_duckdb", lambda *arguments: arguments[2])

    with pytest.raises(typer.Exit) as stop:
        patterns.main(pattern=["triangle"], quick=True, batch=[100])
    assert stop.value.exit_code == 1
