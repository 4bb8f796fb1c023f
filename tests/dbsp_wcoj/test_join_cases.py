"""The cases of ``../shared/cases/join_cases.json`` that the relational core can answer.

- zset_algebra: operations on Z-sets. Those that are operators of their own in the source of the
  cases (scale, product, index) are sums or joins here.
- graph_count: the counts of generated graphs.
- incremental, oneshot and oneshot_sequence, if they are pure joins: the delta of each step equals
  ``oracle_delta_bag``. If a case has an expected delta of sets, the test computes it from the bag.

Values are strings, keywords and integers, which `Codes` encodes as integers. Queries are built from
the parts of a case; their texts must parse to the same queries.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from typing import Any

import pytest

from dbsp_wcoj import DeltaQuery, Query, WeightOverflowError, ZSet, generic_join
from dbsp_wcoj.query import Atom, Constant, Variable
from dbsp_wcoj.zset import MAX_INT64
from tests.generators.strategies import FORMULAS
from tests.oracles import naive
from tests.support.shared_data import cases, needs_cases

pytestmark = needs_cases


class Codes:
    """Encodes values as consecutive integers; 1, True and "1" have different codes."""

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
        return {tuple(self._values[code] for code in row): weight for row, weight in zset}


def case_parameters(kind: str, *, pure: bool = False) -> list[Any]:
    """Return the cases of a kind as parameters; with ``pure`` only those that are pure joins."""
    return [
        pytest.param(case, id=case["name"])
        for case in cases(kind)
        if case.get("pure_join") or not pure
    ]


def as_weights(pairs: list[Any]) -> dict[tuple[Any, ...], int]:
    return {tuple(row): weight for row, weight in pairs}


# --- joins ---------------------------------------------------------------------------------------


def build_query(case: dict[str, Any], codes: Codes) -> Query:
    """Build the query of a case, with encoded constants."""

    def term(argument: dict[str, Any]) -> Variable | Constant:
        if "const" in argument:
            return Constant(codes.code(argument["const"]))
        return Variable(argument["var"].lstrip("?"))

    body = tuple(Atom(atom["rel"], tuple(map(term, atom["args"]))) for atom in case["where"])
    return Query("Q", tuple(column["var"].lstrip("?") for column in case["find"]), body)


def build_deltas(step: dict[str, Any], query: Query, codes: Codes) -> dict[str, ZSet]:
    """Build the deltas of a step for the relations that the query uses."""
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
    *case_parameters("incremental", pure=True),
    *case_parameters("oneshot", pure=True),
    *case_parameters("oneshot_sequence", pure=True),
]


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("case", JOINS)
def test_the_delta_of_every_step_is_that_of_the_oracle(case, formula):
    codes = Codes()
    query = build_query(case, codes)
    view = DeltaQuery(query, formula=formula)
    bag: dict[tuple[Any, ...], int] = {}
    for step in case["steps"]:
        delta = codes.decode(view.step(build_deltas(step, query, codes)))
        assert delta == as_weights(step["oracle_delta_bag"])
        new_bag = naive.add(bag, delta)
        change = naive.add(distinct(new_bag), naive.scale(distinct(bag), -1))
        assert change == as_weights(step["oracle_delta_set"])
        if step["expected_delta"] is not None:
            expected_delta = as_weights(step["expected_delta"])
            assert expected_delta == (change if case["semantics"] == "set" else delta)
        bag = new_bag
        if step.get("expected_result") is not None:
            assert sorted(map(repr, distinct(bag))) == sorted(
                repr(tuple(row)) for row in step["expected_result"]
            )
    if case["expected"].get("bag") is not None:
        assert bag == as_weights(case["expected"]["bag"])


@pytest.mark.parametrize("case", JOINS)
def test_the_text_of_a_case_is_its_query(case):
    codes = Codes()
    built, parsed = build_query(case, codes), Query.parse(case["query"])
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
    query = build_query(case, codes)
    total = {name: ZSet.empty(arity) for name, arity in query.relations.items()}
    for step in case["steps"]:
        for name, delta in build_deltas(step, query, codes).items():
            total[name] = total[name] + delta
    for engine in ("compiled", "reference"):
        joined = codes.decode(generic_join(query, total, engine=engine))
        assert joined == as_weights(case["expected"]["bag"])


def distinct(bag: Mapping[tuple[Any, ...], int]) -> dict[tuple[Any, ...], int]:
    return {row: 1 for row, weight in bag.items() if weight > 0}


# --- generated graphs ----------------------------------------------------------------------------


def complete_bipartite(n: int) -> list[tuple[int, int]]:
    """Return the edges from each of the first n / 2 nodes to each of the other n / 2."""
    return list(itertools.product(range(n // 2), range(n // 2, n)))


GENERATORS = {"complete_bipartite": complete_bipartite}


@pytest.mark.parametrize("case", case_parameters("graph_count"))
def test_a_generated_graph_has_the_expected_number_of_rows(case):
    edges = GENERATORS[case["graph"]["generator"]](*case["graph"]["args"])
    assert len(edges) == case["edges"]
    query = build_query(case, Codes())
    [name] = query.relations
    assert len(generic_join(query, {name: ZSet.from_rows(edges)})) == case["expected"]["count"]
    assert len(DeltaQuery(query).step({name: ZSet.from_rows(edges)})) == case["expected"]["count"]


# --- algebra -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", case_parameters("zset_algebra"))
def test_operations_on_zsets_have_the_expected_results(case):
    codes = Codes()
    operation = OPERATIONS[case["op"]]
    if case["expected"] == "error":
        with pytest.raises(WeightOverflowError):
            operation(codes, *case["args"])
    else:
        assert operation(codes, *case["args"]) == case["expected"]


def encode(codes: Codes, weights: Mapping[str, int]) -> ZSet:
    return ZSet.from_rows(
        [codes.row([value]) for value in weights], list(weights.values()), arity=1
    )


def decode(codes: Codes, zset: ZSet) -> dict[str, int]:
    return {row[0]: weight for row, weight in codes.decode(zset).items()}


def encode_index(codes: Codes, index: Mapping[str, Mapping[str, int]]) -> ZSet:
    """Encode a Z-set of Z-sets as one of arity 2: (key, value)."""
    rows = [codes.row((key, value)) for key, part in index.items() for value in part]
    return ZSet.from_rows(rows, [w for part in index.values() for w in part.values()], arity=2)


def group_by_key(
    pairs: Mapping[tuple[str, str], int], separator: str = ""
) -> dict[str, dict[str, int]]:
    """Return the weights by key and by the other values, which are concatenated."""
    result: dict[str, dict[str, int]] = {}
    for (key, *values), weight in pairs.items():
        result.setdefault(key, {})[separator.join(values)] = weight
    return result


def join(codes: Codes, text: str, *relations: ZSet) -> dict[tuple[Any, ...], int]:
    return codes.decode(generic_join(Query.parse(text), list(relations)))


def scale(codes: Codes, weights: Mapping[str, int], factor: int) -> dict[str, int]:
    """Join with a relation of the empty row, whose weight is the factor."""
    scalar = ZSet.from_rows([()], [factor])
    query = Query("q", ("a",), (Atom("r", (Variable("a"),)), Atom("s", ())))
    return decode(codes, generic_join(query, [encode(codes, weights), scalar]))


def concatenate_rows(
    codes: Codes, left: Mapping[str, int], right: Mapping[str, int]
) -> dict[str, int]:
    product = join(codes, "q(a, b) :- r(a), s(b)", encode(codes, left), encode(codes, right))
    return {a + b: weight for (a, b), weight in product.items()}


def product_without_columns(
    codes: Codes, left: Mapping[str, int], right: Mapping[str, int]
) -> dict[str, int]:
    product = join(codes, "q() :- r(a), s(b)", encode(codes, left), encode(codes, right))
    return {"same": product[()]} if product else {}


def weight_sum(codes: Codes, first: int, second: int) -> dict[str, int]:
    """Add weights; the largest 32-bit weight of the case becomes the largest 64-bit weight."""
    assert first == (1 << 31) - 1
    return decode(codes, encode(codes, {"a": MAX_INT64}) + encode(codes, {"a": second}))


def incremental_distinct(codes: Codes, deltas: list[Mapping[str, int]]) -> list[dict[str, int]]:
    """Compute the deltas of a distinct, which is no operator of the core, from the sums."""
    total, outputs = ZSet.empty(1), []
    for delta in deltas:
        previous, total = total, total + encode(codes, delta)
        change = positive_rows(total) - positive_rows(previous)
        outputs.append(decode(codes, change))
    return outputs


def from_collection(codes: Codes, values: list[str]) -> dict[str, int]:
    return decode(codes, ZSet.from_rows([codes.row([value]) for value in values]))


def positive_rows(zset: ZSet) -> ZSet:
    """Return the rows of positive weight, each with weight 1."""
    return ZSet.from_rows([row for row, weight in zset if weight > 0], arity=1)


def join_indexes(codes: Codes, left: Any, right: Any) -> dict[str, dict[str, int]]:
    text = "q(k, a, b) :- r(k, a), s(k, b)"
    return group_by_key(
        join(codes, text, encode_index(codes, left), encode_index(codes, right)), "-"
    )


def drop_keys(codes: Codes, index: Any) -> dict[str, int]:
    summed = join(codes, "q(a) :- r(k, a)", encode_index(codes, index))
    return {row[0]: weight for row, weight in summed.items()}


OPERATIONS = {
    "from_collection": from_collection,
    "from_map": lambda codes, weights: decode(codes, encode(codes, weights)),
    "add": lambda codes, a, b: decode(codes, encode(codes, a) + encode(codes, b)),
    "subtract": lambda codes, a, b: decode(codes, encode(codes, a) - encode(codes, b)),
    "distinct": lambda codes, weights: decode(codes, positive_rows(encode(codes, weights))),
    "scale": scale,
    "product_concat": concatenate_rows,
    "product_to_same": product_without_columns,
    "weight_add": weight_sum,
    "incremental_distinct": incremental_distinct,
    "indexed_negate": lambda codes, index: group_by_key(codes.decode(-encode_index(codes, index))),
    "indexed_join_dash": join_indexes,
    "deindex": drop_keys,
}
