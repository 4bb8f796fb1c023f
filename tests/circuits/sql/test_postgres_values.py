"""Dialect postgres returns the values of PostgreSQL, after inserts and deletes.

PostgreSQL itself is the oracle. A table is loaded into it twice: with all rows, and without the
rows that a second step deletes. The queries use what differs between PostgreSQL and DuckDB.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.errors import EvaluationError, SqlError

SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("x", pa.decimal128(8, 2)),
        ("s", pa.string()),
        ("ok", pa.bool_()),
        ("xs", pa.list_(pa.int32())),
        ("ys", pa.list_(pa.int32())),
        ("ts", pa.timestamp("us")),
    ]
)
COLUMNS = (
    "a int, b bigint, f float8, g real, x numeric(8, 2), s text, ok boolean, xs int[], ys int[], "
    "ts timestamp"
)
FIRST = datetime(2024, 1, 2, 3, 4, 5, 678_900)
ROWS = [
    (1, 2, 2.5, 2.5, Decimal("2.50"), "a%b", True, [1, 2, 3], [2], FIRST),
    (1, None, 1e15, 1e6, Decimal("-0.50"), "hello", False, [1, None], [None], FIRST),
    (2, 1, -0.5, 1e-5, Decimal("1.00"), "a\\b c", True, [], [1, 4], datetime(2024, 2, 29)),
    (None, 2, 123456.789, 0.1, None, "", None, None, None, None),
    (3, None, 1e-5, 3.0, Decimal("7.25"), None, True, [None], [], datetime(1999, 12, 31, 23, 59)),
    (-1, -1, 100.0, -1e20, Decimal("0.00"), "it's", False, [3, 3, 1], [3, 1], FIRST),
    (None, None, None, None, None, "xyz", None, [5], None, FIRST),
]
DELETED = [0, 3, 5]

QUERIES = [
    # Intervals in the forms of the SQL standard and of ISO 8601.
    "SELECT ts + INTERVAL '1-2 3 04:05:06.7', ts - INTERVAL '-1-2 -3 4:5' FROM t",
    "SELECT ts + INTERVAL 'P1Y2M3DT4H5M6.5S', ts - INTERVAL 'PT1.5H', ts + 'P1W'::interval FROM t",
    "SELECT ts + '1-2'::interval, ts + INTERVAL '1-2 3', ts + INTERVAL '.5 hours' FROM t",
    "SELECT ts + INTERVAL '2 -3:04', ts + INTERVAL '-1.5', ts + INTERVAL '1:' FROM t",
    "SELECT ts + INTERVAL '1' FROM t",
    "SELECT t.a, u.n FROM t NATURAL JOIN (SELECT count(*) AS n FROM t) AS u",
    "SELECT a, a < ALL (VALUES (2), (NULL)), a > ALL (VALUES (0)), a = ANY (VALUES (1)) FROM t",
    "SELECT a, generate_series.*, generate_series.generate_series FROM t, generate_series(1, 2)",
    "SELECT ts AT TIME ZONE 'us/pacific', ts AT TIME ZONE 'europe/berlin' FROM t",
    # Differences whose left side is an aggregate of distinct or ordered values.
    "SELECT a, max(DISTINCT b) - 1, min(DISTINCT x) - max(x) FROM t GROUP BY a",
    "SELECT array_agg(DISTINCT a ORDER BY a)::text, max(b) FILTER (WHERE a > 1) - 1 FROM t",
    # Lists as texts, and texts as lists.
    "SELECT xs::text, ys::text FROM t",
    "SELECT ARRAY[s, NULL, 'a b', 'NULL', '']::text, ARRAY[ok, true]::text FROM t",
    "SELECT ARRAY[f, 1]::text, ARRAY[g]::text, ARRAY[x]::text FROM t",
    "SELECT ARRAY[ts]::text, ARRAY[ts::date]::text, ARRAY[ARRAY[a, 1], ARRAY[b, 2]]::text FROM t",
    "SELECT xs::text::int[], ARRAY[s, NULL]::text::text[] FROM t",
    "SELECT ARRAY[ARRAY[a, 1], ARRAY[2, 3]]::text::int[][] FROM t",
    "SELECT ('{' || a || ', ' || b || '}')::bigint[] FROM t",
    "SELECT array_length(xs, 0), array_length(xs, 2), array_upper(xs, 2), array_ndims(xs) FROM t",
    "SELECT array_upper(ARRAY[ARRAY[a, 1, 2]], 2), array_lower(ARRAY[ARRAY[a]], 2) FROM t",
    "SELECT array_length(ARRAY[ARRAY[a, 1, 2]], 2), array_ndims(ARRAY[ARRAY[a]]) FROM t",
    "SELECT date_trunc('microseconds', ts), date_trunc('days', ts) FROM t",
    # Rows: NULL is not a value that equals itself.
    "SELECT a, b, (a, b) = (1, 2), (a, b) <> (1, 2), (a, b) < (1, 3), (a, b) >= (1, 1) FROM t",
    "SELECT a, b, (a, b) IN ((1, 2), (3, NULL)), (a, b) NOT IN ((1, NULL), (2, 1)) FROM t",
    "SELECT a, b FROM t WHERE (a, b) IN ((1, 2), (3, NULL), (1, NULL))",
    "SELECT t.a, u.b FROM t JOIN t AS u ON (t.a, t.b) = (u.a, u.b)",
    "SELECT t.a, u.b FROM t LEFT JOIN t AS u ON (t.a, t.b) < (u.a, u.b)",
    "SELECT a, ROW(a, b) = ROW(1, 2), ROW(a, 1) > ROW(1, 0) FROM t",
    "SELECT a, b, (a, b) IS NULL, (a, b) IS DISTINCT FROM (1, NULL) FROM t",
    # A timestamp without a time zone is cast to one of the zone of the session.
    "SELECT a FROM t WHERE ts > TIMESTAMPTZ '2024-01-02 03:04:05+00'",
    "SELECT t.a, u.b FROM t JOIN (SELECT b, CAST(ts AS TIMESTAMPTZ) z FROM t) u ON t.ts = u.z",
    """SELECT a, ts IN (TIMESTAMPTZ '2024-02-29 01:00:00+01', NULL), ts::date < z,
              coalesce(z, ts) = z, greatest(z, ts::date) > z, nullif(ts, z), z - ts,
              CASE WHEN a = 1 THEN z ELSE ts END >= ts, ts IS DISTINCT FROM z,
              ts BETWEEN z AND z + INTERVAL '1 hour'
       FROM (SELECT a, ts, CAST(ts AS TIMESTAMPTZ) z FROM t) t""",
    # Blanks at the end of a CHAR have no meaning.
    """SELECT a, length((s || '  ')::char(6)), (s || '  ')::char(20) = s, s::char(4)::text,
              (s || '  ')::char(20) || '.', ('  ' || s || ' ')::bpchar::text, ' x '::char = ''
       FROM t""",
    "SELECT (s || ' ')::char(3)::text AS c, count(*) FROM t GROUP BY 1",
    # Lists
    "SELECT xs[1], xs[-1], xs[0], xs[a], xs[1:2], xs[-1:2], xs[0:1], xs[-3:-1] FROM t",
    "SELECT xs[2:], xs[:1] FROM t",
    "SELECT a = ANY (xs), a < ALL (xs), a <> ALL (xs), a = SOME (xs) FROM t",
    "SELECT 1 = SOME (ARRAY[a, 2]) FROM t",
    "SELECT array_length(xs, 1), cardinality(xs), array_upper(xs, 1), array_lower(xs, 1) FROM t",
    "SELECT xs @> ys, xs <@ ys, xs @> ARRAY[NULL]::int[], xs && ys FROM t",
    "SELECT xs || ys, xs || NULL, NULL || xs, array_cat(xs, ys), xs || 7, 7 || xs FROM t",
    "SELECT array_to_string(xs, ','), array_to_string(xs, ',', '*'), array_positions(xs, 3) FROM t",
    "SELECT array_dims(xs), array_dims(ARRAY[ARRAY[a, 1], ARRAY[2, 3]]) FROM t",
    "SELECT string_to_array(s, substr(s, 2, 1)), string_to_array(s, NULLIF(s, 'xyz'), 'l') FROM t",
    "SELECT get_byte(s::bytea, 0), get_byte('\\x00ff'::bytea, 1) FROM t WHERE s LIKE 'h%'",
    "SELECT ('\\x' || a || '2')::bytea, ('\\134' || a || '\\101')::bytea FROM t WHERE a > 0",
    "SELECT ('\\x00 fF' || (a + 10))::bytea, 'é\\\\'::bytea, ''::bytea FROM t WHERE a > 0",
    "SELECT ('\\xfF' || (a + 10))::bytea::text, 'b=' || sha256('a'), to_json('ab'::bytea)::text "
    "FROM t WHERE a > 0",
    "SELECT sha224(s::bytea) <> '\\x00', 'ab'::bytea < '\\142', decode('ff', 'hex') = '\\xff' "
    "FROM t WHERE s IN ('hello', '')",
    "SELECT encode('\\x61fF', 'hex'), encode('a\\134', 'base64'), encode(s::bytea, 'hex'), "
    "encode(sha256('\\x61'), 'hex'), encode(sha512('a\\\\b'), 'hex'), "
    "convert_from('\\x61', 'UTF8'), get_byte('\\x6162', 1) FROM t WHERE s = 'hello'",
    # The numbers and times of JSON.
    "SELECT to_json(f)::text, to_json(g)::text, to_json(x)::text, to_json(ts)::text FROM t",
    "SELECT to_jsonb(f)::text, to_jsonb(x)::text, to_jsonb(f) = '2.5', to_jsonb(ts)::text FROM t",
    "SELECT to_json(ARRAY[f, 1])::text, to_jsonb(ARRAY[ts])::text, to_json(ts::date)::text FROM t",
    "SELECT jsonb_build_object('f', f, x, ts::time)::text FROM t WHERE x IS NOT NULL",
    "SELECT to_json('NaN'::float8)::text, to_jsonb('-infinity'::float8)::text, "
    "jsonb_agg(f ORDER BY f)::text FROM t",
    # Arrays of several dimensions, and a function of rows in another one.
    "SELECT a, unnest(ARRAY[xs, xs]) FROM t WHERE array_length(xs, 1) = 3",
    "SELECT a, u, o FROM t, unnest(ARRAY[ARRAY[a], ARRAY[7]]) WITH ORDINALITY AS n(u, o)",
    "SELECT a, unnest(ARRAY[ARRAY[a], ARRAY[b]]), unnest(xs) FROM t WHERE b < 9 AND a < 9",
    "SELECT a, generate_series(unnest(xs), 3, 1) FROM t",
    "SELECT scale(x), scale(a), scale(1.50), scale(x::numeric(9, 4)) FROM t",
    "SELECT regexp_instr(s, 'l+'), regexp_instr(s, '[a-h]$') FROM t",
    "SELECT a, u, o FROM t CROSS JOIN LATERAL unnest(xs) WITH ORDINALITY AS n(u, o)",
    "SELECT a, n.* FROM t LEFT JOIN LATERAL unnest(xs) WITH ORDINALITY AS n(u, o) ON true",
    "SELECT a, n.* FROM t, LATERAL unnest(xs) WITH ORDINALITY AS n",
    "SELECT a, p, q FROM t, unnest(xs, ys) AS n(p, q)",
    "SELECT b / (a - a), b % 0 FROM t WHERE b IS NULL",
    "SELECT sqrt(f * f), ln(f * f), log(f * f), log(2, b + 2), log10(b + 2) FROM t",
    "SELECT date_trunc('decade', ts), date_trunc('century', ts), date_trunc('millennium', ts), "
    "date_trunc('century', ts - interval '24 years'), isfinite(ts), "
    "extract(epoch FROM date_trunc('decade', ts - interval '2027 years')), "
    "extract(epoch FROM date_trunc('century', ts - interval '2025 years')) FROM t",
    # The average of floats is a float, which is rounded half to even.
    "SELECT round(avg(f)), avg(f)::int, round(avg(x)), round(avg(b)) FROM t WHERE s = 'a%b'",
    "SELECT round(avg(x)::float8), round(avg(x) + max(f)), round(avg(x) / 2) FROM t GROUP BY s",
    "SELECT s, round(avg(f) OVER (PARTITION BY s)), round(avg(x) OVER (PARTITION BY s) + f) FROM t",
    "SELECT s, round(avg(f) FILTER (WHERE a > 0)), round(avg(x) FILTER (WHERE a > 0)) FROM t "
    "GROUP BY s",
    # A numeric without a precision keeps all digits.
    "SELECT round(f::numeric, 2), f::numeric * 1.5, (f / 7)::numeric, round(f::numeric / 7) FROM t "
    "WHERE f < 1e6 AND f <> 1e-5",
    "SELECT a::numeric, b::numeric / 3, x::numeric, a::numeric * 2, a::decimal::text FROM t",
    "SELECT round(1.2346::float8::numeric, 2), 1.23456::numeric, '1.23456'::numeric + a FROM t",
    # A percentile of numerics is a float, and is not rounded to their digits.
    "SELECT percentile_cont(0.3) WITHIN GROUP (ORDER BY x), "
    "percentile_disc(0.3) WITHIN GROUP (ORDER BY x), "
    "percentile_cont(ARRAY[0.25, 0.4]) WITHIN GROUP (ORDER BY x DESC), "
    "round(percentile_cont(0.5) WITHIN GROUP (ORDER BY x)) FROM t",
    "SELECT s, num_nulls(a, b, s), num_nonnulls(a, b, s), num_nulls(a), num_nonnulls(xs) FROM t",
    "SELECT extract(year FROM age(ts, timestamp '2000-01-31 12:00')), "
    "extract(month FROM age(timestamp '2000-02-01 12:00', ts)), extract(day FROM age(ts, now)), "
    "extract(epoch FROM age(now, ts)) FROM t, (SELECT timestamp '2023-03-31 23:30' AS now) AS n",
    'SELECT j.key, j.value FROM (SELECT \'{"a": 1, "b": {"c": null}, "d": null, "e": "x"}\' '
    "AS t FROM t) AS t, jsonb_each_text(t.t::jsonb) AS j WHERE j.value NOT LIKE '{%'",
    # Texts
    "SELECT substr(s, 0, 3), substr(s, -1, 4), substring(s, -2), substring(s FROM 2 FOR 2) FROM t",
    "SELECT substring(s, a), substring(s, a, 2), substring(s FROM '[a-l]+') FROM t WHERE a > -9",
    "SELECT substring(s FROM '(l|o)[a-z]'), substring(s FROM '([(|)]|[^]|l])') FROM t",
    "SELECT substring(s FROM 'l(.)'), regexp_substr(s, '[a-l]+') FROM t",
    r"SELECT s LIKE 'a\%b', s LIKE 'a\\b%', s NOT LIKE '%\%%', s ILIKE 'A\%B' FROM t",
    r"SELECT s LIKE 'h\ello' FROM t",
    r"SELECT s LIKE ANY (ARRAY['a\%b', 'x%']), s LIKE 'a#%b' ESCAPE '#' FROM t",
    "SELECT to_hex(a), to_hex(b), to_hex(255) FROM t",
    "SELECT to_hex(-a), to_hex(a - 5), to_hex(~a * 2), to_hex(-b), to_hex(a - b) FROM t",
    "SELECT to_hex(-(1::int)), to_hex(-(1::bigint)), to_hex(-2147483648), to_hex(-(1)) FROM t",
    "SELECT round(201 / 200.0, 2), round((200 + a) / 200.0, 2), round(1.005, 2) FROM t",
    "SELECT log(10, 1000), log(3, 9), log(0.5, 8), log(5, 125 + a - a), log(7, 50) FROM t",
    "SELECT substring(s, 2, abs(a)), substring(s, -2, 0), substring(s, 2, NULL) FROM t",
    "SELECT format('%s is %s%%', s, a), format('%2$s-%1$s', s, f) FROM t",
    "SELECT format('%5s|%-6s|', s, a) FROM t",
    "SELECT format('%L', s), format('plain'), quote_literal(s), quote_nullable(a) FROM t",
    "SELECT s::varchar(3), a::varchar(1), CAST(s AS varchar), s::char(2) = 'he' FROM t",
    "SELECT 'abc'::char FROM t",
    "SELECT f::text, g::text, 'f=' || f, concat(f, '/', ok, '/', x), ok::text, x::text FROM t",
    "SELECT concat_ws('-', f, ok, s), ok || 'x' FROM t",
    "SELECT a, EXISTS (SELECT FROM t AS u WHERE u.b = t.a) FROM t",
    "SELECT a FROM t WHERE NOT EXISTS (SELECT FROM t AS u WHERE u.b = t.a)",
    "VALUES (1, 'x'), (3, 'y'), (NULL, 'z') ORDER BY 1 DESC LIMIT 2",
    "SELECT 'off'::boolean, ' On '::boolean, 'yes'::boolean, (ok::text)::boolean FROM t",
    # Numbers and times
    "SELECT round(f), round(x), round(x, 1), f::int, x::int FROM t WHERE f < 1000000",
    "SELECT round(a / 2.0), (a / 2.0)::int, (b / 4.0)::bigint, round(-a / 2.0) FROM t",
    "SELECT round(a::float8 / 2), (a::float8 / 2)::int, round(f / 2) FROM t WHERE f < 1e6",
    "SELECT b, round(avg(a)), avg(a)::int, round(max(f) / 2) FROM t WHERE f < 1e6 GROUP BY b",
    "SELECT extract(second FROM ts)::int, round(extract(milliseconds FROM ts) / 10) FROM t",
    "SELECT extract(second FROM ts), extract(milliseconds FROM ts), date_part('second', ts) FROM t",
    "SELECT extract(microseconds FROM ts), extract(minute FROM ts) FROM t",
    "SELECT extract(second FROM ts::time) FROM t",
    # Formats
    "SELECT to_char(a, '999'), to_char(a, 'FM00'), to_char(x, 'S990.0'), to_char(f, '99G999D9MI'), "
    "to_char(x, 'FM90.099'), to_char(a, '99PR'), to_char(a, 'SG9'), to_char(a, '9th'), "
    """to_char(x, 'PL9'), to_char(a, '"no. "9'), to_char(b * 1000, '9,999') FROM t""",
    "SELECT to_char(ts, 'Day, DD Month YYYY HH24:MI:SS'), to_char(ts, 'FMDAY day Mon MON dy'), "
    "to_char(ts, 'yyyy-mm-dd hh24:mi'), to_char(ts, 'Q WW D ID FMDD FMMM') FROM t",
    "SELECT to_number('12,454.8-', '99G999D9S'), to_number('-12', 'FMS99') + a FROM t",
    # Subqueries as lists
    "SELECT a FROM t WHERE b = ANY (ARRAY(SELECT u.a FROM t AS u WHERE u.ok))",
    "SELECT a, a <> ALL (ARRAY(SELECT u.b FROM t AS u WHERE u.a = t.a)) FROM t",
    "SELECT a, b = SOME (ARRAY(SELECT u.a FROM t AS u ORDER BY u.a LIMIT 2)) FROM t",
    "SELECT a, a = ANY ('{1, 2}'::int[]), '{}'::text[], '{x, y,NULL}'::text[], "
    "'{7}'::int[] || xs FROM t",
    # Functions that DuckDB does not have, or operators that mean something else there
    "SELECT @ a, @ f, ||/ 27, array_fill(a, ARRAY[2]), normalize(s) FROM t",
    "SELECT extract(epoch FROM make_interval(days => a, hours => 3)), "
    "ts + make_interval(0, a), ts - make_interval(weeks => 1, secs => 1.5) FROM t",
    """SELECT jsonb_array_length(j -> 'a'), coalesce(j ->> 'b', s), upper(j -> 'c' ->> 'd'),
        max(j ->> 'b') OVER ()
    FROM (SELECT s, '{"a": [1, 2], "b": "x", "c": {"d": "y"}}'::jsonb AS j FROM t) AS q""",
    # Shifts keep the bits of the type, and the distance counts modulo them.
    "SELECT a, a << 1, a << 31, a << 33, a >> 1, a >> 40, b << 1, b << 64, b >> 70, "
    "b >> -1, a::int2 << 15, a::int2 >> 1, -1 << 1, 1 << 31, 1 << 40, 5 >> 33, 1 << a FROM t",
    "SELECT 1::bigint << 33, 1::int << 33, 1::int2 << 15, (1::int8) << 64, -1::int8 << 40, "
    "CAST(1 AS bigint) << (a & 31), (1 + 1)::int8 << 33, to_hex(-1::int8), to_hex((-1)::int) "
    "FROM t",
    # Of two members of a name, the last one counts.
    """SELECT j ->> 'b', j -> 'a' ->> 'b', (j - 'a') ->> 'b', (j || '{"c": 1, "c": 2}') ->> 'c',
        j @> '{"b": 2}', jsonb_strip_nulls(j) ->> 'b', jsonb_typeof(j -> 'c')
    FROM (SELECT '{"a": {"b": 1, "b": 2}, "b": 1, "b": 2, "c": 1, "c": []}'::jsonb AS j FROM t)
        AS q""",
    # Carries of intervals
    """SELECT a, extract(month FROM h), extract(day FROM h), extract(hour FROM h),
        extract(month FROM d), extract(day FROM d), extract(hour FROM d),
        extract(month FROM f), extract(day FROM f), extract(hour FROM f)
    FROM (SELECT a, justify_hours(i) AS h, justify_days(i) AS d, justify_interval(i) AS f
    FROM (SELECT a, make_interval(0, a, 0, 25 * b::int - 40, a * 13) AS i FROM t) AS q) AS r""",
    # The rank of a value that is not in the group
    """SELECT a, rank(2) WITHIN GROUP (ORDER BY b), dense_rank(2) WITHIN GROUP (ORDER BY b DESC),
        percent_rank(3) WITHIN GROUP (ORDER BY b NULLS FIRST), rank(NULL) WITHIN GROUP (ORDER BY b),
        cume_dist(2) WITHIN GROUP (ORDER BY b) FROM t GROUP BY a""",
    # Paths in JSON
    """SELECT a, jsonb_set(j, '{a,0}', '7') ->> 'a', jsonb_set(j, '{b,b}', '7') ->> 'b',
        jsonb_set(j, '{c,d}', '"x"') #>> '{c,d}', jsonb_set(j, '{c,x}', '1', false) #> '{c,x}',
        jsonb_set(j, ARRAY['a', '-9'], to_jsonb(a)) #>> '{a,0}', j #>> '{a,-1}', j #> '{c,zz}',
        (jsonb_insert(j, '{a,1}', '5') -> 'a') ->> 1, (j #- '{c,d}') -> 'c' IS NULL,
        jsonb_array_length(jsonb_insert(j, '{a,-1}', '5', true) -> 'a'),
        jsonb_array_length((j #- '{a,0}') -> 'a'), (j #- '{b,0}') ->> 'b'
    FROM (SELECT a, '{"a": [1], "b": "x", "c": {"d": null}}'::jsonb AS j FROM t) AS q""",
    # Keys and positions of JSON, parts of texts
    """SELECT a, j ?| ARRAY['a', 'z'], j ?& ARRAY['a', 'z'], j ?& ARRAY['a', 'c'], j -> 'a' ->> -1,
        j -> 'a' -> -3, j -> -1 IS NULL
    FROM (SELECT a, '{"a": [1, "x"], "c": {}}'::jsonb AS j FROM t) AS q""",
    "SELECT a, split_part(s, '', 1), split_part(s, '', 2), split_part(s, left(s, 0), -1) FROM t",
    # Digests are bytes
    """SELECT a, encode(sha256(s::bytea), 'hex'), sha512('a'::bytea), length('abc'::bytea),
        sha224(convert_to(s, 'UTF8')) IS NULL FROM t WHERE s IN ('hello', '')""",
    """SELECT a, j::text, jsonb_pretty(j), (j -> 'a')::text, j = '{"c":{}, "a": [2,{}]}'::jsonb,
        (j || '{"b": true}')::text, ('[]'::jsonb)::text, jsonb_build_object('bb', a, 'a', 's')::text
    FROM (SELECT a, '{"c": {}, "a": 1.50, "a": [2, {}]}'::jsonb AS j FROM t) AS q""",
    """SELECT jsonb_pretty('[]'), ('{"bb": 1e2, "a": "x\\u0001/é", "n": 1E-3, "m": -0.0}'::jsonb)
            ::text,
        jsonb_pretty('{"x": {"y": [1, "z"]}, "w": null}'), '{"b":1,"a":2}'::json::text FROM t""",
    """SELECT j ->> 'x', count(*) FROM (SELECT CASE WHEN a > 1 THEN '{"x": 1, "y": 2}'::jsonb
        ELSE '{"y":2,"x":1}'::jsonb END AS j FROM t) AS q GROUP BY j""",
    """SELECT a, jsonb_extract_path(j, 'a', '0')::text, jsonb_extract_path_text(j, 'c', 'd')
    FROM (SELECT a, '{"a": [1], "c": {"d": "x"}}'::jsonb AS j FROM t) AS q""",
    # Rows of a table after USING have its key; correlations of one value
    """SELECT t.a, row_to_json(u)::text IS NULL, to_jsonb(u) ->> 'b' FROM t
        LEFT JOIN (SELECT a, b FROM t WHERE a > 1) AS u ON t.a = u.a""",
    "SELECT row_to_json(u) ->> 'a', (row_to_json(u) ->> 'b') IS NULL FROM t JOIN t AS u USING (a)",
    "SELECT a, corr(b, f), regr_slope(b, f), regr_intercept(f, b) FROM t WHERE a = 2 GROUP BY a",
    # Division by zero is an error only for the rows that reach it
    "SELECT a, 6 / a, 6 % a, b / nullif(a - 1, 0), CASE WHEN a <> 1 THEN b / (a - 1) END FROM t",
    "SELECT a FROM t WHERE a > 1 AND 6 / (a - 1) > 2",
    # Periods of time
    """SELECT a, (ts, ts + interval '1 day') OVERLAPS (timestamp '2024-01-03', interval '2 days'),
        (ts, NULL) OVERLAPS (timestamp '2024-01-03', ts), (ts, ts) OVERLAPS (ts, ts),
        (timestamp '2024-01-03', ts) OVERLAPS (ts, NULL::timestamp),
        (ts, interval '-1 day') OVERLAPS (timestamp '2024-01-01', timestamp '2023-12-01'),
        (date '2024-01-01', date '2024-01-09') OVERLAPS (date '2024-01-09', date '2024-01-10')
    FROM t""",
    # Rows of a function, and series of months
    "SELECT a, regexp_matches(s, 'l.', 'g'), s FROM t",
    "SELECT a, regexp_matches(s, '[a-z](.)') FROM t",
    "SELECT a, m.x[2] FROM t, regexp_matches(s, '(.)(l)', 'g') AS m(x)",
    "SELECT a, string_to_table(s, 'l') FROM t",
    "SELECT a, string_to_array(s, 'l', 'he'), string_to_array(s, ''), string_to_array(s, NULL) "
    "FROM t",
    "SELECT a, generate_series(ts, timestamp '2024-06-30', interval '1 month') FROM t",
    "SELECT a, m FROM t, generate_series(ts, timestamp '2023-06-30', '-1 mon -1 day') AS m",
    "SELECT a, m FROM t, generate_series(ts::date, date '2024-06-30', '8 weeks') AS m WHERE a > 0",
    # VALUES with subqueries
    "SELECT v.n, v.s FROM (VALUES ((SELECT max(a) FROM t), 'x'), (2, 'y')) AS v(n, s)",
    "SELECT t.a, v.x FROM t, LATERAL (VALUES (t.b), ((SELECT count(*) FROM t AS u "
    "WHERE u.a < t.a))) AS v(x)",
    "SELECT column2 FROM (VALUES (1, EXISTS (SELECT 1 FROM t WHERE ok)), (2, NULL)) AS v",
    "VALUES (1, (SELECT count(*) FROM t)), ((SELECT 7), NULL)",
    # Rows have fields f1, f2, ...; the text of a jsonb has blanks and one order of its members
    "SELECT (row(a, s)).f2, row_to_json(row(a, s)) ->> 'f1', to_jsonb(row(a, s)) ->> 'f2' FROM t",
    "SELECT to_jsonb(xs)::text, to_jsonb(t.a)::text, jsonb_set(to_jsonb(xs), '{0}', '7')::text, "
    "coalesce(to_jsonb(xs), '[1,  2]')::text FROM t",
    "SELECT q.j::text, count(*) FROM (SELECT to_jsonb(xs) AS j FROM t) AS q GROUP BY q.j",
    "SELECT b, jsonb_agg(row(a, s) ORDER BY a)::text, jsonb_agg(q ORDER BY a)::text, "
    "jsonb_build_array(b, array_agg(b))::text FROM (SELECT b, s, a FROM t WHERE a > 0) AS q "
    "GROUP BY b",
    "SELECT to_jsonb(q)::text FROM (SELECT b, a AS aa FROM t) AS q",
    "SELECT extract(epoch FROM ts::time - time '12:30'), extract(epoch FROM time '01:00' - "
    "time '23:00') FROM t",
    # Names of types
    "SELECT pg_typeof(a)::text, pg_typeof(b)::text, pg_typeof(f)::text, pg_typeof(g)::text, "
    "pg_typeof(x)::text, pg_typeof(s)::text, pg_typeof(ok)::text, pg_typeof(xs)::text, "
    "pg_typeof(ts)::text, pg_typeof(1)::text, pg_typeof(5000000000)::text, pg_typeof('x')::text, "
    "pg_typeof(1.5)::text, pg_typeof(a::int2)::text, pg_typeof(1::int8)::text FROM t",
    "SELECT pg_typeof(avg(a))::text, pg_typeof(ok)::text, pg_typeof(NULL)::text, "
    "pg_typeof(interval '1 day')::text, pg_typeof('{}'::jsonb)::text, pg_typeof(s || 'x')::text, "
    "pg_typeof('a'::varchar(3))::text, pg_typeof(max(ts::date))::text, pg_typeof(row(1))::text, "
    "pg_typeof(ARRAY[s])::text, pg_typeof(max(ts::time))::text, pg_typeof('a'::bytea)::text "
    "FROM t GROUP BY ok, s",
    """SELECT pg_typeof(ARRAY[(j -> 'a')])::text, pg_typeof(row(j, 1))::text, pg_typeof(-a)::text,
        pg_typeof(-(a::int2))::text, pg_typeof(-2147483648)::text, pg_typeof(-b)::text,
        pg_typeof(ARRAY['a']::varchar[])::text, pg_typeof(xs::int8[])::text
    FROM (SELECT a, b, xs, '{"a": 1}'::jsonb AS j FROM t) AS q""",
    "SELECT pg_typeof(sqrt(2))::text, pg_typeof(pi())::text, pg_typeof(sin(1))::text, "
    "pg_typeof(power(2, 3))::text, pg_typeof(ln(2))::text, pg_typeof(exp(1))::text, "
    "pg_typeof(cbrt(8))::text, pg_typeof(degrees(1))::text, pg_typeof(a / 2.0)::text, "
    "pg_typeof(f / 2)::text, pg_typeof(-f)::text, pg_typeof(f * 1.5)::text, "
    "pg_typeof(avg(a) OVER ())::text FROM t",
    "SELECT pg_typeof(avg(a))::text, pg_typeof(avg(f))::text, pg_typeof(sum(f))::text, "
    "pg_typeof(avg(a) + 1)::text FROM t",
    # || and - of JSON, also of columns that are JSON
    """SELECT (j || '{"b": 7}') ->> 'b', (j - 'b') ->> 'b', ((j -> 'a') || '3'::jsonb) ->> 2,
        jsonb_array_length((j -> 'a') - 1), jsonb_array_length(j || '[1]'::jsonb),
        jsonb_array_length((j -> 'a') || (j -> 'a')), jsonb_strip_nulls(j) -> 'e' IS NULL
    FROM (SELECT '{"a": [1, 2], "b": "x", "e": null}'::jsonb AS j FROM t) AS q""",
]


def plain(value: Any) -> Any:
    """Return a value with numbers as floats and lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, Decimal | float) or (isinstance(value, int) and value is not True):
        return value if isinstance(value, bool) else float(f"{float(value):.12g}")
    return value


def table(numbers: list[int], weight: int = 1) -> pa.Table:
    columns = zip(*(ROWS[number] for number in numbers), strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    rows = pa.table(arrays, schema=SCHEMA)
    return rows.append_column("weight", pa.array([weight] * len(numbers), pa.int64()))


@pytest.fixture(scope="module")
def server(postgres):
    """A function that returns the rows of a query, over all rows or those that are left."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        for schema, numbers in (
            ("all_rows", range(len(ROWS))),
            ("left_rows", [n for n in range(len(ROWS)) if n not in DELETED]),
        ):
            connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.t ({COLUMNS})")
            with connection.cursor() as cursor:
                places = ", ".join(["%s"] * len(SCHEMA))
                rows = [ROWS[number] for number in numbers]
                cursor.executemany(f"INSERT INTO {schema}.t VALUES ({places})", rows)

        def ask(schema: str, query: str) -> Counter[tuple]:
            connection.execute(f"SET search_path = {schema}")
            return Counter(map(plain, connection.execute(query.encode()).fetchall()))

        yield ask
        connection.execute("DROP SCHEMA all_rows CASCADE; DROP SCHEMA left_rows CASCADE")


@pytest.mark.parametrize("dialect", ["postgres", "materialize"])
@pytest.mark.parametrize("query", QUERIES)
def test_the_rows_are_those_of_postgresql_after_every_step(server, query, dialect):
    circuit = compile_sql(query, {"t": SCHEMA}, dialect=dialect)
    rows: Counter[tuple] = Counter()
    steps = [(list(range(len(ROWS))), 1, "all_rows"), (DELETED, -1, "left_rows")]
    for numbers, weight, schema in steps:
        view = circuit.step({"t": table(numbers, weight)})["view"]
        for *values, count in zip(*(column.to_pylist() for column in view.columns), strict=True):
            rows[plain(tuple(values))] += count
        assert +rows == server(schema, query)
        assert min(rows.values()) >= 0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT b / (a - 1) FROM t",
        "SELECT f / 0 FROM t",
        "SELECT x % (a - 2) FROM t",
        "SELECT sum(b) / (count(*) - 1) FROM t GROUP BY a",
        "SELECT div(x, a - 1) FROM t",
    ],
)
def test_division_by_zero_is_an_error(server, query):
    with pytest.raises(Exception, match="division by zero"):
        server("all_rows", query)
    circuit = compile_sql(query, {"t": SCHEMA}, dialect="postgres")
    with pytest.raises(EvaluationError, match="division by zero"):
        circuit.step({"t": table(list(range(len(ROWS))))})
    in_risingwave = compile_sql(query, {"t": SCHEMA}, dialect="risingwave")
    assert in_risingwave.step({"t": table([0])})["view"].to_pylist()[0].popitem()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((f"sqrt({x})", "square root of a negative number") for x in ("f", "x", "b")),
        *((f"ln({x})", "logarithm of (zero|a negative number)") for x in ("f", "x", "b")),
        *((f"{n}(x)", "logarithm of (zero|a negative number)") for n in ("log", "log10")),
        ("log(2, x)", "logarithm of (zero|a negative number)"),
        ("log(1 + b - b, 5)", "division by zero"),
        ("substring(s, 2, a - 2)", "negative substring length not allowed"),
        ("substring(s, -2, -1)", "negative substring length not allowed"),
    ],
)
def test_a_root_or_logarithm_outside_of_its_domain_is_an_error(server, call, message):
    query = f"SELECT {call} FROM t"
    with pytest.raises(Exception, match=message):
        server("all_rows", query)
    circuit = compile_sql(query, {"t": SCHEMA}, dialect="postgres")
    with pytest.raises(EvaluationError, match=message):
        circuit.step({"t": table(list(range(len(ROWS))))})


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT regexp_matches(s, s) FROM t", "a constant pattern"),
        ("SELECT regexp_matches(s, '(a)?') FROM t", "without optional groups"),
        ("SELECT regexp_matches(s, 'a', 'x') FROM t", "no flag but 'g'"),
        ("SELECT pg_typeof(a + 1) FROM t", r"pg_typeof\(\) of a computed integer"),
        ("SELECT pg_typeof(ARRAY[1]) FROM t", r"pg_typeof\(\) of a list"),
        ("SELECT scale(x + 1) FROM t", "of a computation"),
        ("SELECT 'NaN'::numeric FROM t", "cast it to DOUBLE"),
        ("SELECT format(s, a) FROM t", "a constant"),
        ("SELECT format('%I', s) FROM t", "%s"),
        ("SELECT format('%s %s', s) FROM t", "there is 1 value"),
        ("SELECT format('%s %s %s', s, a) FROM t", "there are 2 values"),
        ("SELECT (a, b) IS NOT NULL FROM t", "IS NOT NULL of each"),
        ("SELECT jsonb_set(s) FROM t", r"jsonb_set\(\) takes 3 or 4 arguments"),
        ("SELECT jsonb_insert(s, '{a}') FROM t", r"jsonb_insert\(\) takes 3 or 4 arguments"),
        ("SELECT * FROM t UNPIVOT (v FOR n IN (a) m IN (b))", "UNPIVOT with several FOR"),
    ],
)
def test_other_meanings_in_postgresql_are_refused(query, message):
    with pytest.raises(SqlError, match=message):
        compile_sql(query, {"t": SCHEMA}, dialect="postgres")


@pytest.mark.parametrize("call", ["jsonb_set(j, '{a}', v)", "jsonb_insert(j, '{b}', v)"])
def test_a_new_value_that_is_no_json_is_an_error_of_the_row(call):
    schema = pa.schema([("j", pa.string()), ("v", pa.string())])
    circuit = compile_sql(f"SELECT {call} AS x FROM t", {"t": schema}, dialect="postgres")
    with pytest.raises(EvaluationError, match="the new value is no JSON"):
        circuit.step({"t": [{"j": '{"a": 1}', "v": "no JSON"}]})
    assert circuit.step({"t": [{"j": '{"a": 1}', "v": None}]})["view"]["x"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        *(("1" * 5000, 5000), ("1e5000", 5001), ("1e131071", 131_072), ("1e-16383", 16_385)),
        *(("0e999999999", 1), ("-0e-50", 52), ('"é"', 3), ("1e131072", None), ("1e-16384", None)),
        *(
            ("1e999999999", None),
            ("1e" + "9" * 20, None),
            ("0e-16384", None),
            ('"\\u0000"', None),
            ('"\\ud800"', None),
        ),
        *(("[" * 300 + "]" * 300, 600), ('{"\\u0000": 1}', None)),
    ],
)
def test_jsonb_has_the_limits_of_postgresql(postgres, text, length):
    psycopg = pytest.importorskip("psycopg")
    query = "SELECT length((s::jsonb)::text) AS n, length(jsonb_pretty(s::jsonb)) AS p FROM t"
    circuit = compile_sql(query, {"t": "s TEXT"}, dialect="postgres")
    with psycopg.connect(postgres, autocommit=True) as connection:
        if length is None:
            with pytest.raises(EvaluationError, match=r"a (number|string) has"):
                circuit.step({"t": [{"s": text}]})
            with pytest.raises(psycopg.Error):
                connection.execute("SELECT %s::jsonb", [text])
            return
        (row,) = circuit.step({"t": [{"s": text}]})["view"].to_pylist()
        expected = connection.execute(query.replace("FROM t", "FROM (SELECT %s AS s) AS t"), [text])
        assert (row["n"], row["p"]) == expected.fetchone()
        assert row["n"] == length


def test_a_jsonb_nested_too_deeply_is_an_error_of_its_row():
    circuit = compile_sql("SELECT s::jsonb AS j FROM t", {"t": "s TEXT"}, dialect="postgres")
    for depth in (900, 5000):
        with pytest.raises(
            EvaluationError, match=r"jsonb_of_text\(s\) .*: it is nested too deeply"
        ):
            circuit.step({"t": [{"s": "[" * depth + "]" * depth}]})


def test_texts_of_lists_have_the_blanks_of_postgresql(server):
    elements = ["\u00a0a", "\x0b", "\x0c b", "a\n", "\u2003", "\x85", "\x1c"]
    schema = {"t": pa.schema([("l", pa.list_(pa.string()))])}
    circuit = compile_sql(
        "SELECT l::text AS s, l::text::text[] AS l FROM t", schema, dialect="postgres"
    )
    (row,) = circuit.step({"t": [{"l": elements}]})["view"].to_pylist()
    written = "ARRAY[" + ", ".join(f"'{element}'" for element in elements) + "]"
    ((expected,),) = server("all_rows", f"SELECT {written}::text").elements()
    assert row == {"s": expected, "l": elements, "weight": 1}


@pytest.mark.parametrize(
    "text", ["{a\\ }", "{ a\\ b  ,c }", "{a\\\nb}", '{"a\\\nb"}', "{NU\\LL}", "{a\\\\ }"]
)
def test_escapes_in_the_texts_of_lists_are_those_of_postgresql(server, text):
    schema = {"t": pa.schema([("s", pa.string())])}
    circuit = compile_sql("SELECT s::text[] AS l FROM t", schema, dialect="postgres")
    (row,) = circuit.step({"t": [{"s": text}]})["view"].to_pylist()
    # The elements as texts: the connection returns lists as tuples.
    joined = "array_to_string('" + text + "'::text[], '|')"
    ((expected,),) = server("all_rows", f"SELECT {joined}").elements()
    assert "|".join(row["l"]) == expected


def test_a_list_with_null_in_place_of_a_list_is_read_as_it_is_written():
    schema = {"t": pa.schema([("l", pa.list_(pa.list_(pa.int32())))])}
    text = "SELECT l::text AS s, l::text::int[][] AS l FROM t"
    circuit = compile_sql(text, schema, dialect="postgres")
    (row,) = circuit.step({"t": [{"l": [None, [1]]}]})["view"].to_pylist()
    assert row == {"s": "{NULL,{1}}", "l": [None, [1]], "weight": 1}


@pytest.mark.parametrize(
    "value",
    [
        "(SELECT avg(a) FROM t)",
        "ARRAY[a / 2.0]",
        "sqrt(a / 2.0)",
        "date_part('year', ts)",
        "-(a + 1)",
    ],
)
def test_the_type_of_a_number_that_is_not_known_is_refused(value):
    with pytest.raises(SqlError, match=r"pg_typeof\(\) of a .*computed"):
        compile_sql(f"SELECT a, pg_typeof({value}) FROM t", {"t": SCHEMA}, dialect="postgres")
