"""Time windows and ASOF joins in SQL, against DuckDB after every step, and their errors."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from circuits import InputOptions, Retention, compile_sql
from circuits.errors import InputOptionsError, SqlError
from tests.oracles.duckdb_mirror import Mirror

SCHEMAS = {
    "e": "k BIGINT, ts TIMESTAMP_NTZ, v BIGINT, n BIGINT, d DATE",
    "p": "k BIGINT, ts TIMESTAMP_NTZ, price BIGINT",
}
START = datetime(2026, 1, 1)

# The rows of e with their sessions by k, of gap 5 seconds: b is the start and f the end.
SESSIONS = """(
    WITH x AS (SELECT *, lag(ts) OVER (PARTITION BY k ORDER BY ts) AS p FROM e
                 WHERE ts IS NOT NULL),
         y AS (SELECT *, sum(CASE WHEN p IS NULL OR ts - p > INTERVAL 5 SECOND THEN 1 ELSE 0 END)
                         OVER (PARTITION BY k ORDER BY ts) AS s FROM x)
    SELECT k, ts, v, min(ts) OVER (PARTITION BY k, s) AS b,
           max(ts) OVER (PARTITION BY k, s) + INTERVAL 5 SECOND AS f FROM y)"""
SESSION_ORACLE = f"SELECT k, b, f, count(*), sum(v) FROM {SESSIONS} GROUP BY ALL"
TUMBLE_ORACLE = """SELECT k, b, b + INTERVAL 10 SECOND, count(*) FROM (SELECT k,
    time_bucket(INTERVAL 10 SECOND, ts, TIMESTAMP '1970-01-01') b FROM e WHERE ts IS NOT NULL)
    GROUP BY ALL"""
HOP_ORACLE = """SELECT b, b + INTERVAL 10 SECOND, count(*), sum(v) FROM (
    SELECT time_bucket(INTERVAL 4 SECOND, ts, TIMESTAMP '1970-01-01') - i * INTERVAL 4 SECOND AS b,
           ts, v FROM e, range(3) r(i) WHERE ts IS NOT NULL)
    WHERE ts < b + INTERVAL 10 SECOND GROUP BY ALL"""
# The sessions by k of which each row has a gap of its own, {gap}.
DYNAMIC_SESSIONS = """SELECT k, b, max(f), count(*), sum(v) FROM (
    SELECT *, max(CASE WHEN p IS NULL OR p < ts THEN ts END) OVER (PARTITION BY k ORDER BY ts) AS b
    FROM (SELECT *, (SELECT max(o.ts + {other_gap}) FROM e o WHERE o.ts < x.ts
              AND o.ts + {other_gap} > o.ts AND o.k IS NOT DISTINCT FROM x.k) AS p
          FROM (SELECT *, ts + {gap} AS f FROM e) x WHERE f > ts)) GROUP BY k, b"""
GAP = "CASE WHEN v = 1 THEN {} WHEN v = 2 THEN {} ELSE {} END"
GAPS = [f"INTERVAL '{n}' SECOND" for n in (3, 0, 9)]
BY_SESSION = "GROUP BY k, SESSION(ts, INTERVAL '5' SECOND)"


# The query of each view, and that for DuckDB; None if it is the same text.
def with_unmatched(left: str, join: str, condition: str, right: str = "SELECT * FROM p") -> str:
    """Write an as-of join that keeps right rows, without RIGHT and FULL.

    DuckDB 2.0 does not end for some of them.

    Args:
        left: The columns of the left side, e.
        join: The join that keeps the same left rows.
        condition: Its condition.
        right: The rows of the right side, which is called p.
    """
    nulls = ", ".join("NULL" for _ in left.split(","))
    return f"""WITH p AS MATERIALIZED (SELECT *, row_number() OVER () AS nr FROM ({right})),
        found AS MATERIALIZED (SELECT {left}, p.* FROM e {join} p ON {condition})
        SELECT * EXCLUDE (nr) FROM found UNION ALL
        SELECT {nulls}, * EXCLUDE (nr) FROM p
        WHERE nr NOT IN (SELECT nr FROM found WHERE nr IS NOT NULL)"""


VIEWS = {
    "tumble": (
        """SELECT k, window_start, window_end, count(*)
           FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND))
           GROUP BY k, window_start, window_end""",
        TUMBLE_ORACLE,
    ),
    "short tumble": (
        """SELECT k, window_start, window_end, count(*)
           FROM TUMBLE(e, ts, INTERVAL '10' SECOND) AS w GROUP BY 1, 2, 3""",
        TUMBLE_ORACLE,
    ),
    "group by tumble": (
        """SELECT k, TUMBLE_START(ts, INTERVAL '10' SECOND), TUMBLE_END(ts, INTERVAL '10' SECOND),
           count(*) FROM e GROUP BY TUMBLE(ts, INTERVAL '10' SECOND), k""",
        TUMBLE_ORACLE,
    ),
    "tumble with offset": (
        """SELECT window_start, window_time, count(*), sum(v) FROM TABLE(TUMBLE(DATA => TABLE e,
           TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND,
           OFFSET => INTERVAL '3' SECOND))
           GROUP BY window_start, window_time""",
        """SELECT b, b + INTERVAL 9999 MILLISECOND, count(*), sum(v) FROM (SELECT v,
           time_bucket(INTERVAL 10 SECOND, ts, TIMESTAMP '1970-01-01 00:00:03') b
           FROM e WHERE ts IS NOT NULL) GROUP BY ALL""",
    ),
    "tumble of numbers": (
        "SELECT window_start, window_end, count(*) FROM TUMBLE(e, n, 7) GROUP BY 1, 2",
        """SELECT n - ((n % 7) + 7) % 7, n - ((n % 7) + 7) % 7 + 7, count(*) FROM e
           WHERE n IS NOT NULL GROUP BY ALL""",
    ),
    "tumble of dates": (
        "SELECT window_start, count(*) FROM TUMBLE(e, d, INTERVAL '3' DAY) GROUP BY 1",
        """SELECT DATE '1970-01-01' + ((d - DATE '1970-01-01') // 3 * 3)::INT, count(*)
           FROM e WHERE d IS NOT NULL GROUP BY ALL""",
    ),
    "cumulate": (
        """SELECT window_start, window_end, count(*), sum(v) FROM TABLE(CUMULATE(TABLE e,
           DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '12' SECOND))
           GROUP BY window_start, window_end""",
        """SELECT b, b + i * INTERVAL 4 SECOND, count(*), sum(v) FROM (SELECT ts, v,
           time_bucket(INTERVAL 12 SECOND, ts, TIMESTAMP '1970-01-01') b
           FROM e WHERE ts IS NOT NULL), range(1, 4) r(i)
           WHERE ts < b + i * INTERVAL 4 SECOND GROUP BY ALL""",
    ),
    "cumulate numbers": (
        "SELECT k, n, window_start, window_end FROM CUMULATE(e, n, 2, 6, 1)",
        """SELECT k, n, s, s + 2 * i FROM (SELECT k, n, n - (((n - 1) % 6) + 6) % 6 AS s FROM e
           WHERE n IS NOT NULL), range(1, 4) r(i) WHERE n < s + 2 * i""",
    ),
    "tumble of a query": (
        """SELECT window_start, count(*) FROM TABLE(TUMBLE((SELECT * FROM e WHERE v > 1),
           DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start""",
        """SELECT time_bucket(INTERVAL 10 SECOND, ts, TIMESTAMP '1970-01-01'), count(*)
           FROM e WHERE ts IS NOT NULL AND v > 1 GROUP BY ALL""",
    ),
    "hop": (
        """SELECT window_start, window_end, count(*), sum(v)
           FROM TABLE(HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND))
           GROUP BY window_start, window_end""",
        HOP_ORACLE,
    ),
    "named hop": (
        """SELECT window_start, window_end, count(*), sum(v) FROM HOP(DATA => TABLE e,
           TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND, SLIDE => INTERVAL '4' SECOND)
           GROUP BY window_start, window_end""",
        HOP_ORACLE,
    ),
    "group by hop": (
        """SELECT HOP_START(ts, INTERVAL '4' SECOND, INTERVAL '10' SECOND),
           HOP_END(ts, INTERVAL '4' SECOND, INTERVAL '10' SECOND), count(*), sum(v)
           FROM e GROUP BY HOP(ts, INTERVAL '4' SECOND, INTERVAL '10' SECOND)""",
        HOP_ORACLE,
    ),
    "window": (
        """SELECT window.start, window.end, count(*), sum(v) FROM e
           GROUP BY window(ts, '10 seconds', '4 seconds')""",
        HOP_ORACLE,
    ),
    "window with expressions": (
        """SELECT k, window(ts, '10 seconds').start, window.end, count(*) FROM e
           GROUP BY k, window(ts, '10 seconds') HAVING window.start < window.end
           ORDER BY window.end""",
        TUMBLE_ORACLE,
    ),
    "group by session": (
        f"""SELECT k, SESSION_START(ts, INTERVAL '5' SECOND) AS b,
           SESSION_END(ts, INTERVAL '5' SECOND) AS f, count(*), sum(v) FROM e {BY_SESSION}""",
        SESSION_ORACLE,
    ),
    "session_window": (
        """SELECT k, session_window.start, session_window.end, count(*), sum(v) FROM e
           GROUP BY session_window(ts, '5 seconds'), k""",
        SESSION_ORACLE,
    ),
    "sessions with a gap per row": (
        f"""SELECT k, session_window.start, session_window.end, count(*), sum(v) FROM e
           GROUP BY k, session_window(ts, {GAP.format(*(f"'{n} seconds'" for n in (3, 0, 9)))})""",
        DYNAMIC_SESSIONS.format(
            gap=GAP.format(*GAPS), other_gap=GAP.format(*GAPS).replace("v =", "o.v =")
        ),
    ),
    "sessions with a computed gap": (
        """SELECT k, SESSION_START(ts, v * INTERVAL '3' SECOND),
           SESSION_END(ts, v * INTERVAL '3' SECOND), count(*), sum(v) FROM e
           GROUP BY k, SESSION(ts, v * INTERVAL '3' SECOND)""",
        DYNAMIC_SESSIONS.format(gap="v * INTERVAL 3 SECOND", other_gap="o.v * INTERVAL 3 SECOND"),
    ),
    "window_time": (
        """SELECT k, window_time(window), count(*) FROM e GROUP BY k, window(ts, '10 seconds')""",
        """SELECT k, b + INTERVAL 9999999 MICROSECOND, count(*) FROM (SELECT k,
           time_bucket(INTERVAL 10 SECOND, ts, TIMESTAMP '1970-01-01') b FROM e
           WHERE ts IS NOT NULL) GROUP BY ALL""",
    ),
    "window of windows": (
        """SELECT window.start, window.end, sum(n) FROM (
               SELECT k, window, count(*) AS n FROM e GROUP BY k, window(ts, 'interval 5 seconds'))
           GROUP BY window(window, '10 seconds')""",
        """SELECT b, b + INTERVAL 10 SECOND, count(*) FROM (SELECT
           time_bucket(INTERVAL 10 SECOND, ts, TIMESTAMP '1970-01-01') b FROM e
           WHERE ts IS NOT NULL) GROUP BY ALL""",
    ),
    "tumble with a negative offset": (
        """SELECT k, window_start, count(*) FROM TABLE(TUMBLE(TABLE e PARTITION BY k,
           DESCRIPTOR(ts), INTERVAL '10' SECOND, -(INTERVAL '7' SECOND)))
           GROUP BY k, window_start""",
        """SELECT k, time_bucket(INTERVAL 10 SECOND, ts, TIMESTAMP '1970-01-01 00:00:03'), count(*)
           FROM e WHERE ts IS NOT NULL GROUP BY ALL""",
    ),
    "session table": (
        """SELECT k, window_start, window_end, count(*), sum(v)
           FROM TABLE(SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND))
           GROUP BY k, window_start, window_end""",
        SESSION_ORACLE,
    ),
    "session table without descriptors": (
        """SELECT k, window_start, window_end, count(*), sum(v)
           FROM SESSION(e PARTITION BY k, ts, INTERVAL '5' SECOND) GROUP BY ALL""",
        SESSION_ORACLE,
    ),
    "session table of several keys without descriptors": (
        """SELECT k, window_start, window_end, count(*), sum(v)
           FROM SESSION(TABLE e PARTITION BY k, k, ts, INTERVAL '5' SECOND) GROUP BY ALL""",
        SESSION_ORACLE,
    ),
    "session table of a set operation": (
        """SELECT k, window_start, window_end, count(*), sum(v)
           FROM SESSION(((SELECT k, ts, v FROM e WHERE k = 1) UNION ALL SELECT k, ts, v FROM e
           WHERE k IS DISTINCT FROM 1) PARTITION BY k, ts, INTERVAL '5' SECOND) GROUP BY ALL""",
        SESSION_ORACLE,
    ),
    "session with keys as a descriptor": (
        """SELECT w.k, w.window_start, w.window_end, count(*), sum(v)
           FROM TABLE(SESSION(TABLE e, DESCRIPTOR(ts), DESCRIPTOR(k), INTERVAL '5' SECOND)) AS w
           GROUP BY w.k, w.window_start, w.window_end HAVING count(*) > 1""",
        f"{SESSION_ORACLE} HAVING count(*) > 1",
    ),
    "session with named arguments": (
        """SELECT k, window_start, window_end, count(*), sum(v)
           FROM TABLE(SESSION(DATA => TABLE e, TIMECOL => DESCRIPTOR(ts), KEY => DESCRIPTOR(k),
           SIZE => INTERVAL '5' SECOND)) GROUP BY k, window_start, window_end""",
        SESSION_ORACLE,
    ),
    "rows of sessions": (
        """SELECT k, ts, v, window_start, window_end
           FROM TABLE(SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND))""",
        f"SELECT k, ts, v, b, f FROM {SESSIONS}",
    ),
    "columns of sessions by a pattern": (
        """SELECT k, COLUMNS('window_.*')
           FROM TABLE(SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND))""",
        f"SELECT k, b, f FROM {SESSIONS}",
    ),
    "sessions of some rows": (
        f"""SELECT k, SESSION_ROWTIME(ts, INTERVAL '5' SECOND), max(v) FROM e WHERE k = 1
           {BY_SESSION}
           HAVING SESSION_END(ts, INTERVAL '5' SECOND) > TIMESTAMP '2026-01-01 00:00:09'""",
        f"""SELECT k, f - INTERVAL 1 MILLISECOND, max(v) FROM {SESSIONS} WHERE k = 1
           AND f > TIMESTAMP '2026-01-01 00:00:09' GROUP BY k, f""",
    ),
    "time_bucket": (
        """SELECT time_bucket(INTERVAL '7 seconds', ts), time_bucket(INTERVAL '2 months', ts),
           time_bucket(INTERVAL '3 days', d), time_bucket(INTERVAL '1 year', d),
           time_bucket(INTERVAL '7 seconds', ts, INTERVAL '2 seconds'),
           time_bucket(INTERVAL '7 seconds', ts, TIMESTAMP '2024-05-05 01:02:03'),
           date_trunc('millisecond', ts), count(*) FROM e GROUP BY ALL""",
        None,
    ),
    "date_trunc": (
        "SELECT date_trunc(ts, hour), date_trunc(ts, 'minute'), count(*) FROM e GROUP BY 1, 2",
        "SELECT date_trunc('hour', ts), date_trunc('minute', ts), count(*) FROM e GROUP BY 1, 2",
    ),
    "asof": (
        "SELECT e.k, e.ts, e.v, p.price FROM e ASOF JOIN p ON e.k = p.k AND e.ts >= p.ts",
        None,
    ),
    "asof left": (
        "SELECT e.k, e.ts, p.ts, p.price FROM e ASOF LEFT JOIN p ON p.k = e.k AND p.ts < e.ts",
        None,
    ),
    "asof right": (
        "SELECT e.k, e.ts, e.v, p.* FROM e ASOF RIGHT JOIN p ON e.k = p.k AND e.ts >= p.ts",
        with_unmatched("e.k, e.ts, e.v", "ASOF JOIN", "e.k = p.k AND e.ts >= p.ts"),
    ),
    "asof full": (
        """SELECT e.k, e.ts, p.* FROM e ASOF FULL OUTER JOIN p
           ON e.k = p.k AND e.ts < p.ts AND p.price > 2""",
        with_unmatched("e.k, e.ts", "ASOF LEFT JOIN", "e.k = p.k AND e.ts < p.ts AND p.price > 2"),
    ),
    "asof right using": (
        "SELECT ts, v, k, price FROM e ASOF RIGHT JOIN p USING (k, ts)",
        "SELECT ts, v, k, price FROM ("
        + with_unmatched("e.v", "ASOF JOIN", "e.k = p.k AND e.ts >= p.ts")
        + ")",
    ),
    "asof full using": (
        "SELECT k, ts, v, price FROM e ASOF FULL JOIN p USING (k, ts)",
        "SELECT coalesce(ek, k), coalesce(ets, ts), v, price FROM ("
        + with_unmatched(
            "e.k AS ek, e.ts AS ets, e.v", "ASOF LEFT JOIN", "e.k = p.k AND e.ts >= p.ts"
        )
        + ")",
    ),
    "asof full without keys": (
        "SELECT e.v, p.* FROM e ASOF FULL JOIN (SELECT max(k), ts, 1 FROM p GROUP BY ts) p "
        "ON e.ts >= p.ts",
        with_unmatched(
            "e.v",
            "ASOF LEFT JOIN",
            "e.ts >= p.ts",
            "SELECT max(k), ts, 1 FROM p GROUP BY ts",
        ),
    ),
    "asof full of texts": (
        """SELECT e.k, e.ts, p.* FROM e ASOF FULL JOIN p
           ON e.k = p.k AND CAST(e.ts AS VARCHAR) >= CAST(p.ts AS VARCHAR)""",
        with_unmatched(
            "e.k, e.ts",
            "ASOF LEFT JOIN",
            "e.k = p.k AND CAST(e.ts AS VARCHAR) >= CAST(p.ts AS VARCHAR)",
        ),
    ),
    "asof full of equal rows": (
        # One of two equal rows is joined.
        """SELECT e.k, e.ts, q.* FROM e ASOF FULL JOIN (SELECT * FROM p UNION ALL SELECT * FROM p) q
           ON e.k = q.k AND e.ts >= q.ts""",
        with_unmatched(
            "e.k, e.ts",
            "ASOF LEFT JOIN",
            "e.k = p.k AND e.ts >= p.ts",
            "SELECT * FROM p UNION ALL SELECT * FROM p",
        ),
    ),
    "right temporal": (
        "SELECT e.k, e.v, p.* FROM e RIGHT JOIN p FOR SYSTEM_TIME AS OF e.ts ON e.k = p.k",
        with_unmatched("e.k, e.v", "ASOF JOIN", "e.k = p.k AND e.ts >= p.ts"),
    ),
    "full temporal": (
        "SELECT e.k, e.ts, p.* FROM e FULL JOIN p FOR SYSTEM_TIME AS OF e.ts ON e.k = p.k",
        with_unmatched("e.k, e.ts", "ASOF LEFT JOIN", "e.k = p.k AND e.ts >= p.ts"),
    ),
    "asof semi": (
        "SELECT e.k, e.v FROM e ASOF SEMI JOIN p ON e.k = p.k AND e.ts >= p.ts AND p.price > 2",
        None,
    ),
    "asof anti": (
        "SELECT e.k, e.v FROM e ASOF ANTI JOIN p ON e.k = p.k AND e.ts > p.ts",
        None,
    ),
    "asof left with conditions on one side": (
        """SELECT e.k, e.ts, p.ts FROM e ASOF LEFT JOIN p
           ON e.k = p.k AND e.ts >= p.ts AND p.price > 2 AND e.v = 1""",
        None,
    ),
    "asof with a condition on one side": (
        "SELECT e.k, p.ts FROM e ASOF JOIN p ON e.k = p.k AND e.ts >= p.ts AND p.price > 2",
        None,
    ),
    "asof forwards": (
        "SELECT e.k, e.ts, p.ts, p.price FROM e ASOF LEFT JOIN p ON e.k = p.k AND e.ts <= p.ts",
        None,
    ),
    "asof after": ("SELECT e.v, p.price FROM e ASOF JOIN p ON e.ts < p.ts AND e.k = p.k", None),
    "asof using": ("SELECT k, ts, v, price FROM e ASOF LEFT JOIN p USING (k, ts)", None),
    "asof without keys": ("SELECT e.v, p.price FROM e ASOF JOIN p ON e.ts >= p.ts", None),
    "asof of expressions": (
        """SELECT e.v, p.price FROM e ASOF LEFT JOIN p
           ON e.k + 1 = p.k AND e.ts + INTERVAL 3 SECOND > p.ts WHERE e.v > 1""",
        None,
    ),
    "asof of texts": (
        """SELECT e.k, e.ts, p.ts, p.price FROM e ASOF LEFT JOIN p
           ON e.k = p.k AND CAST(e.ts AS VARCHAR) >= CAST(p.ts AS VARCHAR)""",
        None,
    ),
    "asof of texts before": (
        """SELECT e.k, e.ts, p.price FROM e ASOF JOIN p
           ON e.k = p.k AND CAST(e.ts AS VARCHAR) < CAST(p.ts AS VARCHAR)""",
        None,
    ),
    "asof of texts without keys": (
        """SELECT e.k, e.ts, p.ts FROM e ASOF LEFT JOIN p
           ON CAST(e.ts AS VARCHAR) > CAST(p.ts AS VARCHAR)""",
        None,
    ),
    "asof of doubles": (
        "SELECT e.k, e.ts, p.ts FROM e ASOF LEFT JOIN p ON e.k = p.k AND epoch(e.ts) > epoch(p.ts)",
        None,
    ),
    "asof of decimals": (
        """SELECT e.k, e.ts, p.ts FROM e ASOF LEFT JOIN p ON e.k = p.k
           AND CAST(epoch(e.ts) AS DECIMAL(18, 2)) <= CAST(epoch(p.ts) AS DECIMAL(18, 2))""",
        None,
    ),
    "asof of wide decimals": (
        """SELECT e.k, e.ts, p.ts FROM e ASOF LEFT JOIN p ON e.k = p.k
           AND CAST(epoch(e.ts) AS DECIMAL(30, 2)) <= CAST(epoch(p.ts) AS DECIMAL(30, 2))""",
        None,
    ),
    "window of rows": (
        """SELECT k, v, window(ts, '10 seconds').start, window(ts, '10 seconds').end FROM e
           WHERE v > 0""",
        """SELECT k, v, b, b + INTERVAL 10 SECOND FROM (SELECT k, v,
           time_bucket(INTERVAL 10 SECOND, ts, TIMESTAMP '1970-01-01') b FROM e
           WHERE ts IS NOT NULL AND v > 0)""",
    ),
    "hopping window of rows": (
        "SELECT DISTINCT window(ts, '10 seconds', '4 seconds').start, v FROM e ORDER BY v",
        """SELECT DISTINCT b, v FROM (
           SELECT time_bucket(INTERVAL 4 SECOND, ts, TIMESTAMP '1970-01-01')
           - i * INTERVAL 4 SECOND AS b, ts, v FROM e, range(3) r(i) WHERE ts IS NOT NULL)
           WHERE ts < b + INTERVAL 10 SECOND""",
    ),
    "temporal": (
        "SELECT e.k, e.ts, x.price FROM e JOIN p FOR SYSTEM_TIME AS OF e.ts AS x ON e.k = x.k",
        "SELECT e.k, e.ts, p.price FROM e ASOF JOIN p ON e.k = p.k AND e.ts >= p.ts",
    ),
    "left temporal": (
        "SELECT e.k, e.ts, p.price FROM e LEFT JOIN p FOR SYSTEM_TIME AS OF e.ts ON e.k = p.k",
        "SELECT e.k, e.ts, p.price FROM e ASOF LEFT JOIN p ON e.k = p.k AND e.ts >= p.ts",
    ),
    "temporal with conditions": (
        """SELECT e.k, e.ts, p.price FROM e JOIN p FOR SYSTEM_TIME AS OF e.ts
           ON e.k = p.k AND p.price > 2 AND e.v <> p.price AND e.v < 3""",
        """SELECT e.k, e.ts, p.price FROM e ASOF JOIN p ON e.k = p.k AND e.ts >= p.ts
           WHERE p.price > 2 AND e.v <> p.price AND e.v < 3""",
    ),
    "left temporal with conditions": (
        """SELECT e.k, e.ts, p.price FROM e LEFT JOIN p FOR SYSTEM_TIME AS OF e.ts
           ON e.k = p.k AND p.price = 3""",
        """SELECT e.k, e.ts, CASE WHEN p.price = 3 THEN 3 END
           FROM e ASOF LEFT JOIN p ON e.k = p.k AND e.ts >= p.ts""",
    ),
    "full temporal with conditions": (
        """SELECT e.k, e.ts, p.price FROM e FULL JOIN p FOR SYSTEM_TIME AS OF e.ts
           ON e.k = p.k AND e.v < p.price""",
        """WITH m AS (SELECT e.k, e.ts, e.v, p.ts AS t, p.price FROM e ASOF LEFT JOIN p
           ON e.k = p.k AND e.ts >= p.ts)
           SELECT k, ts, CASE WHEN v < price THEN price END FROM m
           UNION ALL SELECT NULL, NULL, price FROM p WHERE NOT EXISTS (
           SELECT 1 FROM m WHERE m.k = p.k AND m.t = p.ts AND m.v < m.price)""",
    ),
    "temporal with a condition on an outer column": (
        """SELECT o.v, o.k, (SELECT count(*) FROM e JOIN p FOR SYSTEM_TIME AS OF e.ts
           ON e.k = p.k AND p.price = o.v) AS n FROM e o""",
        """SELECT o.v, o.k, coalesce(m.n, 0) FROM e o LEFT JOIN (SELECT p.price, count(*) AS n
           FROM e ASOF JOIN p ON e.k = p.k AND e.ts >= p.ts GROUP BY ALL) m ON m.price = o.v""",
    ),
    "left temporal with a condition on an outer column": (
        """SELECT o.v, (SELECT count(p.ts) + 100 * count(*) FROM e LEFT JOIN p
           FOR SYSTEM_TIME AS OF e.ts ON p.price = o.v AND e.k = p.k) AS n FROM e o""",
        """SELECT o.v, coalesce(m.n, 0) + 100 * (SELECT count(*) FROM e)
           FROM e o LEFT JOIN (SELECT p.price, count(*) AS n
           FROM e ASOF JOIN p ON e.k = p.k AND e.ts >= p.ts GROUP BY ALL) m ON m.price = o.v""",
    ),
    "temporal with a view of the latest rows": (
        """WITH q AS (SELECT price AS x, k, ts FROM (
           SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM p) WHERE n = 1)
           SELECT e.k, e.ts, q.x FROM e LEFT JOIN q FOR SYSTEM_TIME AS OF e.ts ON e.k = q.k""",
        "SELECT e.k, e.ts, p.price FROM e ASOF LEFT JOIN p ON e.k = p.k AND e.ts >= p.ts",
    ),
    "interval join": (
        """SELECT x.v, y.v FROM e x JOIN e y ON x.k = y.k
           AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '4' SECOND""",
        None,
    ),
}


def random_rows(rng: np.random.Generator, rows: int) -> dict[str, pa.Table]:
    """Return rows of few keys and times, with NULLs and duplicates; p has a time once in a key."""

    def with_nulls(values, share=0.1):
        return [None if rng.random() < share else value for value in values]

    moments = [
        START + timedelta(seconds=int(s), milliseconds=int(m))
        for s, m in zip(rng.integers(0, 60, rows), rng.integers(0, 3, rows) * 500, strict=True)
    ]
    events = pa.table(
        {
            "k": pa.array(with_nulls(rng.integers(0, 4, rows).tolist()), pa.int64()),
            "ts": pa.array(with_nulls(moments), pa.timestamp("us")),
            "v": pa.array(with_nulls(rng.integers(0, 4, rows).tolist()), pa.int64()),
            "n": pa.array(with_nulls(rng.integers(-30, 30, rows).tolist()), pa.int64()),
            "d": pa.array(
                with_nulls([m.date() + timedelta(days=int(m.second) * 9) for m in moments]),
                pa.date32(),
            ),
        }
    )
    times = rng.permutation(240)[: rows // 2]
    prices = pa.table(
        {
            "k": pa.array(with_nulls([int(t) % 4 for t in times]), pa.int64()),
            "ts": pa.array(
                with_nulls([START + timedelta(milliseconds=int(t) * 250) for t in times]),
                pa.timestamp("us"),
            ),
            "price": pa.array(rng.integers(0, 9, rows // 2), pa.int64()),
        }
    )
    return {"e": events, "p": prices}


def changed_rows(rng: np.random.Generator, mirror: Mirror, name: str):
    """Draw the numbers of rows to insert and to delete."""
    present = mirror.present[name]
    absent = np.flatnonzero(~present)
    inserted = rng.permutation(absent)[: rng.integers(0, 12)]
    deleted = rng.permutation(np.flatnonzero(present))[: rng.integers(0, 8)]
    return inserted, deleted


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_views_of_windows_have_the_rows_of_duckdb_after_every_step(seed):
    rng = np.random.default_rng(seed)
    texts = "".join(f'CREATE VIEW "{name}" AS {view};\n' for name, (view, _) in VIEWS.items())
    circuit = compile_sql(texts, SCHEMAS, dialect="duckdb")
    mirror = Mirror(random_rows(rng, 80))
    contents = {name: Counter() for name in VIEWS}
    for step in range(12):
        changes = {name: changed_rows(rng, mirror, name) for name in ("e", "p")}
        deltas = circuit.step(mirror.change(changes))
        for name, (view, oracle) in VIEWS.items():
            for row in deltas[name].to_pylist() if name in deltas else ():
                weight = row.pop("weight")
                contents[name][tuple(row.values())] += weight
            rows = +contents[name]
            assert not -contents[name]
            assert rows == Counter(mirror.answer(oracle or view)), (name, step)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT * FROM TUMBLE(e, v, INTERVAL '1' HOUR)", "'1'", "unit is not known"),
        ("SELECT * FROM TUMBLE(e, ts, 10)", "10", "write it as INTERVAL"),
        ("SELECT * FROM TUMBLE(e, ts, INTERVAL '1' MONTH)", "'1'", "months or years"),
        ("SELECT * FROM TUMBLE(e, ts, INTERVAL '0' SECOND)", "'0'", "not longer than 0"),
        ("SELECT * FROM TUMBLE(e, ts)", "TUMBLE", "without SIZE"),
        ("SELECT * FROM TUMBLE(e, ts, GAP => INTERVAL '1' HOUR)", "GAP", "takes the arguments"),
        (
            "SELECT * FROM CUMULATE(e, ts, INTERVAL '2' HOUR, INTERVAL '3' HOUR)",
            "CUMU",
            "no multiple of its step",
        ),
        ("SELECT * FROM TUMBLE(x, ts, INTERVAL '1' HOUR)", "x,", "unknown table 'x'"),
        ("SELECT * FROM TUMBLE(e, tt, INTERVAL '1' HOUR)", "tt", "unknown column 'tt'"),
        ("SELECT count(*) FROM e GROUP BY SESSION(ts, v)", "v)", "a gap of type int64"),
        ("SELECT count(*) FROM TUMBLE(e, ts, v)", "v)", "not a constant"),
        (
            "SELECT count(*) FROM e GROUP BY SESSION(ts, '1 hour'), TUMBLE(ts, '1 hour')",
            "TUMBLE",
            "a second window",
        ),
        (
            "SELECT TUMBLE_END(ts, '2 hour') FROM e GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
            "TUMBLE_END",
            "other arguments",
        ),
        ("SELECT session_window(ts, '1 hour'), count(*) FROM e", "session", "write it in GROUP BY"),
        ("SELECT window(ts, '1 hour'), count(*) FROM e", "window", "write it in GROUP BY"),
        ("SELECT 1 FROM e ASOF JOIN p ON [e.v] >= [p.k]", "p ON", "compare times, numbers"),
        ("SELECT 1 FROM e ASOF JOIN p ON e.k = p.k", "p ON", "without a comparison"),
        (
            "SELECT 1 FROM e ASOF JOIN p ON e.ts > p.ts AND e.v > p.price",
            "e.v",
            "second comparison",
        ),
        ("SELECT 1 FROM e ASOF JOIN p ON e.ts > p.ts AND e.v <> p.k", "e.v", "this condition"),
        (
            "SELECT 1 FROM e SEMI JOIN p FOR SYSTEM_TIME AS OF e.ts ON e.k = p.k",
            "p FOR",
            "write ASOF SEMI JOIN",
        ),
        (
            "SELECT 1 FROM e ANTI JOIN p FOR SYSTEM_TIME AS OF e.ts ON e.k = p.k",
            "p FOR",
            "write ASOF ANTI JOIN",
        ),
        (
            "WITH q AS (SELECT d FROM e) SELECT 1 FROM e JOIN q FOR SYSTEM_TIME AS OF ts ON true",
            "q FOR",
            "a table with 0 timestamp columns",
        ),
        ("SELECT 1 FROM p JOIN TUMBLE(e, ts, INTERVAL '1' HOUR) FOR x ON 1 = 1", "FOR", "syntax"),
        (
            "SELECT time_bucket(INTERVAL '1 month 2 days', ts) FROM e",
            "'1 month",
            "months and of days",
        ),
    ],
)
def test_an_error_names_its_place_and_cause(text, place, message):
    with pytest.raises(SqlError) as raised:
        compile_sql(text, SCHEMAS)
    assert message in str(raised.value)
    column = text.index(place) + 1
    assert f"column {column}:" in str(raised.value)


def test_sessions_of_an_input_whose_results_are_kept_are_refused():
    keep = {"e": InputOptions(retain=Retention("ts", "1 day", on_expiry="keep"))}
    with pytest.raises(InputOptionsError, match="a session window"):
        compile_sql(f"SELECT count(*) FROM e {BY_SESSION}", SCHEMAS, input_options=keep)
    tumbling = "SELECT count(*) FROM e GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)"
    compile_sql(tumbling, SCHEMAS, input_options=keep)


@pytest.mark.parametrize(
    ("dialect", "join"),
    [
        ("snowflake", "e ASOF JOIN p MATCH_CONDITION (e.ts >= p.ts) ON e.k = p.k"),
        ("clickhouse", "e ASOF LEFT JOIN p ON e.k = p.k AND e.ts >= p.ts"),
        ("clickhouse", "e LEFT ASOF JOIN p USING (k, ts)"),
    ],
)
def test_asof_joins_of_other_systems_keep_left_rows_without_a_match(dialect, join):
    circuit = compile_sql(f"SELECT e.v, p.price FROM {join}", SCHEMAS, dialect=dialect)
    rows = [{"k": 1, "ts": START + timedelta(seconds=n), "v": n} for n in (0, 5)]
    prices = [{"k": 1, "ts": START + timedelta(seconds=3), "price": 7}]
    delta = circuit.step({"e": rows, "p": prices})["view"].to_pylist()
    assert sorted((row["v"], row["price"]) for row in delta) == [(0, None), (5, 7)]


def test_window_and_session_may_be_names_of_columns():
    circuit = compile_sql(
        "SELECT k AS window, max(v) OVER w AS session FROM e WINDOW w AS (PARTITION BY k)", SCHEMAS
    )
    deltas = circuit.step({"e": [{"k": 1, "v": 2, "ts": None, "n": None, "d": None}]})
    assert deltas["view"].to_pylist() == [{"window": 1, "session": 2, "weight": 1}]


def test_an_interval_join_reads_the_rows_within_the_interval():
    text = """SELECT a.v, b.v AS w FROM e a JOIN e2 b ON a.k = b.k
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' SECOND"""
    circuit = compile_sql(text, {"e": SCHEMAS["e"], "e2": SCHEMAS["e"]}, dialect="duckdb")

    def rows(first: int, count: int, every: int) -> pa.Table:
        times = [START + timedelta(seconds=first + every * i) for i in range(count)]
        zeros = pa.array([0] * count, pa.int64())
        moments = pa.array(times, pa.timestamp("us"))
        days = pa.array([START.date()] * count, pa.date32())
        return pa.table(
            [zeros, moments, pa.array(range(count), pa.int64()), zeros, days],
            ["k", "ts", "v", "n", "d"],
        )

    def proposals() -> int:
        return sum(map(int, re.findall(r"(\d+) proposals", circuit.explain().replace(",", ""))))

    circuit.step({"e": rows(0, 2000, 5)})
    circuit.step({"e2": rows(1, 2000, 5)})
    for relation in ("e", "e2"):
        before = proposals()
        delta = circuit.step({relation: rows(2, 20, 400)})["view"]
        assert 30 <= delta.num_rows <= 60
        assert proposals() - before < 1000


