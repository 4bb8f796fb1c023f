"""Expected shapes of rewritten plans: one join, and what is below, inside and above it.

These shapes make the plans fast. `tests.circuits.test_circuit_laws` checks that a rewritten plan
has the rows of the plan.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits.datalog import plan_datalog
from circuits.plan.expression_text import label
from circuits.plan.nodes import (
    Aggregate,
    Distinct,
    Field,
    Filter,
    Map,
    Negate,
    PlanNode,
    Positive,
    Scan,
    TopK,
    Union,
    Values,
)
from circuits.plan.physical_nodes import (
    FinalAggregate,
    Join,
    NumberedTopK,
    PartialAggregate,
    RowIdDecode,
    RowIdEncode,
)
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.window import Window
from circuits.sql import plan_sql

INT, TEXT = pa.int64(), pa.string()


def fields(*names: str, type: pa.DataType = INT, nullable: bool = False) -> tuple[Field, ...]:
    return tuple(Field(name, type, nullable) for name in names)


RELATIONS = {
    "e": fields("src", "dst"),
    "m": fields("node"),
    "wide": (*fields("id", "ref"), *fields("name", "city", "note", type=TEXT, nullable=True)),
    "ten": fields("id", "ref", "p", "q", "r", "s", "t", "u", "v", "w"),
    "loose": fields("a", "b", nullable=True),
    "words": (*fields("w"), *fields("one", "other", type=TEXT)),
}


def names(plan: PlanNode) -> list[str]:
    return [field.name for field in plan.fields]


def shape(plan: PlanNode) -> str:
    """Write a plan in one line: a join as its inputs with their variables, ``->`` and the head."""
    match plan:
        case Scan(relation):
            return relation
        case Values(_, rows):
            return f"values{len(rows)}"
        case Filter(below, predicate):
            return f"{shape(below)}[{label(predicate, names(below))}]"
        case Map(below, expressions):
            return f"{shape(below)}.({', '.join(label(e, names(below)) for e in expressions)})"
        case Join(inputs, variables, comparisons, head):
            letters = "abcdefghijklmnopqrstuvwxyz"
            atoms = [
                f"{shape(p)}({''.join(letters[v] for v in bound)})"
                for p, bound in zip(inputs, variables, strict=True)
            ]
            atoms += [f"{letters[c.left]}{c.op}{letters[c.right]}" for c in comparisons]
            return f"join<{' '.join(atoms)} -> {''.join(letters[v] for v in head)}>"
        case Union(inputs):
            return " + ".join(map(shape, inputs)).replace("+ -", "- ")
        case Negate(below):
            return f"-{shape(below)}"
        case RowIdEncode(below, kept):
            return f"encode{kept}<{shape(below)}>"
        case RowIdDecode(below):
            return f"decode<{shape(below)}>"
        case Distinct(below):
            return f"set<{shape(below)}>"
        case Positive(below):
            return f"bag<{shape(below)}>"
        case Aggregate(below, keys, calls):
            return f"agg{len(keys)}<{shape(below)} {' '.join(c.function for c in calls)}>"
        case PartialAggregate(below, kept, calls):
            return f"partial{kept}<{shape(below)} {' '.join(c.function for c in calls)}>"
        case FinalAggregate(below, keys):
            return f"final{keys}<{shape(below)}>"
        case NumberedTopK(below, keys):
            return f"numbered{len(keys)}<{shape(below)}>"
        case Window(below, _, _, calls):
            return f"window<{shape(below)} {' '.join(c.function for c in calls)}>"
        case TopK(below, keys):
            return f"top{len(keys)}<{shape(below)}>"
    raise AssertionError(plan)


def sql(query: str) -> str:
    return shape(rewrite_plan(plan_sql(query, RELATIONS)["view"]))


def datalog(rule: str) -> str:
    plans = plan_datalog(rule, RELATIONS)
    return shape(rewrite_plan(list(plans.values())[-1]))


NESTED = """
    SELECT t.a, z.dst FROM (SELECT x.src AS a, y.dst AS b FROM e x JOIN e y ON y.src = x.dst) t
    JOIN e z ON z.src = t.b
"""
TWO_BY_TWO = """
    WITH two AS (SELECT x.src, y.dst FROM e x JOIN e y ON y.src = x.dst)
    SELECT count(*) FROM two p JOIN two q ON q.src = p.dst AND q.dst = p.src
"""
OPEN_PATHS = """
    FROM e x JOIN e y ON y.src = x.dst
    WHERE NOT EXISTS (SELECT 1 FROM e z WHERE z.src = x.src AND z.dst = y.dst)
