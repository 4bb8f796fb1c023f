"""Which views may read an input whose published results are kept, and the errors of others.

The law: a query that is accepted publishes, for every cut of a stream, what the query gives over
all rows. Queries are drawn without regard to what is accepted.
"""

from __future__ import annotations

import re
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from circuits import InputOptions, InputOptionsError, Retention, compile_datalog, compile_sql
from circuits.circuit import Circuit
from tests.circuits.inputs.test_expiry import (
    NEAR,
    SCHEMAS,
    cases,
    circuit_of,
    divisions,
    query_over_all_rows,
    run_steps,
)
from tests.support.tables import INT, bag_of

#: Queries with the columns k, ts and n over the inputs, and over other such queries.
BASES = [
    "SELECT k, ts, n FROM a",
    "SELECT k, ts, n FROM a",
    "SELECT k, ts, n FROM b",
    f"SELECT x.k, x.ts, y.ts AS n FROM a x JOIN b y ON {NEAR}",
    "SELECT x.k, y.ts, x.n FROM a x JOIN b y ON x.ts = y.ts",
    "SELECT x.k, y.ts, x.n FROM a x JOIN a y ON x.ts = y.ts AND x.k = y.n",
    "SELECT k, k AS ts, k AS n FROM names",
]
WRAPPERS = [
    "SELECT k, ts, n FROM ({0}) q WHERE n > 0",
    "SELECT k, ts, n FROM ({0}) q WHERE n = ts",
    "SELECT k, ts // 3 AS ts, n FROM ({0}) q",
    "SELECT k, ts - ts % 5 AS ts, n FROM ({0}) q",
    "SELECT k, ts % 5 AS ts, n FROM ({0}) q",
    "SELECT k, n AS ts, ts AS n FROM ({0}) q",
    "SELECT DISTINCT k, ts, n FROM ({0}) q",
    "SELECT DISTINCT k, ts, 0 AS n FROM ({0}) q",
    "SELECT k, ts, count(*) AS n FROM ({0}) q GROUP BY k, ts",
    "SELECT n AS k, ts, sum(k) AS n FROM ({0}) q GROUP BY ts, n",
    "SELECT k, max(ts) AS ts, count(*) AS n FROM ({0}) q GROUP BY k",
    "SELECT k, ts, n FROM ({0}) q QUALIFY row_number() OVER (PARTITION BY ts ORDER BY n, k) <= 1",
    "SELECT k, ts, n FROM ({0}) q QUALIFY row_number() OVER (PARTITION BY k ORDER BY n, ts) <= 1",
    "SELECT k, ts, rank() OVER (PARTITION BY ts ORDER BY n) AS n FROM ({0}) q",
    "SELECT k, ts, sum(n) OVER (PARTITION BY k ORDER BY ts) AS n FROM ({0}) q",
    "SELECT k, ts, n FROM ({0}) q WHERE EXISTS (SELECT 1 FROM ({1}) p WHERE p.k = q.k)",
    "SELECT k, ts, n FROM ({0}) q WHERE k NOT IN (SELECT n FROM ({1}) p WHERE n IS NOT NULL)",
    "SELECT q.k, q.ts, m.k AS n FROM ({0}) q LEFT JOIN names m ON m.k = q.n",
    "SELECT q.k, q.ts, p.n FROM ({0}) q LEFT JOIN ({1}) p ON p.ts = q.ts",
    "{0} UNION ALL {1}",
    "{0} UNION {1}",
    "{0} EXCEPT {1}",
    "{0} EXCEPT ALL {1}",
    "{0} INTERSECT {1}",
]


@st.composite
def queries(draw, depth: int = 3) -> str:
    """A query with the columns k, ts, n."""
    if depth == 0 or not draw(st.integers(0, 4)):
        return draw(st.sampled_from(BASES))
    wrapper = draw(st.sampled_from(WRAPPERS))
    below = draw(queries(depth - 1))
    is_same = draw(st.booleans())
    other = below if is_same else draw(queries(depth - 1))
    if "UNION" in wrapper or "EXCEPT" in wrapper or "INTERSECT" in wrapper:
        below, other = (f"SELECT k, ts, n FROM ({query}) u" for query in (below, other))
    return wrapper.format(below, other)