@pytest.mark.parametrize(
    "condition",
    [
        "l.ts BETWEEN r.ts - INTERVAL '2' SECOND AND r.ts + INTERVAL '1' SECOND",
        "l.ts + INTERVAL '1' DAY < r.ts + INTERVAL '2' SECOND + INTERVAL '1' DAY",
        "l.k = r.k AND l.ts - INTERVAL '1' SECOND >= r.ts",
        "l.k = r.k AND l.ts <> r.ts + INTERVAL '1' SECOND",
        "l.ts = r.ts AND l.ts >= r.ts + INTERVAL '1' SECOND",
        "l.ts = r.ts AND l.ts <= r.ts + INTERVAL '1' SECOND",
        "NOT l.ts > r.ts - INTERVAL '1' SECOND",
    ],
)
def test_joins_of_times_and_durations_equal_duckdb_also_if_a_time_is_infinite(condition):
    text = f"SELECT l.k, l.v, r.k AS j, r.v AS w FROM e l JOIN e2 r ON {condition}"
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
    circuit = compile_sql(text, {"e": schema, "e2": schema}, dialect="duckdb")
    infinite = 2**63 - 1
    seconds = [None, -infinite, infinite, *(s * 10**6 for s in (0, 1, 2, 3, 5))]
    rng = np.random.default_rng(0)
    state = {"e": Counter(), "e2": Counter()}
    view: Counter = Counter()
    for _ in range(4):
        step = {}
        for name, rows in state.items():
            added = [
                (int(rng.integers(2)), seconds[rng.integers(len(seconds))], int(rng.integers(3)))
                for _ in range(12)
            ]
            delta = Counter(added)
            delta.subtract(row for row in rows.elements() if rng.random() < 0.4)
            rows.update(delta)
            columns = zip(*delta, strict=True)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
            weights = pa.array(delta.values(), pa.int64())
            step[name] = pa.table([*arrays, weights], [*schema.names, "weight"])
        for *row, weight in zip(*circuit.step(step)["view"].to_pydict().values(), strict=True):
            view[tuple(row)] += weight
        with duckdb.connect() as oracle:
            for name, rows in state.items():
                arrays = zip(*rows.elements(), strict=True)
                held = [pa.array(c, f.type) for c, f in zip(arrays, schema, strict=True)]
                oracle.register(name, pa.table(held, schema=schema))
            assert +view == Counter(oracle.execute(text).fetchall()) and min(view.values()) >= 0


