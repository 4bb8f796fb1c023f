"""The cases of ``../shared/cases/join_cases.json`` that the relational core can answer.

- zset_algebra: each operation on Z-sets as the source states it. What is an operator of its own in
  its source (scale, product, index) is here a sum or a join.
- graph_count: the counts of generated graphs.
- incremental, oneshot and oneshot_sequence that are pure joins: the delta of every step equals
  ``oracle_delta_bag``; where an expected delta under set semantics is given, it follows from the
  bag by a distinct that the test makes itself.

Values are strings, keywords and integers; a plain dict gives each a code. Queries are read from
their text where the grammar knows the names, and are always built as values too.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from typing import Any

import pytest

from dbsp_wcoj import DeltaQuery, Query, WeightOverflowError, ZSet, generic_join
from dbsp_wcoj.query import Atom, Constant, Variable
from tests.generators.strategies import FORMULAS
from tests.oracles import naive
from tests.support.shared_data import cases, needs_cases

pytestmark = needs_cases

MOST = (1 << 63) - 1


class Codes:
    """Values as consecutive integers, and back; 1 and True or "1" stay apart."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self._values: list[Any] = []

    def code(self, value: Any) -> int:
        key = (type(value), value)
        if key not in self._codes:
            self._codes[key] = len(self._values)
            self._values.append(value)
        return self._codes[key]

    def row(self, values: Any) -> tuple[int, ...]:
        return tuple(self.code(value) for value in values)

    def decode(self, zset: ZSet) -> dict[tuple[Any, ...], int]:
        return {tuple(self._values[c] for c in row): weight for row, weight in zset}


def by_name(kind: str, *, pure: bool = False) -> list[Any]:
    return [
        pytest.param(case, id=case["name"])
        for case in cases(kind)
        if case.get("pure_join") or not pure
    ]


def as_weights(pairs: list[Any]) -> dict[tuple[Any, ...], int]:
    return {tuple(row): weight for row, weight in pairs}


# --- joins ---------------------------------------------------------------------------------------


def query_of(case: dict[str, Any], codes: Codes) -> Query:
    """The query of a case as values, its constants encoded."""

    def term(argument: dict[str, Any]) -> Variable | Constant:
        if "const" in argument:
            return Constant(codes.code(argument["const"]))
        return Variable(argument["var"].lstrip("?"))

    body = tuple(Atom(atom["rel"], tuple(map(term, atom["args"]))) for atom in case["where"])
    return Query("Q", tuple(found["var"].lstrip("?") for found in case["find"]), body)


def step_of(step: dict[str, Any], query: Query, codes: Codes) -> dict[str, ZSet]:
    """The deltas of a step; relations that the query does not use are left out."""
    deltas: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for change in step["deltas"]:
        if change["rel"] in query.relations:
            pair = (codes.row(change["tuple"]), change["weight"])
            deltas.setdefault(change["rel"], []).append(pair)
    return {
        name: ZSet.from_rows([row for row, _ in pairs], [weight for _, weight in pairs])
        for name, pairs in deltas.items()
    }


JOINS = [
    *by_name("incremental", pure=True),
    *by_name("oneshot", pure=True),
    *by_name("oneshot_sequence", pure=True),
]


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("case", JOINS)
def test_the_delta_of_every_step_is_the_oracles(case, formula):
    codes = Codes()
    query = query_of(case, codes)
    view = DeltaQuery(query, formula=formula)
    bag: dict[tuple[Any, ...], int] = {}
    for step in case["steps"]:
        delta = codes.decode(view.step(step_of(step, query, codes)))
        assert delta == as_weights(step["oracle_delta_bag"])
        after = naive.add(bag, delta)
        change = naive.add(distinct(after), naive.scale(distinct(bag), -1))
        assert change == as_weights(step["oracle_delta_set"])
        if step["expected_delta"] is not None:
            stated = as_weights(step["expected_delta"])
            assert stated == (change if case["semantics"] == "set" else delta)
        bag = after
        if step.get("expected_result") is not None:
            assert sorted(map(repr, distinct(bag))) == sorted(
                repr(tuple(row)) for row in step["expected_result"]
            )
    if case["expected"].get("bag") is not None:
        assert bag == as_weights(case["expected"]["bag"])


@pytest.mark.parametrize("case", JOINS)
def test_the_text_of_a_case_is_its_query(case):
    codes = Codes()
    built, parsed = query_of(case, codes), Query.parse(case["query"])
    encoded = tuple(
        Atom(
            atom.relation,
            tuple(
                Constant(codes.code(term.value)) if isinstance(term, Constant) else term
                for term in atom.terms
            ),
        )
        for atom in parsed.body
    )
    assert (parsed.head, encoded) == (built.head, built.body)


@pytest.mark.parametrize("case", JOINS)
def test_one_generic_join_of_all_changes_gives_the_bag(case):
    codes = Codes()
    query = query_of(case, codes)
    total = {name: ZSet.empty(arity) for name, arity in query.relations.items()}
    for step in case["steps"]:
        for name, delta in step_of(step, query, codes).items():
            total[name] = total[name] + delta
    for engine in ("compiled", "reference"):
        joined = codes.decode(generic_join(query, total, engine=engine))
        assert joined == as_weights(case["expected"]["bag"])


def distinct(bag: Mapping[tuple[Any, ...], int]) -> dict[tuple[Any, ...], int]:
    return {row: 1 for row, weight in bag.items() if weight > 0}


