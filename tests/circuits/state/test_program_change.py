"""After a change of the program, views equal those of a fresh load of the new program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, count
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import (
    BrokenCircuitError,
    Circuit,
    InputOptions,
    Lateness,
    ProgramChangeError,
    Retention,
    compile_datalog,
    compile_sql,
    udf,
)
from circuits.state.program_change import ProgramChange
from circuits.state.sliced_backfill import SlicedBackfill
from tests.generators.program_histories import (
    COLUMNS,
    changed_program,
    first_program,
    fresh_views,
    random_rows,
)
from tests.oracles.naive_plan import sum_weights
from tests.support.tables import bag_of

E = {"e": "src bigint not null, dst bigint not null, name string"}
PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst, x.name FROM e x JOIN e y ON x.dst = y.src;"
COUNTS = "CREATE VIEW counts AS SELECT src, count(*) AS n FROM e GROUP BY src;"
ROWS = [
    {"src": 1, "dst": 2, "name": "a"},
    {"src": 2, "dst": 3, "name": "b"},
    {"src": 2, "dst": 1, "name": None},
]
START = datetime(2026, 1, 1, tzinfo=UTC)


def loaded(text: str, schemas: Mapping, rows: Mapping = {"e": ROWS}, **options) -> Circuit:
    circuit = compile_sql(text, schemas, **options)
    circuit.step(rows)
    return circuit


def change(old: Circuit, new: Circuit, tables=None, **options) -> dict[str, Counter]:
    """Change the program; return what its views publish because of it."""
    plan = ProgramChange(old, new, given=(tables or {}).keys(), **options)
    return {name: bag_of(table) for name, table in plan.apply(tables).items()}


def kinds(old: Circuit, new: Circuit, **options) -> dict[str, str]:
    return {view.view: view.kind for view in ProgramChange(old, new, **options).views}


def actions(old: Circuit, new: Circuit) -> Counter:
    return Counter(trace.action for trace in ProgramChange(old, new).traces)


def step_bags(circuit: Circuit, rows: Mapping, **options) -> dict[str, Counter]:
    return {name: bag_of(table) for name, table in circuit.step(rows, **options).items()}


# Views


def test_a_new_view_reads_the_rows_that_another_view_joins():
    new = compile_sql(PATHS + COUNTS, E)
    assert change(loaded(PATHS, E), new) == {"counts": Counter({(1, 1): 1, (2, 2): 1})}
    later = step_bags(new, {"e": [{"src": 3, "dst": 1, "name": "c"}]})
    assert later["counts"] == Counter({(3, 1): 1})
    assert later["paths"] == Counter({(3, 2, "c"): 1, (2, 1, "b"): 1})


def test_a_new_view_reads_a_materialized_view():
    text = "CREATE VIEW big AS SELECT dst, count(*) AS n FROM paths GROUP BY dst"
    old = loaded(PATHS + COUNTS, E, materialize=["paths", "counts"])
    new = compile_sql(f"{PATHS} {COUNTS} {text}", E, materialize=["paths", "counts"])
    plan = ProgramChange(old, new)
    assert plan.rows_to_read == old.views["paths"].num_rows
    assert change(old, new) == {"big": Counter({(3, 1): 1, (1, 1): 1, (2, 1): 1})}


def test_an_unchanged_view_keeps_its_state_and_reads_nothing():
    old, new = loaded(PATHS + COUNTS, E), compile_sql(COUNTS + PATHS, E)
    assert kinds(old, new) == {"counts": "unchanged", "paths": "unchanged"}
    assert actions(old, new).keys() == {"reuse"}
    assert ProgramChange(old, new).rows_to_read == 0
    assert change(old, new) == {}
    assert step_bags(new, {"e": ROWS[:1]})["counts"] == Counter({(1, 1): -1, (1, 2): 1})


def test_a_removed_view_is_a_loss_and_its_state_is_dropped():
    old, new = loaded(PATHS + COUNTS, E), compile_sql(PATHS, E)
    plan = ProgramChange(old, new)
    assert plan.losses == ["view 'counts', which is not published any more"]
    assert plan.removed_views == ("counts",)
    assert actions(old, new)["drop"] == 1
    assert plan.apply() == {}


def test_a_renamed_view_goes_on_if_the_change_says_so():
    old = loaded(PATHS, E)
    new = compile_sql(PATHS.replace("VIEW paths", "VIEW ways"), E)
    assert kinds(old, new) == {"ways": "new"}
    assert ProgramChange(old, new).losses == ["view 'paths', which is not published any more"]
    renames = {"ways": "paths"}
    assert kinds(old, new, renames=renames) == {"ways": "renamed"}
    assert ProgramChange(old, new, renames=renames).losses == []
    assert change(old, new, renames=renames) == {}
    with pytest.raises(ProgramChangeError, match=r"'way': 'paths'.*give a view of the new program"):
        ProgramChange(old, new, renames={"way": "paths"})


def test_a_changed_filter_publishes_the_difference():
    old = loaded("CREATE VIEW v AS SELECT src, dst FROM e WHERE dst > 1", E, materialize=["e"])
    new = compile_sql("CREATE VIEW v AS SELECT src, dst FROM e WHERE dst < 3", E, materialize=["e"])
    assert kinds(old, new) == {"v": "changed"}
    assert change(old, new) == {"v": Counter({(2, 3): -1, (2, 1): 1})}


def test_a_changed_formula_publishes_the_difference():
    old = loaded(PATHS + "CREATE VIEW v AS SELECT src + 1 AS x FROM e", E)
    new = compile_sql(PATHS + "CREATE VIEW v AS SELECT src * 2 AS x FROM e", E)
    assert change(old, new) == {"v": Counter({(3,): -2, (4,): 2})}


def test_an_added_column_of_a_view_publishes_all_rows():
    old = loaded(PATHS + "CREATE VIEW v AS SELECT src FROM e", E)
    new = compile_sql(PATHS + "CREATE VIEW v AS SELECT src, name FROM e", E)
    plan = ProgramChange(old, new)
    assert kinds(old, new)["v"] == "replaced"
    assert plan.losses == [
        "the published rows of view 'v', which has other columns now: its target still has rows "
        "with the old ones"
    ]
    assert change(old, new) == {"v": Counter({(1, "a"): 1, (2, "b"): 1, (2, None): 1})}


def test_a_view_that_becomes_an_output_publishes_all_rows():
    text = PATHS + COUNTS
    old = loaded(text, E, outputs=["counts"])
    new = compile_sql(text, E, outputs=["counts", "paths"])
    assert kinds(old, new) == {"counts": "unchanged", "paths": "new"}
    expected = compile_sql(text, E).step({"e": ROWS})["paths"]
    assert change(old, new) == {"paths": bag_of(expected)}


def test_a_view_becomes_materialized_and_back():
    old, new = loaded(PATHS, E), compile_sql(PATHS, E, materialize=["paths"])
    assert change(old, new) == {}
    assert bag_of(new.views["paths"]) == bag_of(compile_sql(PATHS, E).step({"e": ROWS})["paths"])
    back = compile_sql(PATHS, E)
    assert ProgramChange(new, back).losses == ["the materialized rows of view 'paths'"]
    assert change(new, back) == {}


def test_a_recursion_is_computed_or_taken_over_as_a_whole():
    rules = "path(x, y) :- e(x, y). path(x, z) :- path(x, y), e(y, z)."
    schemas = {"e": "src bigint not null, dst bigint not null"}
    rows = {"e": [{"src": 1, "dst": 2}, {"src": 2, "dst": 3}]}
    old = compile_datalog(rules, schemas)
    old.step(rows)
    same = compile_datalog(rules + " ends(y) :- path(x, y), not e(y, x).", schemas)
    assert change(old, same) == {"ends": Counter({(2,): 1, (3,): 1})}
    assert step_bags(same, {"e": [{"src": 3, "dst": 4}]})["path"] == Counter(
        {(1, 4): 1, (2, 4): 1, (3, 4): 1}
    )
    pairs = compile_datalog("pair(x, z) :- e(x, y), e(y, z).", schemas)
    pairs.step(rows)
    assert change(pairs, compile_datalog("pair(x, z) :- e(x, y), e(y, z). " + rules, schemas)) == {
        "path": Counter({(1, 2): 1, (2, 3): 1, (1, 3): 1})
    }


# Inputs


def test_a_new_input_is_empty_unless_its_rows_are_given():
    schemas = {**E, "f": "id bigint, t string"}
    text = PATHS + "CREATE VIEW named AS SELECT e.name, f.t FROM e JOIN f ON e.src = f.id"
    new = compile_sql(text, schemas)
    assert change(loaded(PATHS, E), new) == {"named": Counter()}
    assert step_bags(new, {"f": [{"id": 1, "t": "x"}]})["named"] == Counter({("a", "x"): 1})
    given = {"f": pa.table({"id": [2], "t": ["x"]})}
    new = compile_sql(text, schemas)
    assert change(loaded(PATHS, E), new, given) == {
        "named": Counter({("b", "x"): 1, (None, "x"): 1})
    }


def test_rows_that_are_not_kept_are_named_and_can_be_given():
    old = loaded(COUNTS, E)
    text = COUNTS + "CREATE VIEW names AS SELECT DISTINCT name FROM e"
    with pytest.raises(ProgramChangeError) as error:
        change(old, compile_sql(text, E))
    assert str(error.value) == (
        "input 'e': new or changed views need the rows of its columns (name) so far, and its old "
        "views do not keep whole rows of it"
    )
    given = {"e": pa.Table.from_pylist(ROWS)}
    assert change(old, compile_sql(text, E), given) == {
        "names": Counter({("a",): 1, ("b",): 1, (None,): 1})
    }
    with pytest.raises(ProgramChangeError, match="'x' is not an input of the new program"):
        change(old, compile_sql(text, E), {"x": given["e"]})


NAMES = "CREATE VIEW names AS SELECT src, count(*) AS n FROM e GROUP BY src;"
NAMED = "CREATE VIEW names AS SELECT src, count(*) AS n FROM e WHERE name > '' GROUP BY src;"


@pytest.mark.parametrize(
    "columns",
    [
        "name string, src bigint not null, dst bigint not null",
        "dst bigint not null, since int, name string, src bigint not null",
    ],
)
def test_old_views_read_given_rows_by_the_names_of_their_columns(columns):
    rows = pa.Table.from_pylist([{"since": 7, **row} for row in ROWS])
    given = {"e": rows.select([column.split()[0] for column in columns.split(", ")])}
    new = compile_sql(NAMED, {"e": columns})
    assert change(loaded(NAMES, E), new, given) == {"names": Counter({(2, 2): -1, (2, 1): 1})}


def test_old_views_read_given_rows_with_their_types():
    narrow = {"e": "src bigint not null, dst int not null"}
    old = loaded("CREATE VIEW n AS SELECT count(*) AS n FROM e WHERE dst > 1", narrow, {"e": []})
    old.step({"e": [{"src": 1, "dst": 2}]})
    new = compile_sql("CREATE VIEW n AS SELECT count(*) AS n FROM e WHERE dst > 2", E)
    given = {"e": pa.table({"src": [1], "dst": [2], "name": ["a"]})}
    assert change(old, new, given) == {"n": Counter({(1,): -1, (0,): 1})}


def test_given_rows_without_a_column_of_an_old_view_are_not_enough():
    old = loaded(NAMED, E)
    new = compile_sql(NAMES, {"e": "src bigint not null, dst bigint not null"})
    given = {"e": pa.Table.from_pylist(ROWS).select(["src", "dst"])}
    with pytest.raises(ProgramChangeError, match="the given rows do not have name"):
        change(old, new, given)


def test_an_input_that_keeps_all_rows_serves_any_later_view():
    options = {"e": InputOptions(keep="all")}
    old = loaded(COUNTS, E, input_options=options)
    assert old.materialized == ("e",)
    text = COUNTS + "CREATE VIEW names AS SELECT DISTINCT name FROM e"
    new = compile_sql(text, E, input_options=options)
    assert change(old, new) == {"names": Counter({("a",): 1, ("b",): 1, (None,): 1})}


def test_some_columns_of_an_input_are_enough_for_a_view_that_reads_no_others():
    old = loaded("CREATE VIEW v AS SELECT DISTINCT src, dst FROM e", E)
    text = "CREATE VIEW v AS SELECT DISTINCT src, dst FROM e;"
    assert change(old, compile_sql(text + COUNTS, E)) == {"counts": Counter({(1, 1): 1, (2, 2): 1})}
    with pytest.raises(ProgramChangeError, match="the kept rows do not have name"):
        change(old, compile_sql(text + "CREATE VIEW n AS SELECT name FROM e", E))


def test_rows_of_an_input_that_no_view_needs_any_more_are_a_loss():
    old = loaded(PATHS + COUNTS, E)
    assert ProgramChange(old, compile_sql(COUNTS, E)).losses == [
        "view 'paths', which is not published any more",
        "the rows of input 'e' (columns src, dst, name)",
    ]


def test_a_new_nullable_column_of_an_input_keeps_the_state_of_views_that_do_not_read_it():
    old = loaded(PATHS + COUNTS, E)
    wider = {"e": "src bigint not null, dst bigint not null, name string, note string"}
    new = compile_sql(PATHS + COUNTS, wider)
    assert kinds(old, new) == {"paths": "unchanged", "counts": "unchanged"}
    assert actions(old, new).keys() == {"reuse"}
    notes = "CREATE VIEW notes AS SELECT src, note FROM e"
    new = compile_sql(PATHS + COUNTS + notes, wider)
    assert change(old, new) == {"notes": Counter({(1, None): 1, (2, None): 2})}
    strict = {"e": "src bigint not null, dst bigint not null, name string, note string not null"}
    with pytest.raises(ProgramChangeError, match="note is new and NOT NULL"):
        change(old, compile_sql(PATHS + COUNTS + notes, strict))


def test_columns_of_an_input_may_change_their_order_and_be_dropped():
    old = loaded(PATHS + COUNTS, E)
    new = compile_sql(
        PATHS + COUNTS, {"e": "name string, dst bigint not null, src bigint not null"}
    )
    assert kinds(old, new) == {"paths": "changed", "counts": "unchanged"}
    assert change(old, new) == {"paths": Counter()}  # it joins columns in another order
    row = {"src": 2, "dst": 9, "name": "z"}
    assert step_bags(new, {"e": [row]})["paths"] == Counter({(1, 9, "a"): 1})
    narrower = compile_sql(COUNTS, {"e": "dst bigint not null, src bigint not null"})
    assert change(new, narrower) == {}
    assert step_bags(narrower, {"e": [{"src": 2, "dst": 0}]})["counts"] == Counter(
        {(2, 3): -1, (2, 4): 1}
    )


def test_a_wider_type_of_an_input_computes_its_views_again():
    narrow = {"e": "src int not null, dst int not null, name string"}
    old = loaded(PATHS, narrow)
    new = compile_sql(PATHS + COUNTS, E)
    expected = compile_sql(PATHS + COUNTS, E).step({"e": ROWS})
    published = change(old, new)
    assert kinds(loaded(PATHS, narrow), compile_sql(PATHS, E)) == {"paths": "replaced"}
    assert published == {name: bag_of(table) for name, table in expected.items()}
    with pytest.raises(ProgramChangeError, match="column 'src' was int64 and is bool"):
        change(
            new,
            compile_sql(
                PATHS + COUNTS, {"e": "src boolean not null, dst boolean not null, name string"}
            ),
        )


def test_a_column_that_becomes_not_null_is_checked():
    old = loaded(PATHS, E)
    new = compile_sql(
        PATHS + COUNTS, {"e": "src bigint not null, dst bigint not null, name string not null"}
    )
    with pytest.raises(ProgramChangeError, match="'name' is NOT NULL now, and 1 of the kept rows"):
        change(old, new)


# Options of inputs


def test_keys_of_an_input_are_checked_against_its_rows():
    old = loaded(PATHS, E)
    keyed = compile_sql(PATHS, E, input_options={"e": InputOptions(keys=["src"])})
    with pytest.raises(
        ProgramChangeError, match=r"2 of its 3|1 of its 3 rows have the key \(src\)"
    ):
        change(old, keyed)
    keyed = compile_sql(PATHS, E, input_options={"e": InputOptions(keys=["dst"])})
    assert change(old, keyed) == {}
    assert step_bags(keyed, {"e": [{"src": 1, "dst": 3, "name": "n"}]})["paths"] == Counter(
        {(1, 3, "a"): -1, (2, 3, None): 1}
    )


def test_an_upsert_input_goes_on_after_a_change():
    options = {"e": InputOptions(keys=["src", "dst"])}
    old = loaded(COUNTS, E, input_options=options)
    names = "CREATE VIEW names AS SELECT src, name FROM e"
    new = compile_sql(COUNTS + names, E, input_options=options)
    assert change(old, new) == {"names": Counter({(1, "a"): 1, (2, "b"): 1, (2, None): 1})}
    assert step_bags(new, {"e": [{"src": 1, "dst": 2, "name": "z"}]}) == {
        "counts": Counter(),
        "names": Counter({(1, "a"): -1, (1, "z"): 1}),
    }


def test_a_strict_input_must_have_no_negative_weights():
    old = loaded(PATHS, E, {"e": pa.table({"src": [1], "dst": [2], "name": ["a"], "weight": [-1]})})
    new = compile_sql(PATHS, E, input_options={"e": InputOptions(strict=True)})
    with pytest.raises(ProgramChangeError, match="1 rows have a negative weight"):
        change(old, new)


TIMED = {"e": "k bigint, at timestamp"}
BY_KEY = "CREATE VIEW v AS SELECT k, count(*) AS n FROM e GROUP BY k"


def timed(*days: int) -> dict:
    return {"e": [{"k": day, "at": START + timedelta(days=day)} for day in days]}


def retained(days: int, **options) -> dict[str, InputOptions]:
    return {"e": InputOptions(retain=Retention("at", f"{days} days"), **options)}


@pytest.mark.parametrize(("old_days", "new_days"), [(10, 3), (3, 10), (10, None), (None, 3)])
@pytest.mark.parametrize("late_days", [None, 2])
def test_a_changed_retention_holds_from_the_next_step_on(old_days, new_days, late_days):
    lateness = None if late_days is None else Lateness("at", f"{late_days} days")

    def options(days: int | None) -> dict[str, InputOptions]:
        retain = None if days is None else Retention("at", f"{days} days")
        return {"e": InputOptions(retain=retain, lateness=lateness, keep="all")}

    old = compile_sql(BY_KEY, TIMED, input_options=options(old_days))
    published = step_bags(old, timed(1, 5, 9))["v"]
    new = compile_sql(BY_KEY, TIMED, input_options=options(new_days))
    if lateness is not None and old_days is None:
        with pytest.raises(ProgramChangeError, match="with lateness gets a retention"):
            change(old, new)
        return
    assert change(old, new) == {}
    published = sum_weights([*published.items(), *step_bags(new, timed(12))["v"].items()])
    kept = [1, 5, 9, 12] if old_days != 3 else [9, 12]
    if new_days is not None:
        kept = [day for day in kept if day >= 12 - new_days]
    assert published == Counter({(day, 1): 1 for day in kept})


@pytest.mark.parametrize(("old_kind", "new_kind"), [("keep", "retract"), ("retract", "keep")])
def test_a_changed_on_expiry_holds_for_rows_that_expire_after_the_change(old_kind, new_kind):
    def options(kind: str) -> dict[str, InputOptions]:
        retain = Retention("at", "3 days", on_expiry=kind)
        return {"e": InputOptions(retain=retain, keep="all")}

    def day(*days: int) -> dict:
        return {"e": [{"k": n, "at": START + timedelta(days=n)} for n in days]}

    text = "CREATE VIEW v AS SELECT at, count(*) AS n, max(k) AS k FROM e GROUP BY at"
    old = compile_sql(text, TIMED, input_options=options(old_kind))
    published = [*step_bags(old, day(1, 5))["v"].items(), *step_bags(old, day(9))["v"].items()]
    new = compile_sql(text, TIMED, input_options=options(new_kind))
    assert change(old, new) == {}
    for n in (10, 20):
        published += step_bags(new, day(n))["v"].items()
    days = {k for _, _, k in sum_weights(published)}
    assert days == ({1, 5, 20} if old_kind == "keep" else {9, 10, 20})


def test_a_materialized_view_does_not_go_on_with_results_of_expired_rows():
    text = "CREATE VIEW v AS SELECT at, count(*) AS n FROM e GROUP BY at"
    more = "; CREATE VIEW w AS SELECT at, n + 1 AS n FROM v"

    def compiled(kind: str, text: str, *materialize: str):
        retain = Retention("at", "3 days", on_expiry=kind)
        options = {"e": InputOptions(retain=retain, keep="all")}
        return compile_sql(text, TIMED, materialize=materialize, input_options=options)

    old = compiled("keep", text, "v")
    old.step(timed(1, 5))
    old.step(timed(9))
    with pytest.raises(ProgramChangeError, match=r"'v' is materialized .* expired rows of e"):
        change(old, compiled("retract", text, "v"))
    second = compiled("retract", text)
    change(old, second)
    third = compiled("retract", text, "v")
    change(second, third)
    last = compiled("retract", text + more, "v")
    assert change(third, last) == {"w": Counter({(START + timedelta(days=9), 2): 1})}
    assert len(last.views["v"]) == 1


def test_an_input_may_lose_its_retention_and_keep_other_options():
    old = compile_sql(BY_KEY, TIMED, input_options=retained(10, keep="all"))
    old.step(timed(1, 5, 14))
    strict = {"e": InputOptions(strict=True, keep="all")}
    new = compile_sql(BY_KEY, TIMED, input_options=strict)
    assert change(old, new) == {}
    assert step_bags(new, timed(1, 30)) == {"v": Counter({(1, 1): 1, (30, 1): 1})}


def test_given_rows_that_are_older_than_the_retention_are_left_out():
    old = compile_sql(
        BY_KEY, TIMED, input_options={"e": InputOptions(lateness=Lateness("at", "1 day"))}
    )
    old.step(timed(1, 9))
    text = BY_KEY + "; CREATE VIEW w AS SELECT max(k) AS m FROM e"
    options = {"e": InputOptions(lateness=Lateness("at", "1 day"))}
    new = compile_sql(text, TIMED, input_options=options)
    given = {"e": pa.table({"k": [1, 9], "at": [START, START + timedelta(days=9)]})}
    assert change(old, new, given) == {"w": Counter({(9,): 1})}


def test_state_that_has_lost_old_rows_does_not_count_as_whole():
    options = {name: InputOptions(lateness=Lateness("at", "1 day")) for name in ("a", "b")}
    schemas = {name: "k bigint, at timestamp" for name in ("a", "b")}
    join = (
        "CREATE VIEW v AS SELECT a.k, b.at FROM a JOIN b ON a.k = b.k "
        "AND b.at BETWEEN a.at AND a.at + INTERVAL '1 day';"
    )
    old = compile_sql(join, schemas, input_options=options)
    for day in (1, 5, 9):
        old.step({name: timed(day)["e"] for name in schemas})
    more = compile_sql(
        join + "CREATE VIEW n AS SELECT count(*) AS n FROM a", schemas, input_options=options
    )
    with pytest.raises(ProgramChangeError, match="input 'a'"):
        change(old, more)
    unbounded = compile_sql(join, schemas)
    with pytest.raises(ProgramChangeError, match="input 'a'"):
        change(old, unbounded)
    same = compile_sql(join.replace("VIEW v", "VIEW w"), schemas, input_options=options)
    assert change(old, same, renames={"w": "v"}) == {}


def test_a_view_of_the_current_time_goes_on_at_the_time_of_the_last_step():
    recent = "CREATE VIEW recent AS SELECT k FROM e WHERE at > now() - INTERVAL '3 days';"
    old = compile_sql(recent, TIMED, materialize=["e"])
    old.step(timed(1, 5), now=START + timedelta(days=6))
    more = (
        "CREATE VIEW older AS SELECT k FROM e WHERE at < now() - INTERVAL '3 days';"
        "CREATE VIEW days AS SELECT k, day(now()) AS d FROM e;"
    )
    new = compile_sql(recent + more, TIMED, materialize=["e"])
    first = (START + timedelta(days=6)).day
    assert change(old, new) == {
        "older": Counter({(1,): 1}),
        "days": Counter({(1, first): 1, (5, first): 1}),
    }
    later = {name: bag for name, bag in step_bags(new, {}, now=START + timedelta(days=9)).items()}
    assert later == {
        "recent": Counter({(5,): -1}),
        "older": Counter({(5,): 1}),
        "days": Counter({(1, first): -1, (5, first): -1, (1, first + 3): 1, (5, first + 3): 1}),
    }


def test_the_old_circuit_accepts_no_steps_after_the_change():
    old, new = loaded(PATHS, E), compile_sql(PATHS, E)
    change(old, new)
    with pytest.raises(BrokenCircuitError, match="has moved to a circuit of other views"):
        old.step({"e": ROWS})
    assert old.committed.steps == new.committed.steps == 1


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_change_that_fails_at_its_end_leaves_both_circuits_as_they_were(error, monkeypatch):
    old, new, twin = loaded(PATHS, E), compile_sql(PATHS + COUNTS, E), loaded(PATHS, E)

    def fail(*arguments, **options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Circuit, "adopt", fail)
        with pytest.raises(error):
            ProgramChange(old, new).apply()
    assert not old.is_ended
    assert new.committed.steps == 0
    assert step_bags(old, {"e": ROWS}) == step_bags(twin, {"e": ROWS})
    fresh = compile_sql(PATHS + COUNTS, E)
    assert change(old, fresh).keys() == {"counts"}


@pytest.mark.parametrize("is_committed", [True, False])
def test_rows_that_were_computed_before_another_step_do_not_finish_a_change(is_committed):
    schemas = {"e": "src varchar, dst varchar"}
    view = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
    other = "CREATE VIEW texts AS SELECT src || '!' AS text FROM e"
    keep = {"e": InputOptions(keep="all")}
    old, new, later = (
        compile_sql(text, schemas, input_options=keep)
        for text in (view, view + other, view + other)
    )
    old.step({"e": [{"src": "a", "dst": "b"}]})
    plan = ProgramChange(old, new)
    computed = plan.compute()
    step = old.prepare({"e": [{"src": "c", "dst": "d"}]})
    if is_committed:
        step.commit()
    else:
        step.abandon()
    with pytest.raises(ProgramChangeError, match="has made or prepared a step since"):
        plan.finish(computed)
    assert not old.is_ended
    texts = ProgramChange(old, later).apply()["texts"].column("text").to_pylist()
    assert sorted(texts) == ["a!", *["c!"] * is_committed]


def test_two_views_do_not_go_on_with_the_rows_of_one():
    one, two = (f"CREATE VIEW {name} AS SELECT src FROM e;" for name in ("v", "x"))
    old, new = loaded(one, E), compile_sql(one + two, E)
    with pytest.raises(ProgramChangeError, match="views 'v' and 'x' would both go on with"):
        ProgramChange(old, new, renames={"x": "v"})
    assert kinds(old, new, renames={"x": "v"}, published=()) == {"v": "new", "x": "new"}
    both = loaded(one + two, E)
    swapped = {"x": "v", "v": "x"}
    assert kinds(both, compile_sql(one + two, E), renames=swapped).keys() == {"v", "x"}


def test_a_plan_leaves_the_old_circuit_as_it_was():
    old, new = loaded(PATHS, E), compile_sql(PATHS + COUNTS, E)
    twin = loaded(PATHS, E)
    ProgramChange(old, new)
    assert step_bags(old, {"e": ROWS}) == step_bags(twin, {"e": ROWS})


# Random histories


def continued(published: Mapping[str, Counter], plan: ProgramChange) -> dict[str, Counter]:
    """Return the rows that the targets of the new views have before the change is published."""
    return {
        view.view: published[view.view] if view.kind in ("unchanged", "changed") else Counter()
        for view in plan.views
    }


def play(seed: int) -> None:
    random = Random(seed)
    program = first_program(random)
    circuit = program.compile()
    present: dict[str, list] = {name: [] for name in COLUMNS}
    published: dict[str, Counter] = {name: Counter() for name in program.views}
    for _ in range(random.randint(3, 8)):
        if random.random() < 0.5:
            program = changed_program(random, program)
            new = program.compile()
            plan = ProgramChange(circuit, new)
            changes = plan.apply()
            published = continued(published, plan)
            circuit = new
        else:
            changes = circuit.step(random_rows(random, program.schemas, present))
        for name, table in changes.items():
            published[name] = sum_weights([*published[name].items(), *bag_of(table).items()])
        if not circuit.committed.steps:
            continue  # constants are inserted in the first step
        fresh = fresh_views(program, present)
        assert published == fresh, program
        for name in program.materialized:
            assert bag_of(circuit.views[name]) == fresh[name], name


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_views_after_random_changes_equal_a_fresh_load(seed):
    play(seed)


# Views over event time, with several versions each. The last versions need rows that the first ones
# have dropped.
TIMED_VIEWS = {
    "joined": (
        "SELECT a.k, b.at FROM a JOIN b ON a.k = b.k "
        "AND b.at BETWEEN a.at AND a.at + INTERVAL '2 hours'",
        "SELECT a.n AS k, b.at FROM a JOIN b ON a.k = b.k "
        "AND b.at BETWEEN a.at AND a.at + INTERVAL '3 hours'",
        "SELECT a.k, b.at FROM a JOIN b ON a.k = b.k",
    ),
    "hourly": (
        "SELECT date_trunc('hour', at) AS h, count(*) AS n FROM a GROUP BY 1",
        "SELECT date_trunc('hour', at) AS h, count(DISTINCT k) AS n FROM a GROUP BY 1",
        "SELECT date_trunc('hour', at) AS h, max(k) AS n FROM a GROUP BY 1",
    ),
    "sets": ("SELECT DISTINCT k, at FROM a", "SELECT DISTINCT at FROM b"),
    "best": (
        "SELECT k, at FROM (SELECT *, row_number() OVER (PARTITION BY at ORDER BY k, n) AS r "
        "FROM a) t WHERE r = 1",
    ),
    "closed": (
        "SELECT date_trunc('hour', at) AS h, count(*) AS n FROM a GROUP BY 1 EMIT ON WINDOW CLOSE",
        "SELECT date_trunc('hour', at) AS h, count(*) AS n FROM b GROUP BY 1 EMIT ON WINDOW CLOSE",
    ),
    "total": ("SELECT count(*) AS n FROM a", "SELECT count(*) AS n FROM b"),
    "sessions": (
        "SELECT k, SESSION_START(at, INTERVAL '30' MINUTE) AS s, count(*) AS n FROM a "
        "GROUP BY k, SESSION(at, INTERVAL '30' MINUTE)",
    ),
}
TIMED_SCHEMAS = {
    "a": "k bigint not null, at timestamp not null, n string",
    "b": "k bigint not null, at timestamp not null",
}


def timed_circuit(versions: Mapping[str, int]) -> Circuit:
    text = "; ".join(
        f"CREATE VIEW {name} AS {TIMED_VIEWS[name][version]}" for name, version in versions.items()
    )
    lateness = Lateness("at", "10 minutes")
    options = {name: InputOptions(lateness=lateness, keep="all") for name in TIMED_SCHEMAS}
    return compile_sql(text, TIMED_SCHEMAS, input_options=options, outputs=list(versions))


def timed_rows(random: Random, minute: int) -> dict[str, list]:
    """Return rows of ten minutes from a minute on, so that none is late."""
    tables = {}
    for name in TIMED_SCHEMAS:
        rows: list[dict] = [
            {
                "k": random.randint(0, 2),
                "at": START + timedelta(minutes=minute + random.randint(0, 9)),
            }
            for _ in range(random.randint(0, 4))
        ]
        tables[name] = [{**row, "n": random.choice("xyz")} for row in rows] if name == "a" else rows
    return {name: rows for name, rows in tables.items() if rows}


def play_timed(seed: int) -> None:
    random = Random(seed)
    names = random.sample(sorted(TIMED_VIEWS), random.randint(1, 4))
    versions = {name: random.randrange(len(TIMED_VIEWS[name])) for name in names}
    circuit, history, minute = timed_circuit(versions), [], 0
    published = {name: Counter() for name in versions}
    for _ in range(random.randint(4, 10)):
        if random.random() < 0.4:
            name = random.choice(sorted(TIMED_VIEWS))
            if name in versions and len(versions) > 1 and random.random() < 0.4:
                versions = {other: v for other, v in versions.items() if other != name}
            else:
                versions = {**versions, name: random.randrange(len(TIMED_VIEWS[name]))}
            new = timed_circuit(versions)
            plan = ProgramChange(circuit, new)
            changes = plan.apply()
            published = continued(published, plan)
            circuit = new
        else:
            minute += random.choice([9, 30, 60, 200])
            history.append(timed_rows(random, minute))
            changes = circuit.step(history[-1])
        fresh = timed_circuit(versions)
        expected = {name: Counter() for name in versions}
        for totals, tables in ((published, [changes]), (expected, map(fresh.step, history))):
            for deltas in tables:
                for name, table in deltas.items():
                    pairs = [*totals[name].items(), *bag_of(table).items()]
                    totals[name] = sum_weights(pairs)
        assert published == expected, versions


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_views_over_event_time_after_random_changes_equal_those_that_ran_from_the_start(seed):
    play_timed(seed)


@pytest.mark.parametrize("gap", [5, 500])
def test_a_trace_that_sessions_of_another_gap_have_cut_is_not_reused(gap):
    def sessions(gap: int) -> Circuit:
        query = f"""CREATE VIEW v AS SELECT s.k, s.ts, b.ts AS at
            FROM TABLE(SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), {gap})) s
            JOIN b ON b.k = s.k AND b.ts BETWEEN s.window_start AND s.window_start + 10"""
        schema = "k bigint not null, ts bigint not null"
        options = {n: InputOptions(lateness=Lateness("ts", 5), keep="all") for n in "ab"}
        return compile_sql(query, {"a": schema, "b": schema}, input_options=options)

    def rows(*times: int) -> list[dict]:
        return [{"k": 1, "ts": ts} for ts in times]

    old, new, fresh = sessions(5), sessions(gap), sessions(gap)
    history = [{"a": rows(0), "b": rows(1, 3)}, {"a": rows(100), "b": rows(100)}]
    history.append({"a": rows(200), "b": rows(200)})
    for tables in history:
        old.step(tables)
        fresh.step(tables)
    ProgramChange(old, new).apply()
    for tables in ({"a": rows(300), "b": rows(301)}, {"a": rows(400)}):
        assert step_bags(new, tables) == step_bags(fresh, tables)


# User-defined functions

CALLS = "CREATE VIEW a AS SELECT k, f(x) AS v FROM t;"
T = {"t": "k bigint, x bigint"}


def numbered_calls(text: str, *, numbers=count()) -> Circuit:  # noqa: B008 (one for all)
    """Compile a program with a function ``f`` whose result differs from call to call."""
    return compile_sql(
        text,
        T,
        input_options={"t": InputOptions(keep="all")},
        functions={"f": udf(lambda x: next(numbers), returns="bigint")},
    )


def total(*bags: Counter) -> Counter:
    return sum_weights(chain.from_iterable(bag.items() for bag in bags))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("changed", "max_rows"),
    [(CALLS.replace("f(x)", "f(x) + 1000"), None), (CALLS, None), (CALLS, 1), (CALLS, 3)],
)
def test_a_change_uses_the_results_that_the_state_has(changed, max_rows, seed):
    random = Random(seed)
    rows = [(random.randint(0, 3), random.choice([None, 5, 6])) for _ in range(2 + 2 * seed)]
    old = numbered_calls(CALLS)
    a = step_bags(old, {"t": [{"k": k, "x": x} for k, x in rows]})["a"]
    new = numbered_calls(changed + "CREATE VIEW b AS SELECT DISTINCT v FROM a;")
    if max_rows is None:
        published = change(old, new)
    else:
        backfill = SlicedBackfill(ProgramChange(old, new))
        while not backfill.is_complete:
            half, rows = rows[: len(rows) // 2], rows[len(rows) // 2 :]
            deleted = [{"k": k, "x": x, "weight": -1} for k, x in half]
            prepared = old.prepare({"t": deleted})
            prepared.commit()
            a = total(a, bag_of(prepared.outputs["a"]))
            backfill.advance(prepared.changes, max_rows)
        published = {name: bag_of(table) for name, table in backfill.finish().items()}
    a, b = total(a, published.get("a", Counter())), published["b"]
    for k, x in [*rows, (7, 5)]:
        assert {v for _, v in a} == {v for (v,) in b}
        later = step_bags(new, {"t": [{"k": k, "x": x, "weight": -1 if k < 7 else 1}]})
        a, b = total(a, later["a"]), total(b, later["b"])
    assert list(b.values()) == [1]
    assert [v for _, v in a] == [v for (v,) in b]


def test_results_for_the_expressions_of_earlier_programs_are_freed():
    circuit = loaded("CREATE VIEW v AS SELECT src FROM e WHERE dst < 0", E)
    sizes = []
    for number in range(1, 5):
        view = f"CREATE VIEW v AS SELECT src FROM e WHERE dst + {number} < {number} OR src = dst"
        new = compile_sql(view, E)
        ProgramChange(circuit, new, given=["e"]).apply({"e": new.inputs["e"].empty_table})
        circuit = new
        circuit.step({"e": ROWS})
        sizes.append(sum(map(len, circuit.codecs.memos.values())))
    assert sizes[-1] == sizes[0] > 0