@pytest.mark.parametrize("item", ["window", "window(ts, '1 hour')", "window AS window"])
def test_a_window_is_a_struct_of_its_start_and_end(item):
    schema = pa.schema([("ts", pa.timestamp("us"))])
    query = f"SELECT {item}, count(*) AS n FROM e GROUP BY window(ts, '1 hour')"
    circuit = compile_sql(query, {"e": schema}, dialect="spark")
    rows = pa.table([[datetime(2024, 1, 1, 5, 30)]], schema=schema)
    view = circuit.step({"e": rows})["view"]
    start, end = datetime(2024, 1, 1, 5), datetime(2024, 1, 1, 6)
    assert view.to_pylist() == [{"window": {"start": start, "end": end}, "n": 1, "weight": 1}]


# The answer of Spark 4.3 for these two rows.
SPARK_WINDOWS = {
    "SELECT i, session_window(ts, '10 seconds') AS w FROM e": [
        (1, (datetime(2020, 1, 1, 0, 0, 5), datetime(2020, 1, 1, 0, 0, 15))),
        (2, (datetime(2020, 1, 1, 0, 0, 25), datetime(2020, 1, 1, 0, 0, 35))),
    ],
    "SELECT i, session_window(d, '10 seconds').end AS w FROM e": [
        (1, datetime(2020, 1, 1, 0, 0, 10)),
        (2, datetime(2020, 1, 2, 0, 0, 10)),
    ],
    "SELECT session_window(ts, '20 seconds') AS w, count(*) AS n FROM e GROUP BY 1": [
        ((datetime(2020, 1, 1, 0, 0, 5), datetime(2020, 1, 1, 0, 0, 45)), 2),
    ],
    "SELECT count(*) AS n, session_window(d, '1 day') AS w FROM e GROUP BY w": [
        (2, (datetime(2020, 1, 1), datetime(2020, 1, 3))),
    ],
    "SELECT window(d, '36 hours', '24 hours') AS w, i FROM e WHERE i = 2": [
        ((datetime(2020, 1, 1), datetime(2020, 1, 2, 12)), 2),
        ((datetime(2020, 1, 2), datetime(2020, 1, 3, 12)), 2),
    ],
    "SELECT window('2020-01-01 00:00:07', '10 seconds').start AS w FROM e WHERE i = 1": [
        (datetime(2020, 1, 1),),
    ],
}