"""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT count(*) FROM e x JOIN e y ON y.src = x.dst "
            "JOIN e z ON z.src = x.src AND z.dst = y.dst",
            "agg0<join<e(ab) e(bc) e(ac) -> > count>",
        ),
        (
            "SELECT x.src, z.dst FROM e x, e y, e z WHERE x.dst = y.src AND y.dst = z.src",
            "join<e(ab) e(bc) e(cd) -> ad>",
        ),
        (NESTED, "join<e(ab) e(bc) e(cd) -> ad>"),
        (TWO_BY_TWO, "agg0<join<e(ab) e(bc) e(cd) e(da) -> > count>"),
        ("SELECT src FROM e, m", "join<e.(src)(a) m.()() -> a>"),
    ],
)
def test_the_joins_of_a_select_and_of_its_nested_queries_are_one_join(query, expected):
    assert sql(query) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (
            "y.src = x.dst AND x.src > 3 AND y.dst + 1 = 7",
            "join<e[src > 3](ab) e[dst + 1 = 7].(src)(b) -> a>",
        ),
        ("y.src = x.dst AND x.src < y.dst", "join<e(ab) e(bc) a<c -> a>"),
        ("y.src = x.dst AND y.dst <> x.src", "join<e(ab) e(bc) c!=a -> a>"),
        (
            "y.src = x.dst AND x.src < y.dst + 1",
            "join<e(ab) e[dst + 1 is not null].(src, dst + 1)(bc) a<c -> a>",
        ),
        (
            "x.src + x.dst = y.dst",
            "join<e[src + dst is not null].(src, src + dst)(ab) e.(dst)(b) -> a>",
        ),
        (
            "y.src = x.dst AND x.src + y.dst = 7",
            "join<e(ab) e(bc) -> ac>[src + dst = 7].(src)",
        ),
    ],
)
def test_conditions_are_below_the_join_or_in_it_and_only_else_above(condition, expected):
    assert sql(f"SELECT x.src FROM e x JOIN e y ON {condition}") == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("y.one = x.other", "join<words.(w, other)(ab) words.(one)(b) -> a>"),
        (
            "y.w = x.w AND x.one <> y.other",
            "join<words.(w, one)(ab) words.(w, other)(ac) b!=c -> a>",
        ),
        (
            "y.w = x.w AND x.one < y.other",
            "join<words.(w, one)(ab) words.(w, other)(ac) -> abc>[one < other].(w)",
        ),
    ],
)
def test_texts_are_equal_or_not_in_the_join_and_ordered_above(condition, expected):
    assert sql(f"SELECT x.w FROM words x JOIN words y ON {condition}") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT x.a FROM loose x JOIN loose y ON y.a = x.b",
            "join<loose[b is not null](ab) loose[a is not null].(a)(b) -> a>",
        ),
        (
            "SELECT x.a FROM loose x JOIN loose y ON y.a IS NOT DISTINCT FROM x.b",
            "join<loose(ab) loose.(a)(b) -> a>",
        ),
        (
            "SELECT x.a FROM (SELECT DISTINCT a, b FROM loose WHERE a <> b) x JOIN m ON node = x.b",
            "join<set<loose[a <> b]>(ab) m(b) -> a>",
        ),
        (
            "SELECT src FROM e WHERE EXISTS (SELECT 1 FROM loose WHERE a = dst)",
            "join<e(ab) set<loose[a is not null].(a)>(b) -> a>",
        ),
    ],
)
def test_null_is_checked_only_where_it_can_occur(query, expected):
    assert sql(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT src FROM e WHERE EXISTS (SELECT 1 FROM m WHERE node = dst)",
            "join<e(ab) set<m>(b) -> a>",
        ),
        (
            "SELECT src FROM e WHERE dst IN (SELECT node FROM m WHERE node > 5)",
            "join<e(ab) set<m[node > 5]>(b) -> a>",
        ),
        (
            "SELECT x.src FROM e x JOIN e y ON y.src = x.dst "
            "WHERE EXISTS (SELECT 1 FROM m WHERE node = y.dst)",
            "join<e(ab) e(bc) set<m>(c) -> a>",
        ),
    ],
)
def test_exists_adds_an_atom(query, expected):
    assert sql(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT src FROM e WHERE NOT EXISTS (SELECT 1 FROM m WHERE node = dst)",
            "e.(src) - join<e(ab) set<m>(b) -> a>",
        ),
        (
            "SELECT count(*) FROM e WHERE NOT EXISTS (SELECT 1 FROM m WHERE node = dst)",
            "agg0<e.() - join<e.(dst)(a) set<m>(a) -> > count>",
        ),
        (
            f"SELECT x.src {OPEN_PATHS}",
            "join<e(ab) e(bc) -> a> - join<e(ab) e(bc) set<e>(ac) -> a>",
        ),
        (
            f"SELECT count(*) {OPEN_PATHS}",
            "agg0<join<e(ab) e(bc) -> > - join<e(ab) e(bc) set<e>(ac) -> > count>",
        ),
        (
            "SELECT src FROM e WHERE dst NOT IN (SELECT node FROM m) "
            "AND NOT EXISTS (SELECT 1 FROM m WHERE node = src)",
            "e.(src) - join<e(ab) set<m>(b) -> ab>.(src)"
            " - join<e - join<e(ab) set<m>(b) -> ab>(ab) set<m>(a) -> a>",
        ),
        (
            "SELECT src FROM e LEFT JOIN m ON node = dst WHERE node IS NULL",
            "e.(src) - join<e(ab) set<m>(b) -> a>",
        ),
    ],
)
def test_not_exists_subtracts_and_lists_no_more_columns_than_selected(query, expected):
    assert sql(query) == expected


def test_an_outer_join_is_a_join_with_the_right_side_padded_for_keys_without_partner():
    missing = "set<e.(dst)>.(dst, NULL) - join<set<e.(dst)>(a) set<m>(a) -> a>.(dst, NULL)"
    assert (
        sql("SELECT src, node FROM e LEFT JOIN m ON node = dst")
        == f"join<e(ab) m.(node, node) + {missing}(bc) -> ac>"
    )
    assert (
        sql("SELECT count(*) FROM e LEFT JOIN m ON node = dst")
        == "agg0<join<e.(dst)(a) m + set<e.(dst)>"
        " - join<set<e.(dst)>(a) set<m>(a) -> a>(a) -> > count>"
    )
    alone = "m.(NULL, NULL, node) - join<m(a) set<e.(dst)>(a) -> a>.(NULL, NULL, node)"
    assert (
        sql("SELECT * FROM e FULL JOIN m ON node = dst")
        == f"join<e(ab) m.(node, node) + {missing}(bc) -> abc> + {alone}"
    )


def test_a_scalar_subquery_and_its_keys_read_one_aggregate():
    plan_shape = sql("SELECT src, (SELECT count(*) FROM m WHERE node = dst) AS n FROM e")
    assert plan_shape.count("agg1<m count>") == plan_shape.count("agg") == 2


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT name, city, note, dst FROM wide JOIN e ON src = id",
            "decode<join<encode1<wide.(id, name, city, note)>(ab) e(ac) -> bc>>",
        ),
        (
            "SELECT v.name AS a, w.name AS b, v.city AS c, w.city AS d "
            "FROM wide v JOIN wide w ON w.id = v.ref",
            "decode<join<encode1<wide.(ref, name, city)>(ab) encode1<wide.(id, name, city)>(ac)"
            " -> bc>>.(name, name_2, city, city_2)",
        ),
        (
            "SELECT upper(name) AS n, city FROM wide JOIN e ON src = id",
            "decode<join<encode1<wide.(id, name, city)>(ab) e.(src)(a) -> b>>.(upper(name), city)",
        ),
        ("SELECT name, dst FROM wide JOIN e ON src = id", "join<wide.(id, name)(ab) e(ac) -> bc>"),
        (
            "SELECT count(*) FROM wide w JOIN wide v ON v.id = w.ref",
            "agg0<join<wide.(ref)(a) wide.(id)(a) -> > count>",
        ),
    ],
)
def test_columns_that_are_only_carried_are_one_row_id_and_those_not_read_are_dropped(
    query, expected
):
    assert sql(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # The columns that are joined or compared come first, although they are declared later.
        (
            "SELECT id, p, q FROM ten JOIN e ON src = ref AND dst > w",
            "join<ten.(ref, w, id, p, q)(abcde) e(af) f>b -> cde>",
        ),
        (
            "SELECT p, q, r, s, t, u, v FROM ten JOIN e ON src = id AND dst > w",
            "join<ten.(id, w, p, q, r, s, t, u, v)(abcdefghi) e(aj) j>b -> cdefghi>",
        ),
        (
            "SELECT ref, p, q, r, s, t, u, v FROM ten JOIN e ON src = id AND dst > w",
            "decode<join<encode2<ten.(id, w, ref, p, q, r, s, t, u, v)>(abc) e(ad) d>b -> c>>",
        ),
        # Two column orders would repeat the columns.
        (
            "SELECT p, q, r, s, t FROM ten JOIN m ON node = id JOIN e ON src = ref AND dst > w",
            "decode<join<encode3<ten.(id, ref, w, p, q, r, s, t)>(abcd) m(a) e(be) e>c -> d>>",
        ),
    ],
)
def test_in_joins_with_comparisons_a_row_id_replaces_many_columns_only(query, expected):
    assert sql(query) == expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("count(*)", "agg1<join<wide.(id, city)(ab) e.(src)(a) -> b> count>"),
        ("sum(dst)", "final1<join<wide.(id, city)(ab) partial1<e sum>(ac) -> bc>>"),
        ("max(dst)", "agg1<join<wide.(id, city)(ab) e(ac) -> bc> max>"),
    ],
)
def test_counts_and_sums_over_a_join_list_no_more_than_keys(result, expected):
    query = f"SELECT city, {result} FROM wide JOIN e ON src = id GROUP BY city"
    assert sql(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT a FROM (SELECT src AS a, dst AS b FROM e UNION ALL SELECT dst, src FROM e) t "
            "WHERE b > 3",
            "e[dst > 3].(src) + e[src > 3].(dst)",
        ),
        (
            "SELECT a FROM (SELECT src + 1 AS a, dst FROM e) t WHERE dst > 3 AND a > 0",
            "e[dst > 3][src + 1 > 0].(src + 1)",
        ),
        ("SELECT src, dst FROM e", "e"),
        ("SELECT src AS dst, dst AS src FROM e", "e"),
        ("SELECT src, dst FROM e ORDER BY dst LIMIT 2", "top0<e>"),
        (
            "SELECT src FROM e EXCEPT ALL SELECT node FROM m",
            "bag<e.(src) - m>",
        ),
    ],
)
def test_filters_and_maps_are_pushed_down_and_maps_that_change_nothing_are_dropped(query, expected):
    assert sql(query) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("t(a, b, c) :- e(a, b), e(b, c), e(c, a).", "set<join<e(ab) e(bc) e(ca) -> abc>>"),
        ("t(a) :- e(a, a).", "set<e[src = dst].(src)>"),
        ("t(a) :- e(a, 7).", "set<e[dst = 7].(src)>"),
        ("t(a) :- e(a, _), m(a).", "set<join<e.(src)(a) m(a) -> a>>"),
        ("t(a) :- e(a, b), not m(b).", "set<e.(src) - join<e(ab) set<m>(b) -> a>>"),
        (
            "t(a) :- e(a, b), e(b, c), not e(a, c).",
            "set<join<e(ab) e(bc) -> a> - join<e(ab) e(bc) set<e>(ac) -> a>>",
        ),
        ("t(a) :- or(m(a), e(a, b)).", "set<m + e.(src)>"),
        ("t(a) :- e(a, b), e(b, c), a < c.", "set<join<e(ab) e(bc) a<c -> a>>"),
    ],
)
def test_a_rule_is_one_join_as_a_select_is(rule, expected):
    assert datalog(rule) == expected


def test_a_rewritten_plan_has_the_types_of_the_plan_and_is_not_rewritten_further():
    for query in (
        NESTED,
        TWO_BY_TWO,
        f"SELECT x.src {OPEN_PATHS}",
        "SELECT * FROM wide LEFT JOIN m ON node = id",
    ):
        plan = plan_sql(query, RELATIONS)["view"]
        rewritten = rewrite_plan(plan)
        assert [f.type for f in rewritten.fields] == [f.type for f in plan.fields]
        assert shape(rewrite_plan(rewritten)) == shape(rewritten)


NUMBERED_ROWS = """
    (SELECT src, dst, row_number() OVER (PARTITION BY src ORDER BY dst) AS n FROM e) q
"""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # The rows of a TopK are numbered by the same node, ...
        (f"SELECT src, n FROM {NUMBERED_ROWS} WHERE n <= 2", "numbered1<e.(src, dst, 0)>"),
        # ... before other conditions, so that several readers share it; ...
        (
            f"SELECT src, n FROM {NUMBERED_ROWS} WHERE n <= 2 AND src < 5",
            "numbered1<e.(src, dst, 0)>[src < 5]",
        ),
        # ... and not if the number is not selected, or if nothing bounds it.
        (f"SELECT src, dst FROM {NUMBERED_ROWS} WHERE n <= 2", "top1<e.(src, dst, 0)>"),
        (f"SELECT src, n FROM {NUMBERED_ROWS} WHERE n >= 2", "window<e row_number>"),
    ],
)
def test_the_first_rows_of_groups_are_numbered_by_the_node_that_reads_them(query, expected):
    assert expected in sql(query)