def check_law(data, query) -> None:
    events, retention = data.draw(cases(query))
    try:
        circuit_of(query, retention, "keep")
    except InputOptionsError as error:
        assert re.search(r"^view 'view': .* over input '[ab]', .* on_expiry='retract'", str(error))
        assume(False)
    expected = query_over_all_rows(query, events)
    for steps in ([events], [[event] for event in events], data.draw(divisions(events))):
        total, _ = run_steps(circuit_of(query, retention, "keep"), steps)
        assert total == expected


@settings(max_examples=40, deadline=None)
@given(st.data(), queries())
def test_a_query_that_is_accepted_publishes_the_query_over_all_rows(data, query):
    check_law(data, query)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(st.data(), queries(4))
def test_deep_queries_that_are_accepted_publish_the_query_over_all_rows(data, query):
    check_law(data, query)


EVENTS = pa.schema([("k", INT), ("at", pa.timestamp("us")), ("n", INT)])
ZONED = pa.schema([("k", INT), ("at", pa.timestamp("us", "Europe/Rome"))])
INPUTS = {"a": EVENTS, "b": EVENTS, "z": ZONED, "plain": pa.schema([("k", INT), ("n", INT)])}
DAY = {name: InputOptions(retain=Retention("at", "1 day", on_expiry="keep")) for name in "abz"}


def compile_query(query: str, **rules) -> Circuit:
    return compile_sql(query, INPUTS, input_options={**DAY, **rules})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT date_trunc('hour', at), count(*) FROM a GROUP BY 1",
        "SELECT at::DATE, k, avg(n) FROM a GROUP BY 1, 2",
        "SELECT year(at) y, count(*) FROM a GROUP BY y HAVING count(*) > 1",
        "SELECT at + INTERVAL '30 days' m, count(*) FROM a GROUP BY m",
        "SELECT at::DATE + INTERVAL '1 month' m, count(*) FROM a GROUP BY m",
        "SELECT a.at, count(*) FROM a JOIN b ON a.k = b.k AND a.at = b.at GROUP BY a.at",
        "SELECT a.at, count(*) FROM a JOIN plain p ON a.k = p.k GROUP BY a.at",
        "SELECT h, count(*) FROM (SELECT DISTINCT k, date_trunc('hour', at) h FROM a) q GROUP BY h",
        "SELECT a.k FROM a WHERE NOT EXISTS (SELECT 1 FROM plain p WHERE p.k = a.k)",
        "SELECT at FROM (SELECT k, at FROM a UNION ALL SELECT n, at FROM a) u GROUP BY at",
        "SELECT k, rank() OVER (PARTITION BY date_trunc('hour', at) ORDER BY n) FROM a",
        "SELECT h, count(*) FROM (SELECT date_trunc('hour', at) h, lag(k) OVER (PARTITION BY at "
        "ORDER BY n) FROM a) q GROUP BY h",
        "SELECT count(*) FROM plain",
        "SELECT z.at, count(*) FROM z GROUP BY z.at",
    ],
)
def test_views_whose_results_are_final_are_accepted(query):
    compile_query(query)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT DISTINCT k FROM a", r"DISTINCT .* over input 'a'.*: add 'at' of each row of 'a'"),
        ("SELECT k, count(*) FROM a GROUP BY k", "over input .a.*when one of its rows expires"),
        ("SELECT count(*) FROM a", "an aggregate of all rows over input 'a'"),
        ("SELECT month(at), count(*) FROM a GROUP BY 1", "non-decreasing function of it"),
        # The sums of 30 January 12:00 and 31 January 05:00 are in the reverse order.
        ("SELECT at + INTERVAL '1 month' m, count(*) FROM a GROUP BY m", "non-decreasing function"),
        ("SELECT at::VARCHAR t, count(*) FROM a GROUP BY t", "GROUP BY over"),
        ("SELECT date_trunc('hour', at), count(*) FROM z GROUP BY 1", "GROUP BY over input 'z'"),
        ("SELECT a.at, count(*) FROM a JOIN b ON a.k = b.k GROUP BY a.at", "of each row of 'b'"),
        (
            "SELECT x.at, count(*) FROM a x JOIN a y ON x.k = y.k GROUP BY x.at",
            "of each row of 'a'",
        ),
        ("SELECT k FROM a ORDER BY n LIMIT 3", r"ORDER BY with LIMIT.* over input 'a'"),
        ("SELECT k, rank() OVER (PARTITION BY k ORDER BY at) FROM a", "a window function over"),
        ("SELECT k FROM a UNION SELECT k FROM plain", "DISTINCT .*UNION"),
        ("SELECT k, at FROM a UNION SELECT k, at FROM b", "several branches are in one group"),
        ("SELECT k FROM plain EXCEPT SELECT k FROM a", "over input 'a'"),
        ("SELECT k, at FROM a EXCEPT ALL SELECT k, at FROM b", "EXCEPT or INTERSECT over"),
        ("SELECT p.k, a.n FROM plain p LEFT JOIN a ON a.k = p.k", "a LEFT or RIGHT JOIN over"),
        ("SELECT p.k, a.n FROM a RIGHT JOIN plain p ON a.k = p.k", "a LEFT or RIGHT JOIN over"),
        ("SELECT p.k, a.n FROM plain p FULL JOIN a ON a.k = p.k", "a FULL JOIN over input 'a'"),
        ("SELECT p.k, a.n FROM a FULL JOIN plain p ON a.k = p.k", "a FULL JOIN over input 'a'"),
        ("SELECT k FROM plain WHERE k IN (SELECT k FROM a)", "EXISTS or IN over input 'a'"),
        ("SELECT k FROM plain WHERE k NOT IN (SELECT k FROM a)", "NOT IN over input 'a'"),
        ("SELECT k, (SELECT max(n) FROM a) m FROM plain", "input 'a'"),
        (
            "WITH RECURSIVE r AS (SELECT k, n FROM a UNION SELECT r.k, a.n FROM r JOIN a "
            "ON r.n = a.k) SELECT * FROM r",
            "a recursion over input 'a'",
        ),
    ],
)
def test_views_whose_results_could_change_are_refused_with_the_reason(query, words):
    with pytest.raises(InputOptionsError, match=f"view 'view': .*{words}.*") as caught:
        compile_query(query)
    assert "on_expiry='keep'" in str(caught.value)
    assert "use on_expiry='retract'" in str(caught.value)
    retract = {name: InputOptions(retain=Retention("at", "1 day")) for name in "abz"}
    compile_query(query, **retract)


