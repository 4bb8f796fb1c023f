"""Real graphs and real streams with deletes, against published or independent counts.

``INDEX.md`` and the oracle files count

- triangles: undirected simple triangles. Here ``u(a, b), u(b, c), u(a, c)`` over ``u``, the set of
  pairs (smaller, larger) of different nodes with an edge in any direction. So each triangle is
  counted once, as a < b < c.
- E3: rows of ``e(a, b), e(b, c), e(a, c)`` over distinct loop-free directed edges.
- 3-cycles: directed, each once. The join ``e(a, b), e(b, c), e(c, a)`` finds each three times, so
  the query has the conditions ``a < b, a < c, b != c``; its edges include loops.

A stream is replayed in blocks, one for each row of its oracle: one transaction (contacts,
snapshots, commits) or some hundred events (windows). After each block the counts are compared with
the row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dbsp_wcoj import DeltaQuery, Query, ZSet, generic_join
from tests.generators.strategies import FORMULAS
from tests.support.shared_data import needs_data, table

pytestmark = needs_data

TRIANGLES = "n() :- u(a, b), u(b, c), u(a, c)"
E3 = "n() :- e(a, b), e(b, c), e(a, c)"
CYCLES = "n() :- e(a, b), e(b, c), e(c, a), a < b, a < c, b != c"
CLIQUES = "n() :- u(a, b), u(a, c), u(a, d), u(b, c), u(b, d), u(c, d)"

#: By name: triangles, E3, 3-cycles, undirected 4-cliques, as in INDEX.md; None if it has no count.
STATIC = {
    "graphs/wiki-Vote": (608_389, 746_557, 43_975, None),
    "graphs/email-Eu-core": (105_461, 373_386, 115_900, None),
    "graphs/as20000102": (6_584, None, None, None),
    "graphs/ego-Facebook": (1_612_010, None, None, 30_004_668),
    "graphs/soc-Epinions1": (1_624_481, 3_586_405, 740_310, 5_803_397),
    "graphs/NR-ca-HepPh": (3_357_890, None, None, 150_280_879),
    "CollegeMsg/CollegeMsg": (14_319, 39_982, 10_932, None),
    "email-Eu-core-temporal/email-Eu-core-temporal": (105_461, 373_386, 115_900, None),
    "sx-mathoverflow/sx-mathoverflow": (1_403_919, None, 760_663, None),
    "graphs/web-NotreDame": (8_910_005, 44_487_591, 13_716_562, 231_911_102),
    "graphs/cnr-2000": (20_977_629, 37_940_446, 3_301_651, None),
    "graphs/uk-2007-05-100000": (59_926_808, 110_196_961, 7_028_836, 1_211_126_676),
}
TEMPORAL = "email-Eu-core-temporal/email-Eu-core-temporal"
#: By stream: the column with the transaction of an event.
STREAMS = {
    "as-snapshots": "ts",
    "contact-high-school": "ts",
    "git-imports-kafka": "tx",
    "git-imports-spring": "tx",
}
WINDOWS = ("CollegeMsg", "sx-mathoverflow")


def count(text: str, relation: ZSet, name: str) -> int:
    """Count the rows of a query over one relation."""
    return generic_join(Query.parse(text), {name: relation}).to_dict().get((), 0)


def distinct(source: np.ndarray, target: np.ndarray) -> ZSet:
    """Return the distinct edges, each of weight 1."""
    summed = ZSet.from_columns([source, target])
    return ZSet.from_columns(summed.columns)


def read_graph(name: str) -> tuple[ZSet, ZSet]:
    """Return the distinct directed edges with loops, and the distinct pairs (smaller, larger)."""
    columns = table(name)
    source, target = columns["src"], columns["dst"]
    is_no_loop = source != target
    low, high = np.minimum(source, target)[is_no_loop], np.maximum(source, target)[is_no_loop]
    return distinct(source, target), distinct(low, high)


def loop_free(edges: ZSet) -> ZSet:
    source, target = edges.columns
    return ZSet.from_columns([source[source != target], target[source != target]])


@pytest.mark.parametrize("name", [n for n, counts in STATIC.items() if counts[0]])
def test_undirected_simple_triangles_equal_the_index(name):
    assert count(TRIANGLES, read_graph(name)[1], "u") == STATIC[name][0]


@pytest.mark.parametrize("name", [n for n, counts in STATIC.items() if counts[1]])
def test_directed_triangles_over_distinct_loop_free_edges_equal_the_index(name):
    assert count(E3, loop_free(read_graph(name)[0]), "e") == STATIC[name][1]


@pytest.mark.parametrize("name", [n for n, counts in STATIC.items() if counts[2]])
def test_directed_3_cycles_each_counted_once_equal_the_index(name):
    edges, _ = read_graph(name)
    assert count(CYCLES, edges, "e") == STATIC[name][2]
    without_conditions = "n() :- e(a, b), e(b, c), e(c, a)"
    assert count(without_conditions, loop_free(edges), "e") == 3 * STATIC[name][2]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] if counts[3] > 2e8 else [])
        for n, counts in STATIC.items()
        if counts[3]
    ],
)
def test_undirected_4_cliques_equal_the_index(name):
    assert count(CLIQUES, read_graph(name)[1], "u") == STATIC[name][3]


# --- live ----------------------------------------------------------------------------------------


class PairChanges:
    """Turns changes of directed edges into changes of the pairs of nodes that have an edge."""

    def __init__(self) -> None:
        self._edges: dict[tuple[int, int], int] = {}

    def step(self, source: np.ndarray, target: np.ndarray, op: np.ndarray) -> ZSet:
        """Return the pairs (smaller, larger) that these events insert or delete."""
        edges_before: dict[tuple[int, int], int] = {}
        for a, b, change in zip(source.tolist(), target.tolist(), op.tolist(), strict=True):
            if a != b:
                pair = (min(a, b), max(a, b))
                edges = self._edges.get(pair, 0)
                edges_before.setdefault(pair, edges)
                self._edges[pair] = edges + change
        changes = {
            pair: bool(self._edges[pair]) - bool(edges) for pair, edges in edges_before.items()
        }
        return ZSet.from_rows(list(changes), list(changes.values()), arity=2)


def blocks(name: str) -> Iterator[tuple[tuple[np.ndarray, ...], dict[str, int]]]:
    """Yield the events up to each row of the stream's oracle, and that row."""
    if name in STREAMS:
        events = table(f"{name}/{name}-events")
        oracle = table(f"{name}/{name}-oracle")
        key = STREAMS[name]
        ends = np.searchsorted(events[key], oracle[key], side="right")
    else:
        events = table(f"{name}/{name}-window-events")
        oracle = table(f"{name}/{name}-window-oracle")
        ends = oracle["events_applied"]
    assert ends[-1] == len(events["src"]), "the oracle covers the whole stream"
    start = 0
    for i, end in enumerate(ends.tolist()):
        part = tuple(events[field][start:end] for field in ("src", "dst", "op"))
        yield part, {field: int(column[i]) for field, column in oracle.items()}
        start = end


