"""New views are computed in slices while the old ones go on; then they equal a fresh load."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pyarrow as pa
import pytest

from circuits import (
    Circuit,
    EvaluationError,
    InputOptions,
    Lateness,
    ProgramChangeError,
    Retention,
    SchemaError,
    compile_sql,
)
from circuits.state.given_rows import GivenRows
from circuits.state.program_change import ProgramChange
from circuits.state.sliced_backfill import SlicedBackfill
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Trace
from tests.generators.program_histories import (
    COLUMNS,
    VIEWS,
    Program,
    first_program,
    fresh_views,
    present_tables,
    random_rows,
)
from tests.support.interrupts import interrupted
from tests.support.tables import bag_of

E = {"e": "src bigint not null, dst bigint not null"}
KEEP = {"e": InputOptions(keep="all")}
SOURCES = "CREATE VIEW sources AS SELECT src, count(*) AS n FROM e GROUP BY src;"
PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"


def rows(*pairs, weight=1):
    return {"e": [{"src": a, "dst": b, "weight": weight} for a, b in pairs]}


def step(circuit: Circuit, tables, backfill: SlicedBackfill, max_rows: int, now=None) -> int:
    prepared = circuit.prepare(tables)
    prepared.commit()
    return backfill.advance(prepared.changes, max_rows, now)


def more_views(random: Random, program: Program) -> Program:
    absent = sorted(VIEWS.keys() - program.views.keys())
    for view in random.sample(absent, min(len(absent), random.randint(1, 3))):
        version, materialized = random.randrange(len(VIEWS[view])), random.random() < 0.3
        program = program.with_view(view, version, is_materialized=materialized)
    return program


@pytest.mark.parametrize("seed", range(60))
def test_views_over_given_rows_in_slices_equal_a_fresh_load(seed):
    random = Random(f"given {seed}")
    present: dict[str, list] = {name: [] for name in COLUMNS}
    program = replace(first_program(random), keeps_inputs=False)
    circuit = program.compile()
    for _ in range(random.randint(1, 6)):
        circuit.step(random_rows(random, program.schemas, present))
    old_views, program = set(program.views), more_views(random, program)
    new = program.compile()
    change = ProgramChange(circuit, new, given=COLUMNS)
    tables = present_tables(circuit, present)
    given = {name: GivenRows(circuit.inputs[name], table) for name, table in tables.items()}
    max_rows = random.choice([1, 2, 5, 20])
    begins_again = random.random() < 0.3  # as when the state has to be loaded again
    backfill = SlicedBackfill(change, given=given)
    while not backfill.is_complete:
        tables = random_rows(random, program.schemas, present) if random.random() < 0.7 else {}
        prepared = circuit.prepare(tables)
        prepared.commit()
        changes = list(prepared.changes)
        for name, table in tables.items():
            checked = prepared.checked_delta(name)
            step = given[name].add(table if checked is None else checked)
            changes += [] if step is None else [step]
        if begins_again and random.random() < 0.1:
            backfill.abandon()
            begins_again, new = False, program.compile()
            change = ProgramChange(circuit, new, given=COLUMNS)
            backfill = SlicedBackfill(change, given=given)
        else:
            check_slice(backfill, changes, max_rows)
        assert backfill.rows_read <= backfill.rows
        max_rows += random.random() < 0.3
    for name, table in present_tables(new, present).items():
        schema, codecs = new.inputs[name], Codecs()
        assert schema.to_zset(given[name].table(), codecs) == schema.to_zset(table, codecs)
    totals = {view: Counter(bag_of(table)) for view, table in backfill.finish().items()}
    fresh = fresh_views(program, present)
    check_totals(totals, {view: fresh[view] for view in fresh.keys() - old_views})
    for _ in range(random.randint(1, 3)):
        for view, table in new.step(random_rows(random, program.schemas, present)).items():
            totals.setdefault(view, Counter()).update(bag_of(table))
    fresh = fresh_views(program, present)
    check_totals(totals, {view: fresh[view] for view in fresh.keys() - old_views})


def check_slice(backfill: SlicedBackfill, changes, max_rows: int) -> None:
    """Compute a slice, and check how many rows it reads.

    The returned number also counts dropped rows, which are all rows of an event time, or none.
    """
    rows_before = backfill.rows_read
    count = backfill.advance(changes, max_rows)
    rows_read = backfill.rows_read - rows_before
    assert rows_read <= max_rows
    assert count == rows_read or rows_read < max_rows


@pytest.mark.parametrize("seed", range(60))
def test_views_that_are_computed_in_slices_equal_a_fresh_load(seed):
    random = Random(f"slices {seed}")
    program, present = first_program(random), {name: [] for name in COLUMNS}
    circuit = program.compile()
    totals: dict[str, Counter] = {}

    def add(deltas) -> None:
        for view, table in deltas.items():
            totals.setdefault(view, Counter()).update(bag_of(table))

    for _ in range(random.randint(1, 6)):
        add(circuit.step(random_rows(random, program.schemas, present)))
    for _ in range(random.randint(1, 2)):
        program = more_views(random, program)
        new = program.compile()
        backfill = SlicedBackfill(ProgramChange(circuit, new))
        max_rows = random.choice([1, 2, 5, 20])
        while not backfill.is_complete:
            tables = random_rows(random, program.schemas, present) if random.random() < 0.7 else {}
            prepared = circuit.prepare(tables)
            if random.random() < 0.2:
                prepared.abandon()
                prepared = circuit.prepare(tables)
            prepared.commit()
            add(prepared.outputs)
            check_slice(backfill, prepared.changes, max_rows)
            if random.random() < 0.3:
                check_slice(backfill, (), max_rows)
            max_rows += random.random() < 0.3  # so that slices are faster than the stream
        add(backfill.finish())
        circuit = new
        check_totals(totals, fresh_views(program, present))
        for _ in range(random.randint(0, 3)):
            add(circuit.step(random_rows(random, program.schemas, present)))
        fresh = fresh_views(program, present)
        check_totals(totals, fresh)
        for view in program.materialized:
            assert bag_of(circuit.views[view]) == fresh[view], view


@pytest.mark.parametrize("seed", range(60))
def test_the_emitted_slices_are_always_a_part_of_the_view(seed):
    random = Random(f"emitted {seed}")
    program, present = first_program(random), {name: [] for name in COLUMNS}
    circuit = program.compile()
    for _ in range(random.randint(1, 6)):
        circuit.step(random_rows(random, program.schemas, present))
    old_views, program = set(program.views), more_views(random, program)
    new = program.compile()
    sliced = {
        view: random.sample(new.schema(view).columns, random.randint(0, new.schema(view).arity))
        for view in sorted(program.views.keys() - old_views)
    }
    backfill = SlicedBackfill(ProgramChange(circuit, new), sliced)
    totals: dict[str, Counter] = {view: Counter() for view in sliced}
    max_rows = random.choice([1, 2, 5])
    while not backfill.is_complete:
        tables = random_rows(random, program.schemas, present) if random.random() < 0.7 else {}
        prepared = circuit.prepare(tables)
        slices = backfill.slices
        if random.random() < 0.2:
            prepared.abandon()
            prepared = circuit.prepare(tables)
        prepared.commit()
        for view, table in slices.items():
            totals[view].update(bag_of(table))
        backfill.confirm_slices()
        before = backfill.rows_emitted
        backfill.advance(prepared.changes, max_rows)
        assert backfill.emit(max_rows) <= max_rows
        assert backfill.rows_emitted - before <= max_rows
        fresh = fresh_views(program, present)
        for view, table in backfill.slices.items():
            so_far = totals[view] + Counter()
            so_far.update(bag_of(table))
            for row, weight in so_far.items():
                assert weight in (0, fresh[view][row]), f"{view} has no row {row}"
            if sliced[view]:
                keys = keys_of(new.schema(view).arrow, fresh[view], sliced[view])
                found = backfill.emitted_part(view).rows_of(keys)
                assert bag_of(found) == Counter({row: n for row, n in so_far.items() if n})
        max_rows += random.random() < 0.3
    for view, table in backfill.finish().items():
        totals[view].update(bag_of(table))
    fresh = fresh_views(program, present)
    check_totals(totals, {view: fresh[view] for view in sliced})
    for view, table in new.step(random_rows(random, program.schemas, present)).items():
        if view in totals:
            totals[view].update(bag_of(table))
    fresh = fresh_views(program, present)
    check_totals(totals, {view: fresh[view] for view in sliced})


def keys_of(columns: pa.Schema, rows: Counter, names: list[str]) -> pa.Table:
    """Return the distinct values of some columns of the rows of a view."""
    positions = [columns.get_field_index(name) for name in names]
    keys = sorted({tuple(row[i] for i in positions) for row in rows}, key=repr)
    arrays = [
        pa.array([key[n] for key in keys], columns.field(i).type) for n, i in enumerate(positions)
    ]
    return pa.table(arrays, names)


def test_a_complete_backfill_with_emitted_slices_reads_no_rows_of_the_view(monkeypatch):
    circuit = compile_sql(PATHS, E, input_options=KEEP)
    circuit.step(rows(*((n, n % 7) for n in range(90))))
    backfill = SlicedBackfill(
        ProgramChange(circuit, compile_sql(PATHS + SOURCES, E, input_options=KEEP)),
        {"sources": ["src"]},
    )
    sizes = []
    while not backfill.is_complete:
        sizes += [table.num_rows for table in backfill.slices.values()]
        backfill.confirm_slices()
        backfill.advance((), 8)
        backfill.emit(8)
    monkeypatch.setattr(Trace, "to_zset", None)
    assert backfill.finish()["sources"].num_rows <= 8
    assert max(sizes) == 8
    assert backfill.rows_emitted == 90


def check_totals(totals, fresh) -> None:
    for view, bag in fresh.items():
        rows = Counter({row: weight for row, weight in totals[view].items() if weight})
        assert rows == bag, view


def test_a_slice_has_at_most_the_given_rows_in_addition_to_the_delta(monkeypatch):
    circuit = compile_sql(PATHS, E, input_options=KEEP)
    circuit.step(rows(*((n % 10, n % 7) for n in range(70))))
    circuit.step(rows(*((n % 10, n % 9) for n in range(90))))
    new = compile_sql(PATHS + SOURCES, E, input_options=KEEP)
    change = ProgramChange(circuit, new)
    fed = []
    run_slice = change.backfill.run_slice
    monkeypatch.setattr(
        change.backfill,
        "run_slice",
        lambda contents, *arguments: (
            fed.append(sum(map(len, contents.values()))) or run_slice(contents, *arguments)
        ),
    )
    backfill = SlicedBackfill(change)
    number = 0
    while not backfill.is_complete:
        assert step(circuit, rows((number, 1), (number, 2)), backfill, 8) <= 8
        number += 1
    assert max(fed) <= 8 + 2
    assert number >= 70 / 8
    expected = compile_sql("SELECT src, count(*) AS n FROM e GROUP BY src", E)
    contents = backfill.finish()["sources"]
    live = new.views["e"]
    assert bag_of(contents) == bag_of(expected.step({"e": live})["view"])


def test_a_trace_that_is_taken_over_is_stored_again_only_for_a_new_join():
    circuit = compile_sql(PATHS, E, input_options=KEEP)
    circuit.step(rows(*((n % 5, n) for n in range(20))))
    for view, stored in (
        (SOURCES, 0),
        (PATHS.replace("paths", "back").replace("y.dst F", "x.dst F"), 20),
    ):
        change = ProgramChange(circuit, compile_sql(PATHS + view, E, input_options=KEEP))
        backfill = SlicedBackfill(change)
        while not backfill.is_complete:
            backfill.advance((), 6)
        assert change.graph.traces["relation e"].rows == stored, view
        backfill.abandon()


def test_an_arrangement_that_only_a_new_join_reads_is_built_by_the_slices():
    circuit = compile_sql(PATHS, E)
    circuit.step(rows(*((n % 5, n % 3) for n in range(30))))
    backward = (
        "CREATE VIEW meets AS SELECT x.src, y.src AS other FROM e x JOIN e y ON x.dst = y.dst"
    )
    new = compile_sql(PATHS + backward, E)
    backfill = SlicedBackfill(ProgramChange(circuit, new))
    while not backfill.is_complete:
        backfill.advance((), 2)
    traces = backfill.change.graph.traces
    filled = {
        (name, a.order): a.spine.runs for name, trace in traces.items() for a in trace.arrangements
    }
    backfill.finish()
    for name, trace in new.graph.traces.items():
        for arrangement in trace.arrangements:
            old = circuit.graph.traces.get(name)
            if old is None or arrangement.order not in old.orders:
                assert arrangement.spine.runs == filled[name, arrangement.order]


def test_values_that_only_the_new_views_have_stay_in_the_dictionaries():
    schemas = {"e": "name string not null"}
    old = compile_sql("CREATE VIEW v AS SELECT DISTINCT name FROM e;", schemas)
    old.step({"e": [{"name": f"name {n}"} for n in range(9)]})
    text = "CREATE VIEW v AS SELECT DISTINCT name FROM e;"
    new = compile_sql(text + "CREATE VIEW u AS SELECT upper(name) AS u FROM e", schemas)
    backfill = SlicedBackfill(ProgramChange(old, new))
    number = 0
    while not backfill.is_complete:
        tables = {"e": [{"name": f"more {number}"}]}
        old.prepare(tables).abandon()
        step(old, tables, backfill, 2)
        number += 1
    names = {row["u"] for row in backfill.finish()["u"].to_pylist()}
    assert names == {f"NAME {n}" for n in range(9)} | {f"MORE {n}" for n in range(number)}


def test_an_abandoned_backfill_leaves_the_circuit_as_it_was():
    circuit = compile_sql(PATHS, E, input_options=KEEP)
    circuit.step(rows((1, 2), (2, 0), (2, 3)))
    bad = "CREATE VIEW bad AS SELECT 9223372036854775807 + dst AS q FROM e"
    backfill = SlicedBackfill(
        ProgramChange(circuit, compile_sql(PATHS + bad, E, input_options=KEEP))
    )
    with pytest.raises(EvaluationError):
        while not backfill.is_complete:
            backfill.advance((), 1)
    backfill.abandon()
    assert bag_of(circuit.step(rows((3, 4)))["paths"]) == Counter({(2, 4): 1})
    backfill = SlicedBackfill(
        ProgramChange(circuit, compile_sql(PATHS + SOURCES, E, input_options=KEEP))
    )
    circuit.restore(circuit.snapshot())
    assert not backfill.is_valid


def test_a_backfill_that_lacks_a_delta_is_not_valid():
    circuit = compile_sql(PATHS, E, input_options=KEEP)
    circuit.step(rows((1, 2), (2, 0), (2, 3)))
    new = compile_sql(PATHS + SOURCES, E, input_options=KEEP)
    backfill = SlicedBackfill(ProgramChange(circuit, new))
    step(circuit, rows((3, 4)), backfill, 1)
    assert backfill.is_valid
    circuit.step(rows((3, 5)))
    assert not backfill.is_valid


def test_the_time_of_the_new_views_is_that_of_the_last_step():
    schemas = {"e": "at timestamp not null"}
    text = (
        "CREATE VIEW v AS SELECT at FROM e WHERE at > now() - INTERVAL '1 hour';"
        "CREATE VIEW w AS SELECT count(*) AS n, now() AS time FROM e;"
        "CREATE VIEW x AS SELECT at, hour(now()) AS h FROM e;"
    )
    old = compile_sql("CREATE VIEW n AS SELECT at FROM e;", schemas, materialize=["e"])
    hours = [f"2024-01-01 {hour:02}:30:00" for hour in range(6)]
    old.step({"e": times_of(hours)})
    new = compile_sql("CREATE VIEW n AS SELECT at FROM e;" + text, schemas, materialize=["e"])
    backfill = SlicedBackfill(ProgramChange(old, new))
    hour = 3_600_000_000
    start = 1_704_067_200_000_000
    for number in range(6):
        backfill.advance((), 1, start + number * hour)
    assert backfill.is_complete
    views = backfill.finish()
    times = [f"{row['at']:%H:%M}" for row in views["v"].to_pylist()]
    assert times == ["04:30", "05:30"]
    assert [(row["n"], row["time"].hour) for row in views["w"].to_pylist()] == [(6, 5)]
    assert [(row["at"].hour, row["h"]) for row in views["x"].to_pylist()] == [
        (hour, 5) for hour in range(6)
    ]


def times_of(times):
    return [{"at": datetime.fromisoformat(time).replace(tzinfo=UTC)} for time in times]


@pytest.mark.parametrize("on_expiry", ["retract", "keep"])
def test_rows_that_expire_during_the_slices_are_not_in_the_new_view(on_expiry):
    options = {"e": InputOptions(retain=Retention("dst", 10, on_expiry=on_expiry), keep="all")}
    grouped = "CREATE VIEW per AS SELECT dst, count(*) AS n FROM e GROUP BY dst;"
    more = "CREATE VIEW tops AS SELECT dst, max(src) AS m FROM e GROUP BY dst;"
    old = compile_sql(grouped, E, input_options=options)
    new = compile_sql(grouped + more, E, input_options=options)
    old.step(rows(*((n, n % 8) for n in range(16))))
    backfill = SlicedBackfill(ProgramChange(old, new))
    number = 8
    while not backfill.is_complete:
        step(old, rows((number, number)), backfill, 2)
        number += 1
    live = old.views["e"]
    expected = compile_sql("SELECT dst, max(src) AS m FROM e GROUP BY dst", E)
    assert bag_of(backfill.finish()["tops"]) == bag_of(expected.step({"e": live})["view"])


def test_lateness_of_an_input_that_no_new_view_reads_does_not_matter():
    schemas = {**E, "late": E["e"]}
    late = InputOptions(lateness=Lateness("dst", 5), keep="all")
    options = {"late": late, "e": InputOptions(keep="all")}
    times = "CREATE VIEW times AS SELECT dst, count(*) AS n FROM late GROUP BY dst;"
    sources = SOURCES.replace("sources", "starts")
    old = compile_sql(times, schemas, input_options=options)
    new = compile_sql(times + sources, schemas, input_options=options)
    old.step({"e": rows((1, 2), (1, 3), (2, 3))["e"], "late": rows((1, 20))["e"]})
    backfill = SlicedBackfill(ProgramChange(old, new))
    changes = [rows((4, 4)), {"late": rows((2, 30), (3, 24), (3, 29))["e"]}, rows((1, 5))]
    for change in changes:
        step(old, change, backfill, 1)
    while not backfill.is_complete:
        step(old, rows((1, 2)), backfill, 1)
    kept = old.views["e"]
    (view,) = backfill.finish().values()
    (fresh,) = compile_sql(sources, E).step({"e": kept}).values()
    assert bag_of(view) == bag_of(fresh)
    # The late row is dropped, as in the old circuit.
    assert new.step({"late": rows((9, 1))["e"]})["times"].num_rows == 0
    assert new.step({"late": rows((9, 31))["e"]})["times"].num_rows == 1


def test_a_backfill_that_lacks_a_step_is_not_finished():
    old = compile_sql(PATHS, E, input_options=KEEP)
    old.step(rows((1, 2)))
    backfill = SlicedBackfill(ProgramChange(old, compile_sql(PATHS + SOURCES, E)))
    backfill.advance((), 100)
    assert backfill.is_complete
    old.step(rows((2, 3)))
    with pytest.raises(ProgramChangeError, match="lack the rows of a later step"):
        backfill.finish()


def test_changes_that_are_not_possible_in_slices_are_refused(monkeypatch):
    late = {"e": InputOptions(keys=("dst", "src"), lateness=Lateness("dst", 1))}
    old = compile_sql(SOURCES, E, input_options=late)
    old.step(rows((1, 2)))
    new = compile_sql(SOURCES + PATHS, E, input_options=late)
    with pytest.raises(ProgramChangeError, match=r"rows of e are given.* checked as a whole"):
        SlicedBackfill(ProgramChange(old, new, given=["e"]))
    old = compile_sql(SOURCES, E)
    old.step(rows((1, 2)))
    change = ProgramChange(old, compile_sql(SOURCES + PATHS, E), given=["e"])
    with monkeypatch.context() as patch:
        patch.setattr(Circuit, "keep_values", None)  # a refused backfill does not stop sweeps
        with pytest.raises(ProgramChangeError, match="rows of e are to be given"):
            SlicedBackfill(change)
    with pytest.raises(ProgramChangeError, match="need the rows"):
        SlicedBackfill(ProgramChange(old, compile_sql(SOURCES + PATHS, E)))
    old = compile_sql(PATHS, E, input_options=KEEP)
    old.step(rows((1, 2)))
    changed = compile_sql(PATHS.rstrip(";") + " WHERE x.src > 0", E, input_options=KEEP)
    with pytest.raises(ProgramChangeError, match="paths: a view that was published"):
        SlicedBackfill(ProgramChange(old, changed))


def test_given_rows_that_cannot_be_loaded_stay_to_be_loaded():
    schema = compile_sql(PATHS, E).inputs["e"]
    given = GivenRows(schema, pa.table({"src": ["1", "2", "x"], "dst": ["1", "2", "3"]}))
    for _ in range(2):
        with pytest.raises(SchemaError, match="src"):
            given.load(2)
        assert given.rows_to_load == 3
    assert given.trace.is_empty


#: The files that change the given rows in memory.
GIVEN_FILES = (
    "circuits/state/given_rows.py",
    "dbsp_wcoj/storage/trace.py",
    "dbsp_wcoj/storage/spine.py",
)


def test_an_interrupted_load_neither_loses_nor_doubles_given_rows():
    schema = compile_sql(PATHS, E).inputs["e"]
    batches = [pa.record_batch({"src": [n, n], "dst": [n, -n]}) for n in range(9)]
    batches.append(pa.record_batch({"src": [3], "dst": [3]}))
    table = pa.Table.from_batches(batches)
    delta = pa.table({"src": [3, 4], "dst": [3, 9], "weight": [-1, 2]})
    expected = schema.to_zset(table, Codecs()) + schema.to_zset(delta, Codecs())

    def loaded_in_part():
        given = GivenRows(schema, table)
        given.load(4)
        given.add(delta)
        return given

    given = loaded_in_part()
    with interrupted(None, GIVEN_FILES) as counted:
        given.load(5)
    for line in range(1, counted[0] + 1):
        given = loaded_in_part()
        with interrupted(line, GIVEN_FILES):
            given.load(5)
        with interrupted(1 + line % 9, GIVEN_FILES):  # also while the rows are repaired
            given.load(5)
        assert given.rows_to_load in (15, 10, 5)
        codecs = Codecs()
        assert schema.to_zset(given.table(), codecs) == expected
        while not given.is_loaded:
            given.load(5)
        assert schema.to_zset(given.table(), codecs) == expected
