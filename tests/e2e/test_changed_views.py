"""Views of two real jobs change while these run: rings of payments, and counts of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from benchmarks import lsqb
from circuits import Circuit, InputOptions, Retention, compile_datalog, compile_sql
from circuits.state.program_change import ProgramChange
from examples.payment_rings import DAY, PAY, Payment, plant, ring_rule
from streaming import Output, ViewSink
from tests.generators.lsqb import ANSWERS, FOLDER, needs_lsqb
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import bag_of

MICRO_BATCHES = 12


class Alerts:
    """A target that adds up the rings of a view."""

    def __init__(self) -> None:
        self.rings: Counter = Counter()

    def write(self, delta) -> None:
        for row, weight in bag_of(delta.table).items():
            self.rings[row] += weight

    @property
    def rows(self) -> Counter:
        return Counter({row: weight for row, weight in self.rings.items() if weight})


def rings(lengths: Sequence[int]) -> Circuit:
    options = {"pay": InputOptions(retain=Retention("ts", 2 * DAY, on_expiry="retract"))}
    return compile_datalog("\n".join(map(ring_rule, lengths)), {"pay": PAY}, input_options=options)


def test_a_ring_view_is_added_to_a_running_payments_job(tmp_path: Path) -> None:
    payments, _ = plant(Random(5))
    batches = np.array_split(np.array(payments, np.int64), MICRO_BATCHES)
    names = Payment._fields
    tables = [pa.table({n: batch[:, k] for k, n in enumerate(names)}) for batch in batches]
    alerts = {f"ring{length}": Alerts() for length in range(2, 7)}
    for number in range(MICRO_BATCHES):
        if number in (0, 7):
            circuit = rings(range(2, 7) if number else range(2, 6))
            outputs = [Output(view, alerts[view]) for view in circuit.outputs]
            sink = ViewSink(circuit, outputs, state_dir=tmp_path / "state")
        sink(Frame(tables[number], "q"), number)
        if number in (6, MICRO_BATCHES - 1):
            sink.close()
    fresh = rings(range(2, 7))
    expected = {view: Alerts() for view in alerts}
    for table in tables:
        for view, delta in fresh.step({"pay": table}).items():
            expected[view].rings.update(bag_of(delta))
    assert {view: target.rows for view, target in alerts.items()} == {
        view: target.rows for view, target in expected.items()
    }
    assert alerts["ring6"].rings


@needs_lsqb
def test_views_of_a_network_and_their_columns_change_between_two_halves_of_its_rows() -> None:
    queries = [query for query in ANSWERS if query != "q1"]  # q1 takes seconds
    relations = lsqb.select_relations(lsqb.load(FOLDER), *queries)
    schemas = {name: table.schema for name, table in relations.items()}
    keep = {name: InputOptions(keep="all") for name in schemas}
    old = compile_sql(
        lsqb.view_statements(*queries[:-1]), schemas, outputs=queries[:-1], input_options=keep
    )
    halves = [
        {
            name: table.take(np.array_split(np.random.default_rng(7).permutation(len(table)), 2)[k])
            for name, table in relations.items()
        }
        for k in range(2)
    ]
    counts = Counter({q: sum_n(table) for q, table in old.step(halves[0]).items()})

    # A query is added, and one gets another column; one input gets a column.
    wider = dict(schemas)
    wider["Person_knows_Person"] = schemas["Person_knows_Person"].append(
        pa.field("note", pa.string())
    )
    text = lsqb.view_statements(*queries)
    first = queries[0]
    body = lsqb.QUERIES[first]
    assert body.count("count(*) AS n") == 1
    text = text.replace(body, body.replace("count(*) AS n", "count(*) AS n, count(*) * 2 AS twice"))
    new = compile_sql(text, wider, outputs=queries, input_options=keep)
    change = ProgramChange(old, new)
    kinds = {view.view: view.kind for view in change.views}
    assert kinds == {
        **dict.fromkeys(queries[1:-1], "unchanged"),
        first: "replaced",
        queries[-1]: "new",
    }
    counts[first] = 0
    for query, table in change.apply().items():
        counts[query] += sum_n(table)
    knows = halves[1]["Person_knows_Person"]
    halves[1]["Person_knows_Person"] = knows.append_column(
        "note", pa.nulls(knows.num_rows, pa.string())
    )
    for query, table in new.step(halves[1]).items():
        counts[query] += sum_n(table)
    assert dict(counts) == {query: ANSWERS[query] for query in queries}

    # Both changes are taken back: the state of the other queries stays.
    back = compile_sql(
        lsqb.view_statements(*queries[:-1]), schemas, outputs=queries[:-1], input_options=keep
    )
    change = ProgramChange(new, back)
    assert change.removed_views == (queries[-1],)
    assert any(f"view {queries[-1]!r}" in loss for loss in change.losses)
    published = change.apply()
    assert sum_n(published[first]) == ANSWERS[first]
    deletions = {
        name: table.append_column("weight", pa.array(np.full(len(table), -1)))
        for name, table in relations.items()
    }
    for query, table in back.step(deletions).items():
        assert sum_n(table) == -ANSWERS[query], query


def sum_n(table: pa.Table) -> int:
    return sum(row["n"] * row["weight"] for row in table.to_pylist())