def test_a_view_over_a_view_names_the_view_with_the_operator():
    text = (
        "CREATE VIEW v AS SELECT k, n FROM a; CREATE VIEW w AS SELECT k, max(n) FROM v GROUP BY k"
    )
    with pytest.raises(InputOptionsError, match="view 'w': GROUP BY over input 'a'"):
        compile_query(text)


def test_datalog_rules_need_the_event_times_in_their_heads():
    rules = {name: DAY[name] for name in ("a", "b")}
    inputs = {name: INPUTS[name] for name in ("a", "b")}
    compile_datalog("r(k, t, u) :- a(k, t, n), b(k, u, n).", inputs, input_options=rules)
    with pytest.raises(
        InputOptionsError, match=r"view 'r': DISTINCT .* add 'at' of each row of 'b'"
    ):
        compile_datalog("r(k, t) :- a(k, t, n), b(k, u, n).", inputs, input_options=rules)


def test_a_view_over_both_kinds_of_expiry_is_refused():
    b = InputOptions(retain=Retention("at", "1 day"))
    with pytest.raises(
        InputOptionsError, match=r"view 'view' reads input 'a' with on_expiry='keep' and .*b"
    ):
        compile_query("SELECT a.k FROM a JOIN b ON a.k = b.k", b=b)
    compile_query(
        "CREATE VIEW v AS SELECT k FROM a; CREATE VIEW w AS SELECT DISTINCT k FROM b", b=b
    )


def test_kept_keys_have_the_event_time_among_them():
    InputOptions(keys=("k", "at"), retain=Retention("at", "1 day", on_expiry="keep"))
    with pytest.raises(InputOptionsError, match="add 'at' to the keys"):
        InputOptions(keys=("k",), retain=Retention("at", "1 day", on_expiry="keep"))


def test_an_unknown_on_expiry_is_refused():
    with pytest.raises(InputOptionsError, match="on_expiry='drop' must be 'retract'"):
        Retention("at", "1 day", on_expiry="drop")  # type: ignore[arg-type]


