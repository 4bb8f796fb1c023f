"""The recount of the demo equals trying all triples of nodes."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.demo.recount import recount

LINKS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 3)), max_size=25)


@given(LINKS)
def test_the_recount_equals_trying_all_triples_of_nodes(links):
    weight = Counter()
    for a, b, w in links:
        weight[a, b] += w
    columns = (np.array([row[i] for row in links], np.int64) for i in range(3))
    counts = recount(*columns)
    nodes = {node for a, b, _ in links for node in (a, b)}
    triples = [t for t in permutations(nodes, 3)]
    directed = [(a, b, c) for a, b, c in triples if weight[a, b] and weight[b, c] and weight[a, c]]
    cyclic = [(a, b, c) for a, b, c in triples if weight[a, b] and weight[b, c] and weight[c, a]]
    joined = {frozenset((a, b)) for a, b in product(nodes, nodes) if a != b and weight[a, b]}
    assert counts.links == sum(weight.values())
    assert counts.edges == sum(1 for w in weight.values() if w)
    assert counts.triangles == len(directed)
    assert counts.weighted == sum(
        weight[a, b] * weight[b, c] * weight[a, c] for a, b, c in directed
    )
    assert counts.cycles == len(cyclic) // 3
    assert counts.undirected == len(
        {frozenset(t) for t in triples if {frozenset((t[i], t[i - 1])) for i in range(3)} <= joined}
    )
    for actual, expected in ((counts.corners, directed), (counts.cycle_corners, cyclic)):
        corners = Counter(node for triple in expected for node in triple)
        if expected is cyclic:
            corners = Counter({node: n // 3 for node, n in corners.items()})
        assert dict(zip(*(part.tolist() for part in actual), strict=True)) == corners
