"""Views of two real jobs change while these run: rings of payments, and counts of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

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


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_ring_view_is_added_to_a_running_payments_job(is_restarted: bool, tmp_path: Path) -> None:
    payments, _ = plant(Random(5))
    batches = np.array_split(np.array(payments, np.int64), MICRO_BATCHES)
    names = Payment._fields
    tables = [pa.table({n: batch[:, k] for k, n in enumerate(names)}) for batch in batches]
    alerts = {f"ring{length}": Alerts() for length in range(2, 7)}

    def start(lengths: Sequence[int]) -> ViewSink:
        circuit = rings(lengths)
        outputs = [Output(view, alerts[view]) for view in circuit.outputs]
        return ViewSink(circuit, outputs, state_dir=tmp_path / "state")

    sink = start(range(2, 6))
    for number in range(MICRO_BATCHES):
        if number == 7 and is_restarted:
            sink.close()
            sink = start(range(2, 7))
        elif number == 7:
            assert sink.circuit.outputs == tuple(f"ring{length}" for length in range(2, 6))
            committed = sink.add_view(ring_rule(6), [Output("ring6", alerts["ring6"])])
        sink(Frame(tables[number], "q"), number)
    sink.close()
    assert is_restarted or committed.result(timeout=0) == 7
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
@pytest.mark.parametrize(
    "queries",
    [
        pytest.param([view for view in ANSWERS if view != "q1"], id="8 views"),
        pytest.param(list(ANSWERS), id="9 views", marks=pytest.mark.slow),  # q1 takes seconds
    ],
)
def test_columns_of_views_of_a_network_are_added_and_dropped_while_its_rows_change(
    queries: list[str],
) -> None:
    relations = lsqb.select_relations(lsqb.load(FOLDER), *queries)
    schemas = {name: table.schema for name, table in relations.items()}
    wider = dict(schemas)
    wider["Person_knows_Person"] = schemas["Person_knows_Person"].append(
        pa.field("note", pa.string())
    )
    keep = {name: InputOptions(keep="all") for name in schemas}
    text = lsqb.view_statements(*queries)
    assert text.count("count(*) AS n") == len(queries)
    doubled = text.replace("count(*) AS n", "count(*) AS n, count(*) * 2 AS twice")
    halves = [
        {
            name: table.take(np.array_split(np.random.default_rng(7).permutation(len(table)), 2)[k])
            for name, table in relations.items()
        }
        for k in range(2)
    ]

    def compile_views(text: str, schemas: Mapping[str, pa.Schema], views: list[str]) -> Circuit:
        return compile_sql(text, schemas, outputs=views, input_options=keep)

    old = compile_views(lsqb.view_statements(*queries[:-1]), schemas, queries[:-1])
    counts = Counter({view: sum_of(table, "n") for view, table in old.step(halves[0]).items()})

    # A query is added, all get another column, and an input gets a column.
    new = compile_views(doubled, wider, queries)
    change = ProgramChange(old, new)
    kinds = {view.view: view.kind for view in change.views}
    assert kinds == {**dict.fromkeys(queries[:-1], "replaced"), queries[-1]: "new"}
    published = change.apply()
    assert published.keys() == set(queries)
    for view, table in published.items():
        assert sum_of(table, "twice") == 2 * sum_of(table, "n")
        assert view == queries[-1] or sum_of(table, "n") == counts[view]
        counts[view] = sum_of(table, "n")
    knows = halves[1]["Person_knows_Person"]
    halves[1]["Person_knows_Person"] = knows.append_column(
        "note", pa.nulls(knows.num_rows, pa.string())
    )
    for view, table in new.step(halves[1]).items():
        counts[view] += sum_of(table, "n")
        assert sum_of(table, "twice") == 2 * sum_of(table, "n")
    assert counts == {view: ANSWERS[view] for view in queries}

    # All columns are dropped again, and the last view.
    back = compile_views(lsqb.view_statements(*queries[:-1]), schemas, queries[:-1])
    change = ProgramChange(new, back)
    assert change.removed_views == (queries[-1],)
    assert any(f"view {queries[-1]!r}" in loss for loss in change.losses)
    for view, table in change.apply().items():
        assert table.column_names == ["n", "weight"]
        assert sum_of(table, "n") == ANSWERS[view]
    deletions = {
        name: table.append_column("weight", pa.array(np.full(len(table), -1)))
        for name, table in relations.items()
    }
    for view, table in back.step(deletions).items():
        assert sum_of(table, "n") == -ANSWERS[view], view


def sum_of(table: pa.Table, column: str) -> int:
    return sum(row[column] * row["weight"] for row in table.to_pylist())
