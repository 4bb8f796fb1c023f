"""A circuit that loads a state into its operators equals a new circuit that loads it, and neither
builds nor plans them again.

A circuit loads versions of the state of two histories in any order, steps between them, and is
compared with a new circuit that loads the same version.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import (
    BrokenCircuitError,
    Circuit,
    EvaluationError,
    InputOptions,
    Lateness,
    Retention,
    State,
    compile_datalog,
    compile_sql,
)
from circuits.state.circuit_state import replace_state
from dbsp_wcoj.execution import plan_cache
from dbsp_wcoj.execution.physical_term import PhysicalTerm
from dbsp_wcoj.planning import term_planner
from dbsp_wcoj.values.interner import Interner
from tests.circuits.state.test_circuit_state import JOINS, NODES, skewed_steps
from tests.circuits.state.test_snapshot import INPUTS, VIEWS, steps
from tests.generators.recursive_programs import PROGRAMS, SCHEMA
from tests.support.random_sql import compile_case, deltas, draw_case, rearrange, rows_of
from tests.support.state_store import Store, assert_same_snapshot, bags
from tests.support.tables import EDGE, bag_of, edges, table_of

Tables = Mapping[str, pa.Table]
NOW = datetime(2024, 1, 1)
LAW = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
LINK = {"link": EDGE}
PATHS = "SELECT x.src, y.dst FROM link x JOIN link y ON x.dst = y.src"
#: A text, a comparison with a text that occurs late, and a sum of each text.
TEXTS = """
CREATE VIEW ann AS SELECT src FROM named WHERE name = 'ann' OR name IN ('eve', 'bob');
CREATE VIEW names AS SELECT name, count(*) AS n, max(name) AS last FROM named GROUP BY name;
CREATE VIEW pairs AS SELECT a.name || b.name AS both FROM named a JOIN named b ON a.src = b.src
"""
NAMED = {"named": pa.schema([("src", pa.int64()), ("name", pa.string())])}


class History:
    """The versions of the state of a circuit, after each of its steps.

    Attributes:
        versions: The state after each step, and the changes of the next one.
    """

    def __init__(self, circuit: Circuit, changes: Sequence[Tables], now: datetime) -> None:
        circuit = Circuit(circuit.spec)
        store = Store()
        self.versions: list[tuple[State, Tables]] = []
        for tables, following in zip(changes, [*changes[1:], {}], strict=True):
            step = circuit.prepare(tables, now=now)
            store.write(step)
            step.commit()
            self.versions.append((store.state(), following))


def all_rows(tables: Mapping[str, pa.Table]) -> dict[str, Counter[tuple[Any, ...]]]:
    return {name: Counter(rows_of(table)) for name, table in tables.items()}


def plans_of(circuit: Circuit) -> str:
    """Return the plans and state sizes; operators count their work as long as they exist."""
    return re.sub(r"ran [\d,]+ times: .*", "", circuit.explain())


def rows_or_error(
    circuit: Circuit, tables: Tables, now: datetime
) -> dict[str, Counter[tuple[Any, ...]]] | None:
    """Return the deltas of a step; None if an expression fails for a row."""
    try:
        return all_rows(circuit.step(tables, now=now))
    except EvaluationError:
        return None


def versions_of(
    circuit: Circuit, histories: Sequence[Sequence[Tables]], now: datetime
) -> list[tuple[State, Tables]]:
    """Return the versions of all histories; each history is a list of changes."""
    return [v for changes in histories for v in History(circuit, changes, now).versions]


def check_loads(
    circuit: Circuit,
    versions: Sequence[tuple[State, Tables]],
    rng: random.Random,
    *,
    loads: int = 8,
    now: datetime = NOW,
) -> int:
    """Compare loads of one circuit with those of new ones; return how many have built a graph."""
    with patch.object(
        Circuit, "build_graph", autospec=True, side_effect=Circuit.build_graph
    ) as build:
        again = Circuit(circuit.spec)
        build.call_count = 0
        for state, following in rng.choices(versions, k=loads):
            again.load(state)
            built = build.call_count
            new = Circuit(circuit.spec)
            new.load(state)
            assert_same_snapshot(again, new)
            assert again.graph.registry.plans == new.graph.registry.plans
            assert plans_of(again) == plans_of(new)
            assert all_rows(again.views) == all_rows(new.views)
            for tables in (following, {}):
                expected = rows_or_error(new, tables, now)
                assert rows_or_error(again, tables, now) == expected
                assert_same_snapshot(again, new)
            for dictionary in again.graph.registry.dictionaries.values():
                dictionary._check()
            build.call_count = built
    return build.call_count


@LAW
@given(st.integers(0, 2**40))
def test_random_sql_that_loads_versions_equals_new_circuits_that_load_them(seed):
    case, rng = draw_case(seed), random.Random(seed)
    circuit = compile_case(case, materialize=rng.random() < 0.5)
    histories = [
        [deltas(changes) for changes in steps] for steps in (case.steps, rearrange(case.steps, rng))
    ]
    now = case.times[0]
    try:
        versions = versions_of(circuit, histories, now)
    except EvaluationError:
        return
    check_loads(circuit, versions, rng, loads=5, now=now)


@pytest.mark.slow
@settings(LAW, max_examples=1500)
@given(st.integers(0, 2**40))
def test_much_random_sql_that_loads_versions_equals_new_circuits(seed):
    test_random_sql_that_loads_versions_equals_new_circuits_that_load_them.hypothesis.inner_test(
        seed
    )


def random_edges(rng: random.Random, count: int) -> Iterator[Tables]:
    """Yield changes of the relations of `PROGRAMS`."""
    present: dict[str, list[tuple[int, ...]]] = {name: [] for name in SCHEMA}
    for _ in range(count):
        tables = {}
        for name, fields in SCHEMA.items():
            rows, weights = [], []
            for _ in range(rng.randint(0, 3)):
                if present[name] and rng.random() < 0.3:
                    rows.append(present[name].pop(rng.randrange(len(present[name]))))
                    weights.append(-1)
                else:
                    rows.append(tuple(rng.randrange(4) for _ in fields))
                    present[name].append(rows[-1])
                    weights.append(1)
            schema = pa.schema([(field.name, field.type) for field in fields])
            tables[name] = table_of(schema, rows, weights)
        yield tables


@pytest.mark.parametrize("name", PROGRAMS)
def test_recursive_programs_that_load_versions_equal_new_circuits(name):
    inputs = {
        name: pa.schema([(field.name, field.type) for field in fields])
        for name, fields in SCHEMA.items()
    }
    rng = random.Random(name)
    circuit = compile_datalog(PROGRAMS[name], inputs, materialize=True)
    histories = [[*random_edges(rng, 4)] for _ in range(2)]
    check_loads(circuit, versions_of(circuit, histories, NOW), rng, loads=5)


def test_all_kinds_of_state_are_replaced():
    circuit = compile_sql(VIEWS, INPUTS, materialize=True)
    histories = [[*steps(8, seed=seed)] for seed in (5, 6)]
    check_loads(circuit, versions_of(circuit, histories, NOW), random.Random(0), loads=16)


def test_joins_whose_plans_change_are_planned_as_in_a_new_circuit():
    histories = [[*skewed_steps(12, seed=seed, size=200)] for seed in (1, 2)]
    circuit = compile_sql(JOINS, NODES)
    check_loads(circuit, versions_of(circuit, histories, NOW), random.Random(0), loads=12)


@pytest.mark.parametrize(
    "options",
    [
        InputOptions(keys=("src",)),
        InputOptions(strict=True, retain=Retention("at", 5)),
        InputOptions(lateness=Lateness("at", 2)),
        InputOptions(lateness=Lateness("at", 2), keys=("src",)),
    ],
)
def test_the_rows_and_watermarks_that_input_options_need_are_replaced(options):
    schema = pa.schema([("src", pa.int64()), ("name", pa.string()), ("at", pa.int64())])
    circuit = compile_sql(
        "SELECT at, name, count(*) AS n FROM r GROUP BY at, name",
        {"r": schema},
        input_options={"r": options},
        materialize=True,
    )
    rng = random.Random(3)

    def changes() -> Iterator[Tables]:
        for time in range(8):
            rows = [(rng.randrange(9), rng.choice("abcde"), time + n % 2) for n in range(5)]
            yield {"r": table_of(schema, sorted({row[0]: row for row in rows}.values()))}

    versions = versions_of(circuit, [[*changes()], [*changes()]], NOW)
    check_loads(circuit, versions, rng)


def texts(*names: str) -> Tables:
    return {"named": table_of(NAMED["named"], [(n % 2, name) for n, name in enumerate(names)])}


def test_texts_have_the_codes_of_the_loaded_version():
    """As many texts as before, and none of them removed: only the load itself tells them apart."""
    circuit = compile_sql(TEXTS, NAMED, materialize=True)
    histories = [
        [texts("ann", "x"), texts("bob", "eve"), texts("y")],
        [texts("x", "y"), texts("eve", "ann"), texts("bob")],
        [texts("bob", "ann"), texts("x", "y"), texts("eve")],
    ]
    versions = versions_of(circuit, histories, NOW)
    assert check_loads(circuit, versions, random.Random(0), loads=20) == 0


def test_a_program_with_constants_of_dictionaries_is_built_again():
    """The codes of constants are those of the history in which they were first encoded."""
    text = """
    CREATE VIEW all_names AS SELECT name FROM named UNION ALL VALUES ('zoe'), ('ann');
    CREATE VIEW n AS SELECT name, count(*) AS n FROM all_names GROUP BY name
    """
    circuit = compile_sql(text, NAMED, materialize=True)
    histories = [[texts("ann", "x"), texts("zoe")], [texts("zoe"), texts("x", "ann")]]
    versions = versions_of(circuit, histories, NOW)
    assert check_loads(circuit, versions, random.Random(0)) == 8


def states_of(circuit: Circuit, count: int, seed: int = 0) -> list[State]:
    rng = random.Random(seed)
    changes = [
        {"link": edges(*((rng.randrange(9), rng.randrange(9)) for _ in range(3)))}
        for _ in range(count)
    ]
    return [state for state, _ in History(circuit, changes, NOW).versions]


def test_loads_of_many_versions_build_and_plan_the_operators_once():
    circuit = compile_sql(PATHS, LINK)
    states = states_of(circuit, 9)
    counts = {"graphs": 0, "plans": 0, "terms": 0}

    def count(name: str, function: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*args, **options)

        return counted

    with (
        patch.object(Circuit, "build_graph", count("graphs", Circuit.build_graph)),
        patch.object(term_planner, "plan_term", count("plans", term_planner.plan_term)),
        patch.object(plan_cache, "PhysicalTerm", count("terms", PhysicalTerm)),
    ):
        again = Circuit(circuit.spec)
        built = dict(counts)
        for state in [*states, *states[::-1]]:
            again.load(state)
    assert counts == built == {"graphs": 1, "plans": 2, "terms": 2}


def test_a_new_circuit_compiles_the_joins_of_a_stored_state_once():
    circuit = compile_sql(PATHS, LINK)
    (state,) = states_of(circuit, 1)
    with patch.object(plan_cache, "PhysicalTerm", side_effect=PhysicalTerm) as terms:
        codecs = circuit.codecs
        circuit.keep_values(True)  # another circuit may use the dictionaries: it is built again
        circuit.load(state)
    assert circuit.codecs is not codecs and terms.call_count == 2


def test_readers_have_the_version_before_a_load():
    circuit = compile_sql(TEXTS, NAMED, materialize=True)
    ((first, _),) = History(circuit, [texts("ann", "bob")], NOW).versions
    ((second, _),) = History(circuit, [texts("x", "y")], NOW).versions
    circuit.load(first)
    views, version, expected = circuit.views, circuit.committed, bags(circuit.views)
    circuit.load(second)
    circuit.step(texts("z", "bob", "ann", "a"))
    assert bags(views) == expected
    assert version.codecs().codec(pa.string()).code_of("ann") == 0
    assert version.codecs().codec(pa.string()).code_of("x") is None


def test_a_load_that_fails_half_way_breaks_the_circuit_until_the_next_load():
    circuit = compile_sql(PATHS, LINK, materialize=True)
    first, second = states_of(circuit, 2)
    circuit.load(first)
    views = circuit.views
    expected = bags(views)
    with (
        patch.object(Interner, "replace_strings", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        circuit.load(second)
    assert bags(views) == expected
    with pytest.raises(BrokenCircuitError):
        circuit.step({})
    circuit.load(second)
    new = Circuit(circuit.spec)
    new.load(second)
    assert_same_snapshot(circuit, new)
    assert bag_of(circuit.step({"link": edges((1, 2))})["view"]) == bag_of(
        new.step({"link": edges((1, 2))})["view"]
    )


def test_a_state_that_lacks_a_trace_or_has_other_plans_needs_other_operators():
    circuit = compile_sql(PATHS, LINK, materialize=True)
    (state,) = states_of(circuit, 1)
    plans: dict[str, Any] = {"formula": "flipped", "joins": {}}
    for other in (
        State.empty(),
        replace(state, traces=dict([*state.traces.items()][1:])),
        replace(state, traces={**state.traces, "another": {}}),
        replace(state, plans={**circuit.graph.registry.plans, "joins": 7}),
        replace(state, plans={}),
        replace(state, plans={"formula": 7, "joins": {}}),
    ):
        assert replace_state(circuit.graph, other, circuit.codecs) is None
    for same in (state, replace(state, plans=None), replace(state, plans=plans)):
        assert replace_state(circuit.graph, same, circuit.codecs) is not None