@pytest.mark.parametrize("query", SPARK_WINDOWS)
def test_windows_of_dates_and_of_single_rows_are_what_spark_answers(query):
    circuit = compile_sql(query, {"e": "i INT, d DATE, ts TIMESTAMP"}, dialect="spark")
    rows = [
        {"i": 1, "d": date(2020, 1, 1), "ts": datetime(2020, 1, 1, 0, 0, 5, tzinfo=UTC)},
        {"i": 2, "d": date(2020, 1, 2), "ts": datetime(2020, 1, 1, 0, 0, 25, tzinfo=UTC)},
        {"i": 3, "d": None, "ts": None},
    ]

    def plain(value):
        if isinstance(value, dict):
            return tuple(map(plain, value.values()))
        return value.replace(tzinfo=None) if isinstance(value, datetime) else value

    view = circuit.step({"e": rows})["view"].to_pylist()
    answer = [tuple(map(plain, row.values()))[:-1] for row in view]
    assert sorted(answer) == SPARK_WINDOWS[query]
    changes = [dict(row, weight=-1) for row in rows]
    view = circuit.step({"e": changes})["view"].to_pylist()
    assert sorted(tuple(map(plain, row.values()))[:-1] for row in view) == SPARK_WINDOWS[query]
    assert all(row["weight"] == -1 for row in view)


