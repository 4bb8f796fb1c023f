"""The content of the live page: patterns, numbers over time, newest matches, bounded history."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from itertools import combinations, pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from circuits import InputOptions, compile_datalog, compile_sql
from streaming import ChangeOptions, Output, SinkObserver, ViewSink
from streaming.ui import events as events_module
from streaming.ui import history as history_module
from streaming.ui import matches as matches_module
from streaming.ui.drawing import Drawing
from streaming.ui.events import EventTexts, events_of
from streaming.ui.history import (
    MAX_RECENT_BATCHES,
    MAX_ROWS,
    MAX_TIMELINE_POINTS,
    History,
    output_mode_of,
    upsert_keys_of,
)
from streaming.ui.layout import lay_out_graph
from streaming.ui.matches import MAX_MATCHES, Matches
from streaming.ui.page import Page
from streaming.ui.pattern import Pattern, pattern_of
from streaming.ui.row_texts import weights_of
from streaming.ui.state_summary import arrangements_of
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import EDGE, edges

CYCLE_QUERY = (
    "SELECT x.src AS a, y.src AS b, z.src AS c FROM e x JOIN e y ON y.src = x.dst "
    "JOIN e z ON z.src = y.dst AND z.dst = x.src"
)
VIEWS = f"""
    CREATE VIEW rings AS {CYCLE_QUERY};
    CREATE VIEW total AS SELECT count(*) AS n, max(src) AS most FROM e;
    CREATE VIEW degrees AS SELECT src, count(*) AS n FROM e GROUP BY src;
