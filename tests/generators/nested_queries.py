"""Queries over lists, structs, maps and JSON, and rows of a table ``t`` for them."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["DUCKDB_QUERIES", "RECURSIVE_QUERIES", "ROWS", "SPARK_QUERIES"]

_NUMBERS = pa.list_(pa.int64())

#: Rows of the table, with NULLs at every level, empty values and duplicates.
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 4, 5], pa.int64()),
        "a": pa.array([[1, 2, 2], None, [], [3, None], [3, None], [5]], _NUMBERS),
        "b": pa.array([[2], [5], None, [3, 4], [3, 4], [None]], _NUMBERS),
        "i": pa.array([1, -1, 0, 2, 2, None], pa.int64()),
        "w": pa.array([["x", "y"], ["z", None], None, [], [], ["ä,"]], pa.list_(pa.string())),
        "s": pa.array(
            [
                {"x": 1, "y": "q"},
                None,
                {"x": None, "y": "r"},
                {"x": 3, "y": None},
                {"x": 3, "y": None},
                {"x": None, "y": None},
            ],
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
        ),
        "m": pa.array(
            [[("k", 1), ("l", 2)], None, [], [("k", None)], [("k", None)], [("", 7)]],
            pa.map_(pa.string(), pa.int64()),
        ),
        "n": pa.array([[[1], [2, 3]], None, [None, [4]], [], [], [[]]], pa.list_(_NUMBERS)),
        "t": pa.array(["a,b", "", None, "c", "c", "äß"]),
        "j": pa.array(
            [
                '{"a": 1, "b": [1, {"c": "x"}]}',
                "[1,2,3]",
                None,
                '{"a": "s", "b": null}',
                '{"a": "s", "b": null}',
                '{"a": {"é": 1.5}, "b": true}',
            ]
        ),
    }
)

#: Queries that mean the same here and in DuckDB.
DUCKDB_QUERIES = """
SELECT id, list_count(a), list_first(a), list_last(w), list_any_value(a), list_product(a) FROM t
SELECT id, list_var_pop(a), list_var_samp(a), list_stddev_pop(a), list_stddev_samp(b) FROM t
SELECT id, list_median(a), list_mode(b), list_median(w), list_bool_and([i > 0]) FROM t
SELECT id, list_bit_and(a), list_bit_or(a), list_bit_xor(b), list_bool_or([i > 0, NULL]) FROM t
SELECT id, list_select(a, [2, 1]), list_where(a, [true, false, true]), list_resize(a, 3) FROM t
SELECT id, list_slice(a, 1, -1, 2), a[-1:1:-1], a[:-:-1], list_resize(b, 2, i) FROM t
SELECT id, list_grade_up(n), list_grade_up(w, 'DESC') FROM t
SELECT id, list_grade_up([i, 7, -7], 'ASC', 'NULLS FIRST') FROM t
SELECT id, list_grade_up(b, 'DESC', 'NULLS FIRST') FROM t
SELECT id, list_dot_product([i, 2], [3, 4]), list_distance([1, 2], [i, 4]) FROM t WHERE i < 9
SELECT id, list_cosine_similarity([1, 2], [3, i]) FROM t WHERE i IS NOT NULL
SELECT id, map_concat(m, map {'k': 9::BIGINT}), map_concat(map {'k': i}, m) FROM t
SELECT id, struct_insert(s, z := i), struct_update(s, x := i), struct_keys(s) FROM t
SELECT id, struct_concat(s, {'b': a}) FROM t
SELECT id, json_object('a', i, 'b', s), json_array(i, t, json_object('x', a), j::JSON) FROM t
SELECT id, row_to_json(s), array_to_json(a), json_array(), json_object() FROM t
SELECT id, repeat(a, 2), repeat(b, i), repeat(NULL::INT[], 2) FROM t WHERE i < 9 OR i IS NULL
SELECT id, a, s, m, n FROM t
SELECT id, a[1], a[i], a[-1], a[0], m['k'], m['zz'] FROM t
SELECT id, s.x, t.s.y, s['x'], (s).y FROM t
SELECT s.* FROM t
SELECT histogram(i), histogram(t), histogram(a), histogram(i) FILTER (WHERE id > 9) FROM t
SELECT id % 2 AS k, histogram(i), histogram(DISTINCT t) FROM t GROUP BY k
SELECT id, list_histogram(b), list_histogram(a || b), list_aggregate(w, 'histogram') FROM t
SELECT id % 2 AS k, max_by(i, id, 1), min_by(t, i, 2), max_by(id, i, 9) FROM t GROUP BY k
SELECT id, (i, t) AS pair, row(a, (1, t)) AS nested FROM t
SELECT id, s = (3, NULL) AS p, (1, 'q') = s AS q, s <> row(1, 'q') AS r, s IN ((1, 'q')) AS u FROM t
SELECT id, s < (i, t) AS p, s >= (2, 'a') AS q, s BETWEEN (1, 'a') AND (i, 'z') AS r FROM t
SELECT id, s IS DISTINCT FROM (NULL, 'r') AS p, s IS NOT DISTINCT FROM (i, NULL) AS q FROM t
SELECT id, list_transform(a, lambda v: V + i) AS p, list_filter(w, lambda X: x > 'x') AS q FROM t
SELECT id, x FROM t, unnest(a) AS u(x)
SELECT id, x, o FROM t CROSS JOIN UNNEST(a) WITH ORDINALITY AS u(x, o)
SELECT id, x FROM t LEFT JOIN UNNEST(a) AS u(x) ON true
SELECT id, x FROM t LEFT JOIN UNNEST(a) AS u(x) ON x > 2 OR i = 2
SELECT id, x, o, i FROM t LEFT JOIN UNNEST(a) WITH ORDINALITY AS u(x, o) ON x >= o AND x > i
SELECT id, x, y FROM t LEFT JOIN UNNEST(a) AS u(x) ON x = i LEFT JOIN UNNEST(b) AS z(y) ON y <> x
SELECT id, x FROM t LEFT JOIN UNNEST(n) AS u(x) ON len(x) > 1
SELECT r.id, x FROM t AS r JOIN unnest(r.a) AS u(x) ON x > 1
SELECT id, a, x FROM t, unnest(t.b) AS u(x) WHERE x = a[1]
SELECT id, x FROM t, LATERAL (SELECT unnest(a) AS x)
SELECT u.x, o.id FROM t, unnest(a) AS u(x) JOIN t AS o ON o.id = u.x
SELECT id FROM t WHERE 2 IN (SELECT unnest(a))
SELECT id, (SELECT sum(x + y) FROM unnest(t.a) AS u(x), unnest(t.b) AS v(y)) FROM t
SELECT id, (SELECT count(x) FROM t AS o, unnest(t.a) AS u(x) WHERE x < o.id) FROM t
SELECT id, (SELECT count(*) FROM (t o JOIN unnest([1, 2]) u(x) ON true) WHERE o.id < t.i) FROM t
SELECT id, x, k FROM t, unnest(a) u(x), LATERAL (SELECT max(o.i) AS k FROM t o WHERE o.id <= x)
SELECT id, (SELECT max(x[1]) FROM (VALUES ([t.i]), ([t.id])) AS v(x)) FROM t
SELECT a, count(*) FROM t GROUP BY a HAVING EXISTS (SELECT 1 FROM t AS o WHERE o.b = t.a)
SELECT id, unnest(a) AS x FROM t WHERE id > 1
SELECT id, unnest(a) + 1 AS x, unnest(w) AS y FROM t
SELECT DISTINCT unnest(a) AS x FROM t
SELECT id, unnest(s) FROM t
SELECT id, unnest(n, max_depth := 2) AS x FROM t
SELECT id, unnest([s, s], recursive := true) FROM t
SELECT unnest({'p': id, 'q': {'r': i, 'u': [id]}}, recursive := true) FROM t
SELECT x, count(*) FROM t, unnest(a) AS u(x) GROUP BY x
SELECT id, e.q FROM (SELECT id, unnest([{'q': 1}, {'q': 2}]) AS e FROM t)
SELECT id, k FROM t, unnest(map_keys(m)) AS u(k) WHERE k <> 'l'
SELECT id, r FROM t, range(3) AS u(r)
SELECT a, count(*) FROM t GROUP BY a
SELECT s, sum(id) FROM t GROUP BY s
SELECT m, count(*) FROM t GROUP BY m
SELECT DISTINCT n FROM t
SELECT id FROM t WHERE id = ANY([1, 2])
SELECT id FROM t WHERE NOT id = ANY(a) OR i > 1
SELECT id FROM t WHERE id NOT IN a
SELECT id, id <> ALL(a), i >= ALL(b), i < ALL([id, 3]) FROM t
SELECT id, id < ANY(a), i = ALL(a) FROM t
SELECT id, id = ANY([1, NULL]), i = ANY(ARRAY[id, NULL]) FROM t
SELECT id, NULL IN a, i IN b FROM t
SELECT id, id IN [1, NULL], i IN [id, 2, NULL], id IN [], id IN [2, 3], id IN [1,2][1:1] FROM t
SELECT id, id = ANY([]), id = ALL([]), NULL = ANY(a), 2.0 = ANY(a) FROM t
SELECT id, 'k' IN m, 'a' IN t, t IN w FROM t
SELECT id, count(*) FILTER (i = ANY(a)), sum(i) IN [3, 4], 2 = ANY(list(i)) FROM t GROUP BY id
SELECT x.id, y.id FROM t x JOIN t y ON x.id = ANY(y.a)
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t AS o WHERE t.id = ANY(o.a))
SELECT id, (SELECT count(*) FROM t AS o WHERE t.id IN o.a) FROM t
SELECT id, i IS TRUE, i IS NOT FALSE, i IS UNKNOWN, i IS NOT TRUE, i IS FALSE FROM t
SELECT id, (id - 1) IS FALSE, id IS NOT UNKNOWN, (i / 2) IS TRUE, NULL IS TRUE FROM t
SELECT id FROM t WHERE i IS TRUE
SELECT 0.0 IS TRUE, 'nan'::DOUBLE IS TRUE, 0.4 IS TRUE, 'true' IS TRUE FROM t
SELECT unnest(a) AS x, id, count(*), sum(i) FROM t GROUP BY 1, 2
SELECT unnest(a) AS x, count(*) FROM t GROUP BY unnest(a)
SELECT unnest(a) AS x, count(*), sum(i) FROM t GROUP BY x
SELECT unnest(a) + 1 AS x, count(*) FROM t GROUP BY x HAVING count(*) > 1
SELECT unnest(a) AS x, max(i) FROM t GROUP BY ROLLUP(x)
SELECT count(*), sum(i) FROM t GROUP BY unnest(a)
SELECT unnest(a) + 1, count(*) FROM t GROUP BY unnest(a)
SELECT unnest(a) + id, count(*) FROM t GROUP BY unnest(a), id
SELECT a, (SELECT max(n) FROM (SELECT unnest(t.a), count(*) AS n GROUP BY 1)) FROM t
SELECT unnest(a) AS x, count(*) FROM t GROUP BY x, id ORDER BY 1 LIMIT 3
SELECT TRY_CAST(id AS DATE), TRY_CAST(id > 1 AS DATE), TRY_CAST(a AS INT) FROM t
SELECT TRY_CAST(DATE '2020-01-01' AS INT), TRY_CAST(i AS INT[]), TRY_CAST(t AS DATE) FROM t
SELECT coalesce(*COLUMNS(['id', 'i'])), greatest(*COLUMNS('^(id|i)$')) FROM t
SELECT id FROM t WHERE coalesce(*COLUMNS('^(i|id)$')) = 1
SELECT id + i FROM t WHERE 1 IN (*COLUMNS(['id', 'i']))
SELECT [*COLUMNS(['id', 'i'])] FROM t
SELECT greatest(*COLUMNS(* EXCLUDE (a, b, w, s, m, n, t, j))) + 1 AS g FROM t
SELECT i::HUGEINT + 1, -i::HUGEINT, 1.5::HUGEINT, '12'::HUGEINT, i::HUGEINT = id FROM t
SELECT id::HUGEINT * 2 FROM t
SELECT id::HUGEINT / 2 FROM t
SELECT sum(i::HUGEINT), max(i::HUGEINT) FROM t GROUP BY id
SELECT (i::HUGEINT)::VARCHAR, (i::HUGEINT)::INT, abs(i::HUGEINT) FROM t
SELECT typeof(i::HUGEINT) FROM t
SELECT quantile_disc(id, [0.1, 0.9]), quantile_cont(id, [0.5]), quantile(id, [0.25, 0.5]) FROM t
SELECT t, quantile_cont(i, [0.5, 0, 1]), quantile_disc(t, [0.5, 1]) FROM t GROUP BY t
SELECT percentile_disc([0.25, 0.5]) WITHIN GROUP (ORDER BY i DESC) FROM t
SELECT quantile_disc(i, [0.5]) FILTER (i > 100) FROM t
SELECT id, quantile_disc(i, [0.1, 0.9]) OVER (ORDER BY id) FROM t
SELECT count(DISTINCT (id, i)), count((id, i)), count(DISTINCT (i, NULL)) FROM t
SELECT count(DISTINCT (i, t)) FROM t
SELECT t, count(DISTINCT (id, a)) FROM t GROUP BY t
SELECT count(DISTINCT (id, i)) FILTER (id > 1) FROM t
SELECT 'hello'[1], 'hello'[1:3], 'hello'[-2], 'hello'[:2], 'hello'[0], 'hello'[2:-2] FROM t
SELECT id, t[1], t[i], t[-1], t[0], t[9], t[-9], list_extract(t, 2) FROM t
SELECT id, t[1:2], t[i:], t[-2:-1], t[2:1], t[0:2], t[-9:2], t[:-2], t[-9:-9], t[1:9] FROM t
SELECT id, t[i:id], t[NULL], t[1:NULL], t[NULL:], w[1][1], w[1][1:1], upper(t)[2:] FROM t
SELECT t[1], count(*) FROM t GROUP BY t[1]
SELECT id FROM t WHERE id::VARCHAR = id
SELECT id, '1' = id, id = '1', t = 'c', upper('1') = id, concat(id, id) = 11 FROM t
SELECT id, 1 = concat(id), 2 <> concat(id), (i::DOUBLE)::VARCHAR = i::DOUBLE, i = i::TEXT FROM t
SELECT id, concat(id) IN (1, 2), id IN (i::TEXT, '3'), id IN (1, '2'), i::TEXT IN (id, 2) FROM t
SELECT id, id IS DISTINCT FROM i::TEXT, CASE concat(id) WHEN 1 THEN 'a' WHEN i THEN 'b' END FROM t
SELECT id, (i > 0) = (i > 0)::VARCHAR, DATE '2020-01-01' = concat('2020-01-0', id) FROM t
SELECT x.id, y.i FROM t x JOIN t y ON x.id = y.i::TEXT
SELECT id, concat(id) = 1.0, concat(id) = 1.5::DOUBLE FROM t
SELECT id, t FROM t UNION SELECT t, i FROM t
SELECT id, i > 0 FROM t UNION ALL SELECT 1, t FROM t
SELECT id / 2 FROM t UNION SELECT t FROM t
SELECT id::TEXT FROM t INTERSECT SELECT id FROM t
SELECT t FROM t EXCEPT ALL SELECT 1.50
SELECT DATE '2020-01-01' + id::INT FROM t UNION SELECT t FROM t
SELECT id, (SELECT list(x ORDER BY x) FROM (SELECT z.i AS x UNION ALL SELECT z.t)) FROM t AS z
SELECT t FROM t UNION SELECT 1 UNION SELECT 2.5
SELECT id, ARRAY(SELECT q.id FROM t q WHERE q.id < t.id ORDER BY q.id) FROM t
SELECT ARRAY(SELECT id FROM t ORDER BY id DESC) AS l
SELECT id, ARRAY(SELECT i + 1 FROM t o WHERE id <= t.id ORDER BY o.i DESC NULLS LAST, 1) FROM t
SELECT id, ARRAY(SELECT DISTINCT o.i FROM t o WHERE id <> t.i ORDER BY o.i NULLS FIRST) FROM t
SELECT id, ARRAY(SELECT o.i AS v FROM t AS o WHERE o.id >= t.id ORDER BY v DESC LIMIT 2) FROM t
SELECT id, ARRAY(SELECT o.i FROM t o WHERE id >= t.id ORDER BY o.id * 2, o.i LIMIT 2) FROM t
SELECT id, ARRAY(SELECT max(i) FROM t o WHERE o.id = t.id GROUP BY o.t ORDER BY max(i)) FROM t
SELECT id, ARRAY(SELECT i FROM t UNION SELECT 7 ORDER BY 1) FROM t
SELECT a, ARRAY(SELECT o.id FROM t AS o WHERE o.a = t.a ORDER BY 1) FROM t GROUP BY a
SELECT id, ARRAY(SELECT x + 1 FROM unnest(t.a) AS u(x) ORDER BY x) FROM t
SELECT id, ARRAY(SELECT unnest(a) + 1) FROM t
SELECT id, ARRAY(SELECT ARRAY(SELECT id FROM t WHERE id < p.id) FROM t p WHERE id < z.id) FROM t z
SELECT ARRAY(SELECT id FROM t WHERE id > 1000)
SELECT id, len(ARRAY(SELECT 1 FROM t AS o WHERE o.i = t.id)) FROM t
SELECT ARRAY(WITH c AS (SELECT id FROM t) SELECT id FROM c ORDER BY id)
SELECT id, (SELECT count(*) FROM (SELECT o.t FROM t AS o WHERE o.id < t.id)) FROM t
SELECT b, count(DISTINCT a) FROM t GROUP BY b
SELECT a FROM t UNION SELECT b FROM t
SELECT a FROM t EXCEPT SELECT b FROM t
SELECT t.id, u.id FROM t JOIN t AS u ON t.a = u.a
SELECT t.id, u.id FROM t JOIN t AS u ON t.s = u.s AND t.id < u.id + 1
SELECT t.id, u.a, u.s, u.m FROM t LEFT JOIN t AS u ON t.id = u.i
SELECT id % 2 AS g, max(s), min(a), max(a), min(n) FROM t GROUP BY g
SELECT id, a FROM t ORDER BY a NULLS LAST, id LIMIT 3
SELECT id, a, s FROM t ORDER BY s DESC NULLS LAST, id LIMIT 3
SELECT id FROM t WHERE a = [1, 2, 2]
SELECT id FROM t WHERE a < b
SELECT id FROM t WHERE a IN ([1, 2, 2], b)
SELECT id, a IS NULL, s = {'x': 1, 'y': 'q'}, a <> b, s < {'x': 2, 'y': 'q'} FROM t
SELECT id, a IS DISTINCT FROM b FROM t
SELECT id, [id, 2], {'p': id, 'q': s}, [], MAP {'a': id}, map([id], [t]) FROM t
SELECT id, [1, NULL, 2.5], ['x', t], [a, b], list_value(1, 2)[1], struct_pack(p := id).p FROM t
SELECT id, coalesce(a, b), CASE WHEN id = 1 THEN a ELSE [9] END FROM t
SELECT id, a::INT[], s::STRUCT(x INT, y VARCHAR), CAST(m AS MAP(VARCHAR, DOUBLE)) FROM t
SELECT id, TRY_CAST(w || ['7'] AS INT[]), TRY_CAST(s AS STRUCT(x TINYINT, y INT)) FROM t
SELECT id, TRY_CAST(m AS MAP(VARCHAR, BOOLEAN)), TRY_CAST(m AS MAP(INT, BIGINT)) FROM t
SELECT id, list_contains(a, 2), list_contains(a, i), list_contains(a, NULL) FROM t
SELECT id, len(a), array_length(a), length(a), cardinality(m), len(t) FROM t
SELECT id, list_sort(a), list_sort(a, 'DESC'), list_sort(w), list_sort(n) FROM t
SELECT id, list_sort(a, 'ASC', 'NULLS FIRST'), list_sort(a, 'DESC', 'NULLS FIRST') FROM t
SELECT id, list_reverse_sort(a), list_sort(list_distinct(a)) FROM t
SELECT id, list_concat(a, b), a || b, array_concat(a, b), list_concat(a, [i]) FROM t
SELECT id, list_concat(a, a), list_concat(a), concat(b, a), list_concat(a, NULL) FROM t
SELECT id, list_concat(NULL, NULL), list_concat(NULL::INT[], NULL), a || NULL::BIGINT[] FROM t
SELECT id, list_slice(a, 1, 2), a[1:2], a[2:], a[:-1], a[-2:], list_slice(a, i, 2) FROM t
SELECT id, a[0:1], a[5:6], a[-9:2] FROM t
SELECT id, array_to_string(w, ','), array_to_string(a, '-') FROM t
SELECT id, array_to_string([i, NULL][2:], ','), list_string_agg(a) FROM t
SELECT id, list_aggregate([NULL, w[1]], 'string_agg', ';'), array_to_string([], '-') FROM t
SELECT id, list_min(a), list_max(a), list_avg(a), list_max(w), list_min(n) FROM t
SELECT id, list_sum(a)::BIGINT, list_aggregate(a, 'max') FROM t
SELECT id, flatten(n), list_append(a, i), list_prepend(i, a), array_append(a, NULL) FROM t
SELECT id, list_reverse(a), list_extract(a, 1), struct_extract(s, 'x') FROM t
SELECT id, range(i), range(1, i), generate_series(1, i), generate_series(3, 1, -1) FROM t
SELECT id, range(0, 10, 3), generate_series(i, 4) FROM t
SELECT id, string_split(t, ','), string_split(t, substr(t, 2, 1)), string_split(t, NULL) FROM t
SELECT id, str_split(t, ''), regexp_split_to_array(t, '[,]') FROM t
SELECT id, map_keys(m), map_values(m), map_entries(m), element_at(m, 'k') FROM t
SELECT id, map_contains(m, 'k'), map_from_entries([{'k': id, 'v': t}]) FROM t
SELECT id, list_position(a, 2), list_position(a, NULL), list_indexof(a, 9) FROM t
SELECT id, list_has_any(a, b), list_has_all(a, b), list_intersect(a, b) FROM t
SELECT id, list_transform(a, lambda x: x + i), list_filter(a, lambda x: x > 1) FROM t
SELECT id, list_transform(a, lambda x, k: k), [x * 2 for x in a if x > 1] FROM t
SELECT id, list_reduce(a, lambda x, y: coalesce(x, 0) + coalesce(y, 0), 0) FROM t
SELECT id, list_reduce(a, lambda x, y, k: coalesce(x, 0) * 10 + coalesce(y, 0) + k + i, id) FROM t
SELECT id, list_reduce(list_append(a, i), lambda x, y, k: coalesce(x, 9) * 10 + k) FROM t
SELECT id, list_reduce(n, lambda x, y, k: list_append(y, k), [id]) FROM t
SELECT id, list_transform(n, lambda x: list_reduce(x, lambda p, q, k: p + q + k + i, 0)) FROM t
SELECT id, list_transform(n, lambda x: list_transform(x, lambda y: y + i)) FROM t
SELECT list_apply([0], lambda x: list_apply(a, lambda X: list_apply([i], lambda y: x * y))) FROM t
SELECT id, list_transform([{'q': id}], lambda x: x.q) FROM t
SELECT j->'a', j->>'a', json_extract(j, '$.a'), json_extract_string(j, '$.b[1].c') FROM t
SELECT j->'b', j->>'b', j->0, j->'$.b[0]', json_type(j), json_keys(j) FROM t
SELECT json_array_length(j), json_array_length(j, '$.b'), json_valid(j), json_valid(t) FROM t
SELECT to_json(s), to_json(a), to_json(w), to_json(m), to_json(id) FROM t
SELECT from_json(j, '{"b":"VARCHAR"}'), coalesce(j->>'a', 'z') FROM t
""".strip().splitlines()

#: Recursions whose rows contain lists, or which unnest lists.
RECURSIVE_QUERIES = """
WITH RECURSIVE r(id, p) AS (SELECT id, [id] FROM t WHERE id = 1 UNION SELECT t.id, \
list_append(r.p, t.id) FROM r, t WHERE t.id = r.id + 1) SELECT * FROM r
WITH RECURSIVE r(x) AS (SELECT id FROM t WHERE id = 1 UNION SELECT u.y FROM r, t, \
unnest(t.b) AS u(y) WHERE t.id = r.x) SELECT * FROM r
""".strip().splitlines()

#: Queries that mean the same here, in dialect spark, and in Spark.
SPARK_QUERIES = (
    """
