"""The benchmark of state larger than memory on a small stream: it counts all triangles."""

from __future__ import annotations

from collections import Counter

import numpy as np

from benchmarks import beyond_memory

SIZES = beyond_memory.Sizes(rows=3_000, load_rows=1_000, steps=6, step_rows=100)


def count_triangles(sizes):
    parts = [(np.arange(sizes.rows), np.ones(sizes.rows, np.int64))]
    parts += [beyond_memory.step_rows(step, sizes) for step in range(sizes.steps)]
    numbers, weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    source, target = beyond_memory.edges_of(numbers, sizes.rows)
    edges = Counter()
    for a, b, weight in zip(source.tolist(), target.tolist(), weights.tolist(), strict=True):
        edges[a, b] += weight
    successors = {}
    for (a, b), weight in edges.items():
        assert weight >= 0, "a step deletes only rows that exist"
        successors.setdefault(a, []).append((b, weight))
    return sum(
        ab * bc * edges[a, c]
        for a, targets in successors.items()
        for b, ab in targets
        for c, bc in successors.get(b, [])
    )


def test_a_small_run_with_a_limit_is_measured_and_checked(tmp_path):
    measured = beyond_memory.run(tmp_path / "state", SIZES, limit=10_000)
    assert measured.count == count_triangles(SIZES)
    assert len(measured.step_s) == len(measured.join_s) == SIZES.steps
    assert len(measured.step_cpu_s) == SIZES.steps and min(measured.step_cpu_s) > 0
    assert measured.batches == 3 + SIZES.steps
    assert measured.peak_private > 0 and measured.peak_resident > 0
    assert measured.mapped_bytes > 0
    row = beyond_memory.row_of("with a memory limit", SIZES, 10_000, measured)
    assert row["restart s"] <= row["with a first step s"]
    samples = beyond_memory.samples_of("with a memory limit", SIZES, measured)
    assert [sample["steps"] for sample in samples] == list(range(1, SIZES.steps + 1))
