"""The state after a change to a random query equals the state of a circuit that always had it.

The old and the new query are drawn independently, so they rarely share more than parts.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import Circuit, compile_sql
from circuits.circuit_spec import CircuitSpec
from circuits.options import CircuitOptions
from circuits.program_edits import add_views
from circuits.state.program_change import ProgramChange
from circuits.state.sliced_backfill import SlicedBackfill
from tests.circuits.sql.test_sql_circuits import World
from tests.circuits.state.test_circuit_state import schema_of, tables_of
from tests.generators.plans import RELATIONS, History, identity, plans
from tests.generators.sql_generator import SCHEMAS, selects
from tests.support.tables import bag_of

LAW = settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def check_change(data, make, change_rows) -> None:
    """Change between two circuits some times, and compare the second with its twin."""
    old, new = make(), make()
    twin = Circuit(new.spec)
    for _ in range(data.draw(st.integers(1, 3))):
        tables = change_rows()
        old.step(tables)
        twin.step(tables)
    change = ProgramChange(old, new)
    published = {name: bag_of(table) for name, table in change.apply().items()}
    for name, bag in published.items():
        if name not in old.outputs:
            assert bag == bag_of(twin.views[name])
    assert_equal_views(new, twin)
    for _ in range(data.draw(st.integers(1, 3))):
        tables = change_rows()
        deltas = {name: bag_of(table) for name, table in new.step(tables).items()}
        assert deltas == {name: bag_of(table) for name, table in twin.step(tables).items()}
    assert_equal_views(new, twin)
    back = Circuit(old.spec)
    ProgramChange(new, back).apply()
    fresh = Circuit(old.spec)
    fresh.step({name: back.views[name] for name in back.inputs})
    assert_equal_views(back, fresh)


def assert_equal_views(left: Circuit, right: Circuit) -> None:
    for name in left.plans:
        assert bag_of(left.views[name]) == bag_of(right.views[name]), name


@LAW
@given(st.data())
def test_random_sql_after_a_change_equals_a_circuit_that_ran_from_the_start(data):
    world = World()
    check_change(
        data,
        lambda: compile_sql(data.draw(selects()), SCHEMAS, materialize=True),
        lambda: world.change(data.draw),
    )


@LAW
@given(st.data())
def test_random_sql_that_is_computed_in_slices_equals_a_fresh_load(data):
    world = World()
    old = compile_sql("CREATE VIEW one AS SELECT 1 AS x", SCHEMAS, materialize=[*SCHEMAS])
    for _ in range(data.draw(st.integers(1, 3))):
        old.step(world.change(data.draw))
    spec = add_views(old.spec, data.draw(selects()))
    views = [view for view in spec.outputs if view != "one"]
    backfill = SlicedBackfill(ProgramChange(old, Circuit(spec)))
    max_rows = data.draw(st.integers(1, 8))
    while not backfill.is_complete:
        step = old.prepare(world.change(data.draw) if data.draw(st.booleans()) else {})
        step.commit()
        assert backfill.advance(step.changes, max_rows) <= max_rows
        max_rows += 1  # so that the slices end
    contents = backfill.finish()
    new = backfill.change.new
    fresh = Circuit(spec)
    rows = {name: new.views[name] for name in new.inputs}
    assert bags_of(contents, views) == bags_of(fresh.step(rows), views)
    for _ in range(2):
        tables = world.change(data.draw)
        assert bags_of(new.step(tables), views) == bags_of(fresh.step(tables), views)


def bags_of(tables, views):
    return {view: bag_of(tables[view]) for view in views}


@LAW
@given(st.data())
def test_a_random_plan_after_a_change_equals_a_circuit_that_ran_from_the_start(data):
    schemas = {name: schema_of(name) for name in RELATIONS}
    history = History()

    def make() -> Circuit:
        plan = identity(data.draw(plans()))
        return Circuit(CircuitSpec({"view": plan}, schemas, CircuitOptions(materialize=True)))

    check_change(data, make, lambda: tables_of(history.change(data.draw)))