def test_only_keep_changes_the_fingerprint():
    """A state that was written before the option existed belongs to "retract"."""
    default, retract = Retention("at", "1 day"), Retention("at", "1 day", on_expiry="retract")
    kept = Retention("at", "1 day", on_expiry="keep")
    assert default == retract != kept
    assert repr(default) == "Retention(column='at', duration=datetime.timedelta(days=1))"
    fingerprints = [
        compile_query("SELECT k FROM a", a=InputOptions(retain=retention)).fingerprint
        for retention in (default, retract, kept)
    ]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_explain_says_that_results_are_kept():
    assert "retain at for 1 day, results are kept" in compile_query("SELECT k FROM a").explain()


def test_a_group_stays_in_the_state_until_all_of_it_has_expired():
    query = "SELECT ts // 10 AS bucket, count(*) AS c FROM a GROUP BY 1"
    rows = [("a", (0, ts, 0), 1) for ts in (1, 9, 8, 14, 30)]
    circuit = circuit_of(query, {"a": 3}, "keep", materialize=["a"])
    assert run_steps(circuit, [[row] for row in rows[:4]])[0] == {(0, 3): 1, (1, 1): 1}
    assert bag_of(circuit.views["a"]) == {
        (0, 14, 0): 1
    }  # the watermark is 11, the start of the group 10
    total, _ = run_steps(circuit_of(query, {"a": 3}, "keep"), [[row] for row in rows])
    assert total == {(0, 3): 1, (1, 1): 1, (3, 1): 1}


def test_groups_of_times_before_1970_and_of_calendar_months_expire_as_a_whole():
    query = "SELECT date_trunc('month', at) AS m, count(*) AS c FROM a GROUP BY m"
    circuit = compile_query(query)

    def step(*times: datetime) -> dict:
        table = pa.table({"k": [0] * len(times), "at": list(times), "n": [0] * len(times)})
        return dict(bag_of(circuit.step({"a": table.cast(EVENTS)})["view"]))

    march, april = datetime(1968, 3, 1), datetime(1968, 4, 1)
    assert step(datetime(1968, 3, 1), datetime(1968, 3, 30)) == {(march, 2): 1}
    assert step(datetime(1968, 3, 31, 23)) == {(march, 2): -1, (march, 3): 1}
    assert step(datetime(1968, 4, 1, 12)) == {(april, 1): 1}
    assert step(datetime(1968, 3, 31, 18)) == {(march, 3): -1, (march, 4): 1}  # not late yet
    assert step(datetime(1968, 4, 3)) == {(april, 1): -1, (april, 2): 1}
    assert sum(len(trace.to_zset()) for trace in circuit.graph.traces.values() if trace.orders) > 0
    trace = circuit.graph.traces["relation a"]
    assert {row[1] for row, _ in trace.to_zset()} == {
        int((time - datetime(1970, 1, 1)).total_seconds()) * 10**6
        for time in (datetime(1968, 4, 1, 12), datetime(1968, 4, 3))
    }


@settings(max_examples=60, deadline=None)
@example([("names", 0, 0), ("a", 0, 8), ("a", 0, 4), ("a", 0, 10), ("names", 0, 0)])
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "a", "names"]), st.integers(0, 2), st.integers(0, 6)),
        min_size=3,
        max_size=14,
    )
)
def test_groups_of_several_lengths_expire_where_both_begin(changes):
    """A late name meets whole groups only: a group is published once, with all its rows."""
    text = (
        "CREATE VIEW v AS SELECT ts // 7 AS g, count(*) AS c FROM a JOIN names m ON m.k = a.k "
        "GROUP BY 1; CREATE VIEW w AS SELECT ts // 5 AS g, count(*) AS c FROM a JOIN names m "
        "ON m.k = a.k GROUP BY 1"
    )
    circuit = circuit_of(text, {"a": 4}, "keep", materialize=["v", "w"])
    ts = 0
    for name, k, gap in changes:
        ts += gap
        row = {"k": [k], "ts": [ts], "n": [0]} if name == "a" else {"k": [k], "name": ["x"]}
        circuit.step({name: pa.table(row).cast(SCHEMAS[name])})
        for view in ("v", "w"):
            groups = bag_of(circuit.views[view])
            assert set(groups.values()) <= {1}
            assert len({g for g, _ in groups}) == len(groups)