def test_in_spark_the_union_of_times_with_and_without_a_zone_has_a_zone():
    query = "SELECT date_trunc('hour', ts) AS x FROM e UNION SELECT ts FROM e"
    circuit = compile_sql(query, {"e": "ts TIMESTAMP_NTZ"}, dialect="spark")
    view = circuit.step({"e": [{"ts": datetime(2020, 1, 1)}, {"ts": datetime(2020, 1, 1, 1, 2)}]})
    times = sorted(view["view"]["x"].to_pylist())
    assert times == [datetime(2020, 1, 1, *hour, tzinfo=UTC) for hour in [(0,), (1,), (1, 2)]]


def test_a_view_of_the_latest_rows_has_its_earlier_rows_as_versions():
    circuit = compile_sql(
        """CREATE VIEW latest AS SELECT k, price, ts FROM (
               SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM p)
           WHERE n = 1;
           CREATE VIEW priced AS
           SELECT e.v, x.price FROM e JOIN latest FOR SYSTEM_TIME AS OF e.ts AS x ON e.k = x.k""",
        SCHEMAS,
    )
    prices = [{"k": 1, "price": day, "ts": datetime(2024, 1, day)} for day in (1, 5)]
    events = [{"k": 1, "v": 7, "ts": datetime(2024, 1, 2), "n": None, "d": None}]
    priced = circuit.step({"e": events, "p": prices})["priced"]
    assert priced.to_pylist() == [{"v": 7, "price": 1, "weight": 1}]