def replay(name: str, **options: object) -> int:
    """Compare triangles, 3-cycles and edges with every row of the oracle; return its rows.

    One view counts triangles over pairs. Two views count 3-cycles and live edges over directed
    edges; loops count as edges.
    """
    triangles = DeltaQuery(TRIANGLES, **options)
    cycles = DeltaQuery(CYCLES, **options)
    size = DeltaQuery("n() :- e(a, b)", **options)
    pairs, rows = PairChanges(), 0
    live = {"live_triangles": 0, "live_directed_3cycles": 0, "live_edges": 0}
    for (source, target, op), expected in blocks(name):
        edges = ZSet.from_columns([source, target], op)
        for field, delta in (
            ("live_triangles", triangles.step({"u": pairs.step(source, target, op)})),
            ("live_directed_3cycles", cycles.step({"e": edges})),
            ("live_edges", size.step({"e": edges})),
        ):
            live[field] += delta.to_dict().get((), 0)
            if field == "live_directed_3cycles" and field not in expected:
                continue  # the oracles of undirected streams have no 3-cycles
            column = field if field in expected else "live_directed_edges"
            assert live[field] == expected[column], f"{name}, oracle row {rows}, {field}"
        rows += 1
    return rows


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("as-snapshots", 7),
        ("contact-high-school", 7_378),
        ("git-imports-kafka", 3_766),
        ("git-imports-spring", 8_066),
        ("CollegeMsg", 462),
        ("sx-mathoverflow", 1_095),
    ],
)
def test_live_counts_equal_every_row_of_the_oracle(name, rows):
    assert replay(name) == rows


@pytest.mark.parametrize("formula", FORMULAS)
def test_every_formula_is_right_on_a_real_stream_with_deletes(formula):
    assert replay("CollegeMsg", formula=formula) == 462


def test_single_events_give_the_same_counts_as_blocks():
    """The 46,706 events of CollegeMsg, each in a step of its own, merge runs of all sizes."""
    view = DeltaQuery(CYCLES)
    live = 0
    for (source, target, op), expected in blocks("CollegeMsg"):
        for event in zip(source, target, op, strict=True):
            columns = [np.array([value]) for value in event]
            delta = view.step({"e": ZSet.from_columns(columns[:2], columns[2])})
            live += int(delta.weights.sum())
        assert live == expected["live_directed_3cycles"]


@pytest.mark.parametrize("steps", [1, 40])
def test_a_graph_that_is_inserted_and_deleted_in_another_order_counts_zero(steps):
    edges = loop_free(read_graph("graphs/wiki-Vote")[0])
    rng = np.random.default_rng(1)
    view = DeltaQuery(E3)
    counts = []
    for sign in (1, -1):
        order = np.array_split(rng.permutation(len(edges)), steps)
        live = 0
        for part in order:
            delta = ZSet.from_columns(
                [column[part] for column in edges.columns], np.full(len(part), sign)
            )
            live += view.step({"e": delta}).to_dict().get((), 0)
        counts.append(live)
    assert counts == [746_557, -746_557]


def test_messages_with_their_multiplicity_equal_the_weighted_count():
    """A repeated message raises the weight of its edge, so E3 counts triples of messages."""
    columns = table(TEMPORAL)
    source, target = columns["src"], columns["dst"]
    view = DeltaQuery(E3)
    live = 0
    for part in np.array_split(np.arange(len(source)), 50):
        delta = view.step({"e": ZSet.from_columns([source[part], target[part]])})
        live += delta.to_dict()[()]
    n = int(max(source.max(), target.max())) + 1
    dense = np.zeros((n, n))
    np.add.at(dense, (source, target), 1)
    expected = ((dense @ dense) * dense).sum()
    assert expected < 2**53, "exact in float64"
    assert live == int(expected)