# --- generated graphs ----------------------------------------------------------------------------


def complete_bipartite(n: int) -> list[tuple[int, int]]:
    """Node i of the first half to each of the second: n nodes, (n / 2) ** 2 edges."""
    return list(itertools.product(range(n // 2), range(n // 2, n)))


GENERATORS = {"complete_bipartite": complete_bipartite}


@pytest.mark.parametrize("case", by_name("graph_count"))
def test_a_generated_graph_has_the_stated_number_of_answers(case):
    edges = GENERATORS[case["graph"]["generator"]](*case["graph"]["args"])
    assert len(edges) == case["edges"]
    query = query_of(case, Codes())
    [name] = query.relations
    assert len(generic_join(query, {name: ZSet.from_rows(edges)})) == case["expected"]["count"]
    assert len(DeltaQuery(query).step({name: ZSet.from_rows(edges)})) == case["expected"]["count"]


# --- algebra -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", by_name("zset_algebra"))
def test_the_algebra_of_zsets_is_that_of_the_source(case):
    codes = Codes()
    operation = OPERATIONS[case["op"]]
    if case["expected"] == "error":
        with pytest.raises(WeightOverflowError):
            operation(codes, *case["args"])
    else:
        assert operation(codes, *case["args"]) == case["expected"]


def made(codes: Codes, weights: Mapping[str, int]) -> ZSet:
    return ZSet.from_rows([codes.row([v]) for v in weights], list(weights.values()), arity=1)


def flat(codes: Codes, zset: ZSet) -> dict[str, int]:
    return {row[0]: weight for row, weight in codes.decode(zset).items()}


def indexed(codes: Codes, index: Mapping[str, Mapping[str, int]]) -> ZSet:
    """A Z-set of Z-sets as one of arity 2: (key, value)."""
    rows = [codes.row((key, value)) for key, part in index.items() for value in part]
    return ZSet.from_rows(rows, [w for part in index.values() for w in part.values()], arity=2)


def nested(pairs: Mapping[tuple[str, str], int], glue: str = "") -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for (key, *values), weight in pairs.items():
        result.setdefault(key, {})[glue.join(values)] = weight
    return result


def joined(codes: Codes, text: str, *views: ZSet) -> dict[tuple[Any, ...], int]:
    return codes.decode(generic_join(Query.parse(text), list(views)))


def times(codes: Codes, weights: Mapping[str, int], factor: int) -> dict[str, int]:
    """A product with the empty row of that weight."""
    scalar = ZSet.from_rows([()], [factor])
    query = Query("q", ("a",), (Atom("r", (Variable("a"),)), Atom("s", ())))
    return flat(codes, generic_join(query, [made(codes, weights), scalar]))


def concatenated(codes: Codes, left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    product = joined(codes, "q(a, b) :- r(a), s(b)", made(codes, left), made(codes, right))
    return {a + b: weight for (a, b), weight in product.items()}


def collapsed(codes: Codes, left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    product = joined(codes, "q() :- r(a), s(b)", made(codes, left), made(codes, right))
    return {"same": product[()]} if product else {}


def weight_sum(codes: Codes, first: int, second: int) -> dict[str, int]:
    """The source has 32-bit weights: its bound maps to ours, 2**63 - 1."""
    assert first == (1 << 31) - 1
    return flat(codes, made(codes, {"a": MOST}) + made(codes, {"a": second}))


def incremental_distinct(codes: Codes, deltas: list[Mapping[str, int]]) -> list[dict[str, int]]:
    """No operator of the core; stated on the integrated Z-set."""
    total, outputs = ZSet.empty(1), []
    for delta in deltas:
        before, total = total, total + made(codes, delta)
        change = ZSet.from_rows([r for r, w in total if w > 0], arity=1) - ZSet.from_rows(
            [r for r, w in before if w > 0], arity=1
        )
        outputs.append(flat(codes, change))
    return outputs


def from_collection(codes: Codes, values: list[str]) -> dict[str, int]:
    return flat(codes, ZSet.from_rows([codes.row([value]) for value in values]))


def positive(codes: Codes, weights: Mapping[str, int]) -> dict[str, int]:
    return flat(codes, ZSet.from_rows([r for r, w in made(codes, weights) if w > 0], arity=1))


def dashed(codes: Codes, left: Any, right: Any) -> dict[str, dict[str, int]]:
    text = "q(k, a, b) :- r(k, a), s(k, b)"
    return nested(joined(codes, text, indexed(codes, left), indexed(codes, right)), "-")


def deindexed(codes: Codes, index: Any) -> dict[str, int]:
    summed = joined(codes, "q(a) :- r(k, a)", indexed(codes, index))
    return {row[0]: weight for row, weight in summed.items()}


OPERATIONS = {
    "from_collection": from_collection,
    "from_map": lambda codes, weights: flat(codes, made(codes, weights)),
    "add": lambda codes, a, b: flat(codes, made(codes, a) + made(codes, b)),
    "subtract": lambda codes, a, b: flat(codes, made(codes, a) - made(codes, b)),
    "distinct": positive,
    "scale": times,
    "product_concat": concatenated,
    "product_to_same": collapsed,
    "weight_add": weight_sum,
    "incremental_distinct": incremental_distinct,
    "indexed_negate": lambda codes, index: nested(codes.decode(-indexed(codes, index))),
    "indexed_join_dash": dashed,
    "deindex": deindexed,
}