LATEST = """CREATE VIEW latest AS SELECT k, price, ts FROM (
    SELECT *, {rank}() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM p) WHERE n = 1{condition};
    CREATE VIEW second AS SELECT ts, k, price + 0 AS price FROM latest;
    CREATE VIEW priced AS SELECT e.v, x.price
    FROM e LEFT JOIN {view} FOR SYSTEM_TIME AS OF e.ts AS x ON {on}"""


@pytest.mark.parametrize(
    ("view", "on", "price"),
    [
        ("latest", "e.k = x.k AND e.v = x.price", 1),
        ("latest", "e.k = x.k AND e.n = x.price", None),  # the version at the time has price 1
        ("second", "e.k = x.k", 1),
    ],
)
def test_the_versions_of_a_view_of_the_latest_rows_are_searched_by_its_keys(view, on, price):
    text = LATEST.format(rank="ROW_NUMBER", condition="", view=view, on=on)
    circuit = compile_sql(text, SCHEMAS)
    prices = [
        {"k": 1, "price": price, "ts": datetime(2024, 1, day)}
        for price, day in ((5, 1), (1, 2), (6, 5))
    ]
    events = [{"k": 1, "v": 1, "ts": datetime(2024, 1, 3), "n": 5, "d": None}]
    priced = circuit.step({"e": events, "p": prices})["priced"]
    assert priced.to_pylist() == [{"v": 1, "price": price, "weight": 1}]
    changes = circuit.step({"p": [dict(row, weight=-1) for row in prices[1:]]})["priced"]
    earlier = None if "e.v" in on else 5
    weights = {row["price"]: row["weight"] for row in changes.to_pylist()}
    assert weights == {price: -1, earlier: 1}