SELECT id, s = (3L, 'q'), (1L, 'q') = s, s < (i, t), s >= (2L, 'a'), s <=> (i, t) FROM t
SELECT id, transform(a, v -> V + i), filter(w, X -> x > 'x') FROM t
SELECT id, x FROM t LATERAL VIEW explode(a) u AS x
SELECT id, p, x, k, v FROM t LATERAL VIEW OUTER posexplode(a) u AS p, x \
LATERAL VIEW OUTER explode(m) w AS k, v
SELECT explode(a) AS x, id FROM t
SELECT id, posexplode(a) AS (p, x) FROM t
SELECT explode(m), id FROM t
SELECT id, x FROM t LEFT JOIN LATERAL explode(a) AS u(x) ON x > i
SELECT id, p, x FROM t LEFT JOIN LATERAL posexplode(a) AS u(p, x) ON x > i AND p < 2
SELECT id, window(timestamp_seconds(i * 7), '10 seconds') AS w FROM t
SELECT id, window(timestamp_seconds(i * 7), '10 seconds', '5 seconds').end AS w FROM t
SELECT id, sum(id) OVER (ORDER BY date_add(DATE '2024-01-31', CAST(30 * i AS INT)) \
RANGE BETWEEN INTERVAL '1' MONTH PRECEDING AND CURRENT ROW) AS n FROM t
SELECT i, dateadd(DAY, 1, CAST(date_add(DATE '2024-01-31', CAST(i AS INT)) AS STRING)) AS n FROM t
SELECT explode_outer(a), id FROM t
SELECT id, inline(array(struct(id AS q, t AS r))) FROM t
SELECT id, u.* FROM t LATERAL VIEW json_tuple(j, 'a', 'b') u AS x, y
SELECT * FROM t, LATERAL explode(b) AS u(x) WHERE x > 2
SELECT a[0], get(a, 5), get(a, -1), try_element_at(a, 1), element_at(m, 'k'), m['zz'] FROM t \
WHERE id IN (1, 4)
SELECT id, try_element_at(a, -1), size(a), cardinality(a), array_size(a), size(m) FROM t
SELECT id, array_contains(a, 2), array_contains(a, 9), array_contains(b, i) FROM t
SELECT id, sort_array(a), sort_array(a, false), array_sort(a), array_distinct(a) FROM t
SELECT id, concat(a, b), a || b, slice(a, 1, 2), slice(a, -1, 1) FROM t
SELECT id, array_join(w, ','), array_join(w, ',', 'N') FROM t
SELECT id, array_max(a), array_min(a), array_union(a, b), array_except(a, b) FROM t
SELECT id, array_intersect(a, b), arrays_overlap(a, b), flatten(n) FROM t
SELECT id, array_remove(a, 2), array_append(a, 9), array_prepend(a, 9), array_compact(a) FROM t
SELECT id, array_repeat(id, 2), reverse(a), size(array()), array(1, NULL), array('a', t) FROM t
SELECT id, sequence(1, i), sequence(i, 4), sequence(1, 10, 3), sequence(4, 1) FROM t
SELECT id, array_sort(a, (x, y) -> CAST(coalesce(y, 0) - coalesce(x, 0) AS INT)) FROM t
SELECT id, split(t, ','), split(t, '[a]'), map_keys(m), map_values(m), map_entries(m) FROM t
SELECT id, map_contains_key(m, 'k'), map_concat(m, map('zz', 5)), size(map()) FROM t
SELECT id, map_from_arrays(array('q'), array(id)), map('a', id, 'b', 0) FROM t
SELECT id, map_from_entries(array(struct(1, 'a'))), named_struct('x', id), struct(id, t) FROM t
SELECT id, transform(a, x -> x + 1), transform(a, (x, k) -> k + i), filter(a, x -> x > 1) FROM t
SELECT id, exists(a, x -> x > 2), forall(a, x -> x > 0) FROM t
SELECT id, aggregate(a, 0L, (x, y) -> x + coalesce(y, 0L)) FROM t
SELECT id, aggregate(a, 1L, (x, y) -> x + 1, x -> x * 10) FROM t
SELECT id, transform_values(m, (k, v) -> v + 1), map_filter(m, (k, v) -> v > 1) FROM t
SELECT id, transform_keys(m, (k, v) -> concat(k, 'x')) FROM t
SELECT id, array_position(a, 2), array_position(a, 9) FROM t
SELECT id, arrays_zip(a, b), arrays_zip(a, array(id), w), arrays_zip(w), arrays_zip(n) FROM t
SELECT id, zip_with(a, b, (x, y) -> x + y), zip_with(a, w, (x, y) -> concat(x, y)) FROM t
SELECT id, zip_with(a, array(i), (x, y) -> coalesce(x, 0L) * 10 + coalesce(y, id)) FROM t
SELECT id, array_insert(a, 1, 9L), array_insert(a, 5, i), array_insert(a, INT(id), NULL) FROM t
SELECT id, array_insert(a, -1, 9L), array_insert(a, -5, i), array_insert(w, -2, t) FROM t
SELECT id, map_zip_with(m, map('k', 5L, 'q', id), (k, x, y) -> concat(k, x, '-', y)) FROM t
SELECT id, map_zip_with(m, m, (k, x, y) -> x + y + id) FROM t
SELECT id < 9, max_by(id, i, 2), min_by(i, id, 9), max_by(t, i, 1), try_sum(i) FROM t GROUP BY 1
SELECT id % 2, max_by(i, id, 1), try_sum(i), try_sum(id + 4611686018427387904) FROM t GROUP BY 1
SELECT get_json_object(j, '$.a'), get_json_object(j, '$.b'), get_json_object(j, '$[0]') FROM t
SELECT get_json_object(j, '$.b[1].c'), json_array_length(j), json_object_keys(j) FROM t
SELECT from_json(j, 'b STRING') FROM t
SELECT to_json(s), to_json(a), to_json(m) FROM t
SELECT a, count(*) FROM t GROUP BY a
SELECT s, count(*) FROM t GROUP BY s
SELECT id FROM t WHERE exists(a, x -> x > 2)
SELECT s.x, s.* FROM t
SELECT id, a = b, s = named_struct('x', 1L, 'y', 'q') FROM t
SELECT id, CAST(a AS ARRAY<STRING>), CAST(s AS STRUCT<p: STRING, q: STRING>) FROM t
SELECT DISTINCT a FROM t
SELECT x, count(*) FROM t LATERAL VIEW explode(split(t, ',')) u AS x GROUP BY x
""".strip()
    .replace("\\\n", "")
    .splitlines()
)