"""

EDGES = st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from((1, -1)))


def history_and_feed(circuit, sink=None, **options):
    """Return a history, and a function that feeds its sink a micro-batch of edges."""
    sink = sink or ViewSink(circuit, **options)
    history = History(circuit, name="test", timer=time.thread_time)
    sink.add_observer(history)

    def feed(*rows, weight=1, weights=None, batch=None):
        number = len(sink.metrics) if batch is None else batch
        sink(Frame(edges(*rows, weights=weights or [weight] * len(rows))), number)

    return history, feed


def snapshot_of(history):
    return json.loads(json.dumps(history.snapshot()))


@pytest.mark.parametrize(
    ("view", "nodes", "edges"),
    [
        (CYCLE_QUERY, ["a", "b", "c"], {("a", "b"), ("b", "c"), ("c", "a")}),
        (
            "SELECT z.src AS p, x.src AS q, y.src AS r, y.dst + 1 AS s FROM e x JOIN e y "
            "ON y.src = x.dst JOIN e z ON z.src = x.src AND z.dst = y.dst",
            None,
            None,
        ),
        (
            "SELECT y.dst AS r, x.src AS p, y.src AS q FROM e x JOIN e y ON y.src = x.dst "
            "JOIN e z ON z.src = x.src AND z.dst = y.dst",
            ["p", "q", "r"],
            {("p", "q"), ("q", "r"), ("p", "r")},
        ),
        ("SELECT x.src, y.dst FROM e x JOIN e y ON y.src = x.dst", None, None),
        (f"SELECT count(*) AS n FROM ({CYCLE_QUERY})", None, None),
        (f"SELECT a, b FROM ({CYCLE_QUERY})", None, None),
    ],
)
def test_a_view_has_a_pattern_if_its_columns_are_the_corners_of_a_cycle(view, nodes, edges):
    circuit = compile_sql(view, {"e": EDGE})
    pattern = pattern_of(circuit.graph, "view")
    if nodes is None:
        # An expression over a node column is not a node, and a count has no nodes.
        assert pattern is None or "s" in view
        return
    names = [field.name for field in circuit.schema("view").fields]
    corners = [names[position] for position in pattern.nodes]
    assert sorted(corners) == nodes
    assert {(corners[a], corners[b]) for a, b in pattern.edges} == edges


def test_a_datalog_view_has_a_pattern():
    rules = "k(a, b, c, d) :- e(a, b), e(a, c), e(a, d), e(b, c), e(b, d), e(c, d)."
    circuit = compile_datalog(rules, {"e": EDGE})
    pattern = pattern_of(circuit.graph, "k")
    assert len(pattern.nodes) == 4 and len(pattern.edges) == 6


def test_numbers_over_time_are_those_of_the_view_or_its_rows():
    history, feed = history_and_feed(compile_sql(VIEWS, {"e": EDGE}))
    feed((1, 2), (2, 3), (3, 1))
    feed((1, 5))
    feed((1, 2), weight=-1)
    timeline = snapshot_of(history)["timeline"]
    assert [point["values"]["total"] for point in timeline] == [[3, 3], [4, 3], [3, 3]]
    assert [point["values"]["rings"] for point in timeline] == [[3], [3], [0]]
    assert [point["values"]["degrees"] for point in timeline] == [[3], [3], [3]]
    numbers = {view["name"]: view["numbers"] for view in snapshot_of(history)["views"]}
    assert numbers == {"rings": ["rows"], "total": ["n", "most"], "degrees": ["rows"]}


OUTPUTS = [Output("degrees", mode="upsert", keys=["src"]), Output("degrees", mode="complete")]


@pytest.mark.parametrize("output", OUTPUTS)
def test_rows_are_counted_in_every_output_mode(output):
    circuit = compile_sql(VIEWS, {"e": EDGE}, materialize=["degrees"])
    history, feed = history_and_feed(circuit, outputs=[output])
    feed((1, 2), (1, 3), (2, 1))
    feed((1, 4), (3, 1))
    feed((2, 1), weight=-1)
    timeline = snapshot_of(history)["timeline"]
    assert [point["values"]["degrees"] for point in timeline] == [[2], [3], [2]]


def test_after_a_restart_the_rows_of_materialized_views_are_known_and_of_others_unknown(tmp_path):
    def circuit():
        return compile_sql(VIEWS, {"e": EDGE}, materialize=["degrees"])

    first = ViewSink(circuit(), state_dir=tmp_path)
    first(Frame(edges((1, 2), (2, 3), (3, 1))), 0)
    first.close()
    views = circuit()
    history, feed = history_and_feed(views, ViewSink(views, state_dir=tmp_path))
    feed((1, 2), weight=-1, batch=1)
    result = snapshot_of(history)
    values = result["timeline"][-1]["values"]
    assert (values["degrees"], values["rings"]) == ([2], [None])
    assert result["partial"] == ["rings"]
    feed((1, 2), (5, 5), batch=2)
    values = snapshot_of(history)["timeline"][-1]["values"]
    assert (values["degrees"], values["rings"]) == ([4], [None])
    restarted, feed = history_and_feed(views, first)  # the sink ran before the page began
    feed((5, 5), weight=-1, batch=3)
    result = snapshot_of(restarted)
    assert result["timeline"][-1]["values"]["rings"] == [None]
    assert result["partial"] == ["rings"]


@given(st.lists(st.lists(EDGES, max_size=6), max_size=6), st.booleans(), st.booleans())
@settings(max_examples=25)
def test_a_number_of_rows_is_that_of_the_view_or_unknown(steps, is_kept, is_late):
    """Deletions of rows that were never inserted do not make a number negative."""
    query = "CREATE VIEW pairs AS SELECT src, dst FROM e; CREATE VIEW few AS {}".format(
        "SELECT count(*) AS n FROM e HAVING count(*) > 2"
    )
    circuit = compile_sql(query, {"e": EDGE}, materialize=is_kept)
    sink = ViewSink(circuit)
    current: Counter = Counter()
    history = None if is_late else History(circuit, name="test")
    for number, changes in enumerate(steps):
        if number == 1 and is_late:
            history = History(circuit, name="test")
        if history is not None and number == is_late:
            sink.add_observer(history)
        step: Counter = Counter()
        for a, b, weight in changes:
            step[a, b] += weight
        current.update(step)
        sink(Frame(edges(*step, weights=list(step.values()))), number)
        if history is None:
            continue
        values = snapshot_of(history)["timeline"][-1]["values"]
        total = sum(current.values())
        is_known = total >= 0 and (is_kept or not is_late)
        assert values["pairs"] == [total if is_known else None]
        if not is_late:
            assert values["few"] == [total if total > 2 else None]


def test_a_replayed_micro_batch_is_counted_once():
    history, feed = history_and_feed(compile_sql(VIEWS, {"e": EDGE}))
    feed((1, 2), (2, 3), (3, 1))
    feed((1, 2), (2, 3), (3, 1), batch=0)
    assert [point["values"]["rings"] for point in snapshot_of(history)["timeline"]] == [[3], [3]]
    assert snapshot_of(history)["recent"][-1]["replayed"]


@given(st.lists(EDGES))
@example([(0, 0, 1), (0, 0, 1), (0, 0, -1)])
@settings(max_examples=25)
def test_shown_matches_exist_in_the_view(changes):
    check_matches([[change] for change in changes])


@given(st.lists(st.lists(EDGES, max_size=12), max_size=8), st.booleans())
@settings(max_examples=25)
def test_shown_matches_exist_after_micro_batches_of_any_size(steps, is_small):
    with pytest.MonkeyPatch.context() as patch:
        if is_small:  # all deltas are large ones
            patch.setattr(matches_module, "MAX_MATCHES", 3)
        check_matches(steps)


def check_matches(steps):
    """Check that each shown match is in the view, and that all are shown if they always fitted."""
    history, feed = history_and_feed(compile_sql(CYCLE_QUERY, {"e": EDGE}, name="rings"))
    current: Counter = Counter()
    max_matches = 0
    for changes in steps:
        delta: Counter = Counter()
        for a, b, weight in changes:
            if current[a, b] + delta[a, b] + weight >= 0:
                delta[a, b] += weight
        current.update(delta)
        feed(*delta, weights=list(delta.values()))
        nodes = range(5)
        rings = {
            tuple(map(str, (a, b, c)))
            for a in nodes
            for b in nodes
            for c in nodes
            if current[a, b] and current[b, c] and current[c, a]
        }
        max_matches = max(max_matches, len(rings))
        drawn = [tuple(match["nodes"]) for match in snapshot_of(history)["matches"]["rings"]]
        assert len(set(drawn)) == len(drawn) <= matches_module.MAX_MATCHES
        assert set(drawn) <= rings
        assert set(drawn) == rings or max_matches > matches_module.MAX_MATCHES


TICKETS = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("id", "src", "dst", "back")]
)


@given(
    st.lists(
        st.dictionaries(
            st.integers(0, 5),
            st.none() | st.tuples(st.integers(0, 2), st.integers(0, 2)),
            min_size=1,
        ),
        max_size=6,
    ),
    st.sampled_from(("delta", "upsert", "complete")),
    st.integers(0, 1),
    st.booleans(),
)
@settings(max_examples=25)
def test_matches_of_a_view_with_further_columns_are_shown_in_every_output_mode(
    steps, output_mode, is_long, is_small
):
    """Several rows may show the same match: only the beginning of long values is shown."""
    pair = "SELECT x.id AS id, x.src AS a, x.dst AS b, y.id AS other FROM t x JOIN t y "
    circuit = compile_sql(
        pair + "ON y.src = x.dst AND y.dst = x.src AND y.id = x.id AND y.back = x.back",
        {"t": TICKETS},
        name="pairs",
        materialize=True,
    )
    pattern = Pattern((1, 2), ((0, 1), (1, 0)))
    matches = Matches(pattern, [field.name for field in circuit.schema("pairs").fields])
    sink = ViewSink(
        circuit, [Output("pairs", mode=output_mode, keys=["id"] if output_mode == "upsert" else [])]
    )
    current: dict = {}
    most_rows = 0

    class UpdateMatches(SinkObserver):
        def batch_completed(self, published, metrics):
            update(published)

    def update(published):
        table = published.outputs["pairs"]
        mode, keys = output_mode_of(table), upsert_keys_of(table)
        matches.update(table, weights_of(table), published.batch_id, mode=mode, keys=keys)

    sink.add_observer(UpdateMatches())
    prefix = "x" * (70 * is_long)
    with pytest.MonkeyPatch.context() as patch:
        if is_small:
            patch.setattr(matches_module, "MAX_MATCHES", 4)
        for number, step in enumerate(steps):
            rows, weights = [], []
            for key, nodes in step.items():
                for weight, ends in ((-1, current.pop(key, None)), (1, nodes)):
                    if ends is None:
                        continue
                    if weight > 0:
                        current[key] = ends
                    # Both directions of the edge, so that each ticket is two matches.
                    a, b = (f"{prefix}{end}" for end in ends)
                    rows.append((str(key), a, a, b))
                    weights.append(weight)
            columns = list(zip(*rows, strict=True)) or [()] * 4
            table = pa.table([*columns, weights], [*TICKETS.names, "weight"]).cast(
                pa.schema([*TICKETS, pa.field("weight", pa.int64())])
            )
            sink(Frame(table), number)
            # A match that was beyond the limit is not shown later, either.
            most_rows = max(most_rows, len(current))
            expected = {a for a, _ in current.values()}
            drawn = Counter(match["nodes"][0] for match in matches.to_json())
            if is_long:  # all values are cut to the same text
                assert bool(drawn) == bool(expected)
            elif most_rows <= 4 or not is_small:
                assert drawn == Counter(map(str, expected))


def test_retractions_are_found_in_large_deltas():
    history, feed = history_and_feed(compile_sql(CYCLE_QUERY, {"e": EDGE}, name="rings"))
    ring = [(1, 2), (2, 3), (3, 1)]
    others = [(10 * i + a, 10 * i + b) for i in range(1, 40) for a, b in ring]
    feed(*others)
    feed(*ring)
    assert len(snapshot_of(history)["matches"]["rings"]) == MAX_MATCHES
    feed(*others, weight=-1)
    remaining = [match["nodes"] for match in snapshot_of(history)["matches"]["rings"]]
    assert sorted(remaining) == [["1", "2", "3"], ["2", "3", "1"], ["3", "1", "2"]]


def test_a_history_is_bounded_and_its_timeline_keeps_the_first_and_the_newest_point(monkeypatch):
    monkeypatch.setattr(history_module, "MAX_TIMELINE_POINTS", 16)
    monkeypatch.setattr(history_module, "MAX_RECENT_BATCHES", 5)
    history, feed = history_and_feed(compile_sql(VIEWS, {"e": EDGE}))
    for number in range(100):
        feed((number, number + 1))
        assert len(history._timeline) <= 16
        assert history._timeline[-1]["id"] == number
    assert history._timeline[0]["id"] == 0
    ids = [point["id"] for point in history._timeline[:-1]]
    assert len({b - a for a, b in pairwise(ids)}) == 1
    assert MAX_RECENT_BATCHES < MAX_TIMELINE_POINTS


def test_only_the_first_rows_of_a_delta_are_kept():
    history, feed = history_and_feed(compile_sql("SELECT src, dst FROM e", {"e": EDGE}, name="v"))
    feed(*((n, n) for n in range(500)))
    newest = snapshot_of(history)["newest"]["v"]
    assert len(newest["rows"]) == MAX_ROWS
    assert (newest["count"], newest["inserted"], newest["deleted"]) == (500, 500, 0)


def test_each_change_is_sent_once():
    history, feed = history_and_feed(compile_sql(VIEWS, {"e": EDGE}))
    feed((1, 2))
    sent_batches = history.snapshot()["batches"]
    feed((2, 3))
    feed((3, 4))
    update = history.since(sent_batches)
    assert [batch["id"] for batch in update["recent"]] == [1, 2]
    assert history.since(update["batches"])["recent"] == []


def test_operators_and_state_show_the_rows_of_the_circuit():
    circuit = compile_sql(VIEWS, {"e": EDGE})
    history, feed = history_and_feed(circuit)
    feed((1, 2), (2, 3), (3, 1))
    result = snapshot_of(history)
    boxes = result["circuit"]["boxes"]
    join = next(i for i, box in enumerate(boxes) if box["kind"] == "join")
    assert result["operators"][join][0] == 3
    assert {box["name"] for box in boxes if box["kind"] == "view"} == {"rings", "total", "degrees"}
    assert all(entry["bytes"] > 0 for entry in result["state"] if entry["rows"])
    assert sum(entry["rows"] for entry in result["state"] if entry["order"] == [1, 0]) >= 3


def test_values_of_all_types_are_shown_as_short_texts():
    schema = pa.schema(
        {"t": pa.string(), "b": pa.binary(), "d": pa.timestamp("us"), "f": pa.float64()}
    )
    circuit = compile_sql("SELECT t, b, d, f FROM r", {"r": schema}, name="v")
    history = History(circuit, name="test")
    sink = ViewSink(circuit)
    sink.add_observer(history)
    row = {"t": "x" * 500 + "\n", "b": b"\x00", "d": None, "f": float("nan")}
    sink(Frame(pa.Table.from_pylist([row], schema)), 0)
    ((weight, values),) = snapshot_of(history)["newest"]["v"]["rows"]
    assert weight == 1
    assert len(values[0]) == 60 and values[2:] == [None, "nan"]


class FailingObserver(SinkObserver):
    def batch_completed(self, published, metrics):
        raise ZeroDivisionError


def test_an_observer_that_fails_does_not_stop_the_sink(caplog):
    sink = ViewSink(compile_sql("SELECT src FROM e", {"e": EDGE}))
    sink.add_observer(FailingObserver())
    sink(Frame(edges((1, 2))), 0)
    assert sink.last.batch_id == 0
    assert "observer FailingObserver failed on micro-batch 0" in caplog.text


def test_a_failure_of_the_page_does_not_stop_the_sink(caplog, monkeypatch):
    pytest.importorskip("uvicorn")
    sink = ViewSink(compile_sql("SELECT src FROM e", {"e": EDGE}))
    with Page(sink.circuit, port=0) as page:
        monkeypatch.setattr(page.history, "_add_point", lambda point: 1 / 0)
        sink.add_observer(page)
        sink(Frame(edges((1, 2))), 0)
        page.batch_completed(sink.last, sink.metrics[-1])
    assert sink.last.batch_id == 0
    assert caplog.messages == ["the live page could not show micro-batch 0"] * 2


def test_recording_a_micro_batch_takes_less_than_a_millisecond():
    history, feed = history_and_feed(compile_sql(VIEWS, {"e": EDGE}))
    for number in range(30):
        feed(*((number, n) for n in range(50)))
    before = history.seconds_spent
    for number in range(30):
        feed(*((100 + number, n) for n in range(50)))
    assert (history.seconds_spent - before) / 30 < 0.001


@given(st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda e: e[0] < e[1])))
def test_edges_of_a_layout_go_forward_through_every_layer(edges):
    edges = sorted(edges)
    layout = lay_out_graph(range(9), edges)
    for (a, b), bends in layout.bends.items():
        layers = [layout.positions[a][0], *(layer for layer, _ in bends), layout.positions[b][0]]
        assert layers == list(range(layers[0], layers[-1] + 1))
    positions = [
        *layout.positions.values(),
        *(bend for bends in layout.bends.values() for bend in bends),
    ]
    assert len(positions) == len(set(positions)) == sum(layout.widths)


def test_edges_that_need_not_cross_do_not_cross():
    # Two paths whose nodes are given interleaved.
    edges = [(0, 3), (1, 2), (2, 5), (3, 4)]
    layout = lay_out_graph(range(6), edges)
    at = layout.positions
    for (a, b), (c, d) in combinations(edges, 2):
        if at[a][0] == at[c][0]:
            assert (at[a][1] - at[c][1]) * (at[b][1] - at[d][1]) >= 0


def test_the_drawing_has_totals_of_each_operator_in_the_order_of_its_boxes():
    circuit = compile_sql(VIEWS, {"e": EDGE}, materialize=True)
    drawing = Drawing.of(circuit)
    circuit.step({"e": edges((1, 2), (2, 3))})
    totals = drawing.operator_totals(circuit)
    boxes = drawing.picture["boxes"]
    assert len(totals) == sum(box["kind"] != "view" for box in boxes)
    state = arrangements_of(circuit)
    assert {entry["name"] for entry in state if entry["kind"] == "view"} == {
        *("rings.rows", "total.rows", "degrees.rows")
    }
    assert all(entry["views"] for entry in state)
    assert (
        dict(zip((box["name"] for box in boxes), (rows for rows, _ in totals), strict=False))["e"]
        == 2
    )


COUNTS = "CREATE VIEW counts AS SELECT dst, count(*) AS n FROM e GROUP BY dst;"
DSTS = "CREATE VIEW dsts AS SELECT dst FROM e"
SRCS = "CREATE VIEW srcs AS SELECT src FROM e;"
KEEP = {"e": InputOptions(keep="all")}


def test_the_page_shows_the_views_that_are_added_and_dropped_while_the_sink_runs():
    sink = ViewSink(compile_sql(SRCS + COUNTS, {"e": EDGE}, input_options=KEEP))
    history, feed = history_and_feed(sink.circuit, sink)
    feed((1, 2), (2, 3))
    before = snapshot_of(history)
    sink.add_view("CREATE VIEW dsts AS SELECT dst FROM e")
    sink.add_view(f"CREATE VIEW rings AS {CYCLE_QUERY}")
    sink.drop_view("counts")
    feed((3, 1))
    after = snapshot_of(history)
    assert [view["name"] for view in after["views"]] == ["srcs", "dsts", "rings"]
    assert after["recent"][-1]["values"] == {"srcs": [3], "dsts": [3], "rings": [3]}
    assert after["newest"].keys() == {"srcs", "dsts", "rings"}
    assert after["matches"].keys() == {"rings"}
    assert after["views"][2]["pattern"] is not None
    assert {box["name"] for box in after["circuit"]["boxes"]} != {
        box["name"] for box in before["circuit"]["boxes"]
    }
    assert len(after["operators"]) == len(Drawing.of(sink.circuit).operator_totals(sink.circuit))
    assert after["views_version"] > before["views_version"]


def test_a_view_that_is_published_in_slices_is_shown_when_it_has_all_rows():
    sink = ViewSink(compile_sql(SRCS, {"e": EDGE}, input_options=KEEP))
    history, feed = history_and_feed(sink.circuit, sink)
    feed(*((n, n + 1) for n in range(9)))
    change = ChangeOptions(rows_per_batch=4)
    committed = sink.add_view("CREATE VIEW dsts AS SELECT dst FROM e", change=change)
    seen = []
    while not committed.done():
        assert len(seen) < 20
        feed()
        seen.append([view["name"] for view in snapshot_of(history)["views"]])
    assert seen[0] == ["srcs"] and seen[-1] == ["srcs", "dsts"]
    # The rows of the first slices are not counted, so the number of rows is not known.
    assert snapshot_of(history)["partial"] == ["dsts"]


def test_an_open_page_receives_all_data_again_when_the_views_have_changed(monkeypatch):
    monkeypatch.setattr(events_module, "POLL_INTERVAL_S", 0.01)
    sink = ViewSink(compile_sql(SRCS, {"e": EDGE}, input_options=KEEP))
    history, feed = history_and_feed(sink.circuit, sink)
    feed((1, 2))

    async def read() -> list[str]:
        names = []
        actions = [lambda: feed((2, 3)), lambda: sink.add_view(DSTS), lambda: feed((3, 4))]
        stream = events_of(EventTexts(history), history, lambda: False, 20.0)
        async for event in stream:
            names += [
                line.removeprefix("event: ") for line in event.splitlines() if "event:" in line
            ]
            if not actions:
                return names
            actions.pop(0)()
        return names

    assert asyncio.run(read()) == ["snapshot", "update", "snapshot", "update"]


def test_the_page_has_the_bytes_on_the_heap_and_in_mapped_files_as_the_metrics(tmp_path):
    sink = ViewSink(
        compile_sql(SRCS, {"e": EDGE}, input_options=KEEP), state_dir=tmp_path, memory_limit=1
    )
    history, feed = history_and_feed(sink.circuit, sink)
    feed(*((n, n + 1) for n in range(2000)))
    entry, metrics = snapshot_of(history)["recent"][-1], sink.metrics[-1]
    assert (entry["heap_bytes"], entry["mapped_bytes"]) == (
        metrics.heap_bytes,
        metrics.mapped_bytes,
    )
    assert metrics.heap_bytes + metrics.mapped_bytes