@pytest.mark.parametrize(
    ("rank", "condition", "on"),
    [
        ("RANK", "", "e.k = x.k"),
        ("ROW_NUMBER", " AND price > 5", "e.k = x.k"),
        ("ROW_NUMBER", "", "e.v = x.price"),
    ],
)
def test_a_view_that_has_lost_its_earlier_rows_is_refused_in_a_temporal_join(rank, condition, on):
    text = LATEST.format(rank=rank, condition=condition, view="latest", on=on)
    with pytest.raises(SqlError, match=r"line 5, column 22: .*join the table that it is selected"):
        compile_sql(text, SCHEMAS)


def test_a_window_table_of_flink_has_window_time_in_dialect_spark():
    schemas = {"t": "k INT, ts TIMESTAMP"}
    table = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE))"
    for dialect, names in (("spark", ["window_time"]), ("postgres", [])):
        circuit = compile_sql(f"SELECT * FROM {table}", schemas, dialect=dialect)
        expected = ["k", "ts", "window_start", "window_end", *names]
        assert [field.name for field in circuit.plans["view"].fields] == expected
    query = f"SELECT q.k, window_time FROM (SELECT * FROM {table}) q WHERE q.k > 0"
    rows = [{"k": 1, "ts": datetime(2024, 1, 1, 0, 7, tzinfo=UTC)}]
    view = compile_sql(query, schemas, dialect="spark").step({"t": rows})["view"]
    last_moment = datetime(2024, 1, 1, 0, 9, 59, 999_000, tzinfo=UTC)
    assert view.to_pylist() == [{"k": 1, "window_time": last_moment, "weight": 1}]


def test_an_aggregate_of_the_end_of_a_session_is_taken_from_its_rows():
    table = "TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE))"
    circuit = compile_sql(
        f"""SELECT k, window_end, count(DISTINCT window_end) AS n, max(window_time) AS m
            FROM {table} GROUP BY k, window_start, window_end""",
        {"t": "k INT, ts TIMESTAMP_NTZ"},
        dialect="postgres",
    )
    start = datetime(2024, 1, 1)
    times = [start, start + timedelta(minutes=3), start + timedelta(minutes=30)]
    view = circuit.step({"t": [{"k": 1, "ts": time} for time in times]})["view"]
    ends = [start + timedelta(minutes=8), start + timedelta(minutes=35)]
    last_moments = [end - timedelta(milliseconds=1) for end in ends]
    rows = sorted((row["window_end"], row["n"], row["m"]) for row in view.to_pylist())
    assert rows == [(end, 1, last) for end, last in zip(ends, last_moments, strict=True)]


@pytest.mark.parametrize("type_", ["BIGINT", "VARCHAR"])
def test_right_rows_of_negative_weight_are_no_matches(type_):
    """Numbers are searched by their codes, texts in a window."""
    convert = int if type_ == "BIGINT" else str
    circuit = compile_sql(
        "SELECT a.t, b.v FROM a ASOF LEFT JOIN b ON a.t >= b.t",
        {"a": f"t {type_}", "b": f"t {type_}, v BIGINT"},
        dialect="duckdb",
    )

    def change(*rows: tuple[int, int, int]) -> list[tuple[object, ...]]:
        rows_of_b = [{"t": convert(t), "v": v, "weight": w} for t, v, w in rows]
        view = circuit.step({"b": rows_of_b}).get("view")
        found = [] if view is None else view.to_pylist()
        return sorted((row["v"], row["weight"]) for row in found)

    circuit.step({"a": [{"t": convert(5)}], "b": [{"t": convert(1), "v": 10}]})
    assert change((3, 30, -1)) == []  # this row is deleted before it is inserted
    assert change((3, 31, 1)) == [(10, -1), (31, 1)]  # now the weights at time 3 add up to 0
    assert change((3, 30, 1)) == []
    assert change((3, 31, -1)) == [(10, 1), (31, -1)]


LATEST_GROUPS = "(SELECT k, max(ts) AS ts, max_by(price, ts) AS price FROM p GROUP BY k)"
RANKED = "SELECT k, ts, price, rank() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM p"
FIRST_ROWS = "SELECT k, ts, price FROM p QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts {})"


@pytest.mark.parametrize(
    "right",
    [
        LATEST_GROUPS,
        f"(SELECT DISTINCT x.* FROM {LATEST_GROUPS} x)",
        f"(SELECT x.*, y.v FROM ({FIRST_ROWS.format('DESC')} = 1) x JOIN e y ON x.k = y.k)",
        f"(SELECT y.v, x.* FROM e y LEFT JOIN ({FIRST_ROWS.format('DESC')} = 1) x ON x.k = y.k)",
        f"(SELECT k, ts, price FROM {LATEST_GROUPS} UNION ALL SELECT k, ts, price FROM p)",
        f"(SELECT x.*, y.v FROM ({RANKED}) x LEFT JOIN e y ON x.k = y.k WHERE x.r = 1)",
        f"(SELECT *, lag(price) OVER (PARTITION BY k ORDER BY ts) FROM ({RANKED}) WHERE r = 1)",
        f"(SELECT * FROM (SELECT DISTINCT * FROM ({RANKED})) WHERE r = 1)",
        f"(SELECT * FROM ({FIRST_ROWS.format('DESC').replace('BY k', 'BY k, price')} = 1)"
        " QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1)",
    ],
)
def test_a_view_without_its_earlier_rows_is_refused_in_a_temporal_join(right):
    query = "SELECT e.v, x.price FROM e JOIN q FOR SYSTEM_TIME AS OF e.ts AS x ON e.k = x.k"
    with pytest.raises(SqlError, match="a view that keeps some rows of each key") as raised:
        compile_sql(f"WITH q AS {right} {query}", SCHEMAS, dialect="duckdb")
    assert "line 1, column" in str(raised.value)


@pytest.mark.parametrize(
    "right",
    [
        "(SELECT k, min(ts) AS ts, count(*) AS price FROM p GROUP BY k)",
        "(SELECT k, ts::DATE AS d, max(ts) AS ts, sum(price) AS price FROM p GROUP BY 1, 2)",
        "(SELECT k, ts, max(price) AS price FROM p GROUP BY k, ts)",
        f"({FIRST_ROWS.format('ASC')} <= 2)",
        f"(SELECT p.k, p.ts, x.price FROM p JOIN {LATEST_GROUPS} x ON p.k = x.k)",
    ],
)
def test_a_view_with_its_earlier_rows_is_accepted_in_a_temporal_join(right):
    query = "SELECT e.v, x.price FROM e JOIN q FOR SYSTEM_TIME AS OF e.ts AS x ON e.k = x.k"
    compile_sql(f"WITH q AS {right} {query}", SCHEMAS, dialect="duckdb")
