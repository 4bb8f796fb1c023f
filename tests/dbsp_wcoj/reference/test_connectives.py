"""Or, and, not and conditions as prefix extenders, alone and inside the join."""

import math
import operator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj.errors import ArityError, ColumnTypeError, UnsafeVariableError, VariableOrderError
from dbsp_wcoj.query import Comparison, Constant, Query, Variable
from dbsp_wcoj.reference.connectives import And, Filter, Not, Or
from dbsp_wcoj.reference.extenders import RelationExtender
from dbsp_wcoj.reference.join import solve
from tests.support.shared_data import cases, needs_cases

LEVELS, DOMAIN = 3, (0, 1, 2)
ROWS = st.sets(st.tuples(*[st.sampled_from(DOMAIN)] * 2), max_size=6)
RELATION = st.tuples(st.just("relation"), ROWS, st.permutations(range(LEVELS)).map(lambda p: p[:2]))
FILTER = st.tuples(
    st.just("filter"), st.just(None), st.permutations(range(LEVELS)).map(lambda p: p[:2])
)
EVERYTHING = [RelationExtender([(value,) for value in DOMAIN], [level]) for level in range(LEVELS)]


def trees(leaves):
    """Generate nested formulas over a few relations and conditions."""
    return st.recursive(
        leaves,
        lambda child: st.tuples(
            st.sampled_from(["or", "and", "not"]), st.lists(child, min_size=1, max_size=3)
        ),
        max_leaves=6,
    )


def build_extender(tree):
    match tree:
        case ("relation", rows, levels):
            return RelationExtender(rows, levels)
        case ("filter", _, levels):
            return Filter(tuple(levels), operator.lt)
        case (connective, children):
            connective_class = {"or": Or, "and": And, "not": Not}[connective]
            return connective_class([build_extender(child) for child in children])


def holds(tree, row):
    """Return whether a formula is true of a row, by the definition of the connectives."""
    match tree:
        case ("relation", rows, levels):
            return tuple(row[level] for level in levels) in rows
        case ("filter", _, (left, right)):
            return row[left] < row[right]
        case ("or", children):
            return any(holds(child, row) for child in children)
        case ("and", children):
            return all(holds(child, row) for child in children)
        case ("not", children):
            return not all(holds(child, row) for child in children)


@given(trees(st.one_of(RELATION, FILTER)))
def test_nested_connectives_follow_the_rules_of_logic(tree):
    """Other extenders bind all variables, so every formula is safe."""
    answer = list(solve([*EVERYTHING, build_extender(tree)], LEVELS))

    assert len(answer) == len(set(answer))
    assert set(answer) == {row for row in product(DOMAIN, repeat=LEVELS) if holds(tree, row)}


@given(
    st.lists(trees(RELATION).filter(lambda tree: "not" not in repr(tree)), min_size=1, max_size=3)
)
def test_a_union_proposes_if_each_branch_binds_all_variables(alternatives):
    """Each branch is joined with all pairs of values, so it binds all variables."""
    all_pairs = (
        ("relation", set(product(DOMAIN, repeat=2)), (0, 1)),
        ("relation", set(product(DOMAIN, repeat=2)), (1, 2)),
    )
    tree = ("or", [("and", [alternative, *all_pairs]) for alternative in alternatives])

    answer = set(solve([build_extender(tree)], LEVELS))

    assert answer == {row for row in product(DOMAIN, repeat=LEVELS) if holds(tree, row)}


def test_a_branch_extends_only_prefixes_that_satisfy_it():
    """or(and(p(x), q(y)), r(x, y)): the values of q must not extend those of r."""
    p, q = RelationExtender([(1,)], [0]), RelationExtender([(5,)], [1])
    r = RelationExtender([(2, 6)], [0, 1])

    assert list(solve([Or([And([p, q]), r])], 2)) == [(1, 5), (2, 6)]


def test_a_negated_branch_restricts_only_its_last_variable():
    """or(not r(x, y), s(x, y)) does not restrict x."""
    r, s = RelationExtender([(0, 0)], [0, 1]), RelationExtender([(1, 1)], [0, 1])
    domain = [RelationExtender([(0,), (1,)], [level]) for level in (0, 1)]

    answer = set(solve([*domain, Or([Not([r]), s])], 2))

    assert answer == {(0, 1), (1, 0), (1, 1)}


def test_not_and_filter_never_propose():
    for condition in (Not([RelationExtender([(1,)], [0])]), Filter((0,), bool)):
        assert condition.count(()) == math.inf
        with pytest.raises(
            UnsafeVariableError, match="level 0 meets only conditions and negations"
        ):
            condition.propose(())
        with pytest.raises(UnsafeVariableError):
            list(solve([condition], 1))


def test_a_variable_that_one_branch_leaves_open_is_unsafe():
    open_branch = Or([RelationExtender([(1, 2)], [0, 1]), RelationExtender([(3,)], [0])])

    with pytest.raises(UnsafeVariableError, match="level 1"):
        list(solve([open_branch], 2))


def test_not_participates_in_the_level_of_its_last_variable():
    negation = Not([RelationExtender([(1,)], [3]), RelationExtender([(1, 2)], [0, 2])])

    assert negation.levels == (3,)
    assert [negation.participates(level) for level in range(5)] == [False] * 3 + [True, False]


@pytest.mark.parametrize("connective", [Or, And, Not])
def test_a_connective_without_children_is_refused(connective):
    with pytest.raises(ArityError, match=f"{connective.__name__} has 0 children"):
        connective([])


def test_a_filter_calls_its_predicate_with_values_in_parameter_order():
    condition = Filter((2, 0), lambda c, a: (c, a) == ("c", "a"))

    assert condition.levels == (2,)
    assert condition.intersect(("a", "b"), ["c", "d"]) == ["c"]


def test_a_comparison_of_values_without_an_order_says_so():
    comparison = Comparison(Variable("a"), "<", Constant("x"))

    with pytest.raises(ColumnTypeError, match="'a < \"x\"' meets 3 and 'x', which have no order"):
        Filter.for_comparison(comparison, ["a"]).intersect((), [3])
    with pytest.raises(VariableOrderError, match="not all in the order"):
        Filter.for_comparison(comparison, ["b"])


@needs_cases
@pytest.mark.parametrize("case", cases("prefix_extender"), ids=lambda case: case["name"])
def test_the_shared_cases_of_single_extenders(case):
    union = Or(
        [RelationExtender(map(tuple, r["tuples"]), range(r["arity"])) for r in case["union_of"]]
    )

    for call in case["calls"]:
        match call["op"]:
            case "count":
                assert len(union.propose(call["prefix"])) <= union.count(call["prefix"])
                assert union.count(call["prefix"]) == call["expected"]
            case "propose":
                assert sorted(union.propose(call["prefix"])) == call["expected_set"]
            case "intersect":
                allowed = union.intersect(call["prefix"], call["extensions"])
                assert sorted(allowed) == call["expected_set"]


class Function:
    """``y := f(x, …)`` as an extender that proposes one value: any protocol member may join."""

    def __init__(self, function, arguments, level):
        self.function, self.arguments, self.levels = function, arguments, (level,)

    def participates(self, level):
        return level in self.levels

    def count(self, prefix):
        return 1

    def propose(self, prefix):
        return [self.function(*(argument(prefix) for argument in self.arguments))]

    def intersect(self, prefix, extensions):
        return [extension for extension in extensions if extension in self.propose(prefix)]


PREDICATES = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "number?": lambda value: isinstance(value, (int, float)),
    "string?": lambda value: isinstance(value, str),
    "sum-even?": lambda a, b: (a + b) % 2 == 0,
}
FUNCTIONS = {"quot": operator.floordiv, "*": operator.mul, "+": operator.add}


def clause_extender(clause, order, relations):
    """Build the extender of a clause of a shared case."""
    match clause:
        case {"or": children} | {"and": children} | {"not": children}:
            connective_class = {"or": Or, "and": And, "not": Not}[next(iter(clause))]
            return connective_class(
                [clause_extender(child, order, relations) for child in children]
            )
        case {"rel": name, "args": arguments}:
            terms = ", ".join(map(term_text, arguments))
            atom = Query.parse(f"q() :- {name}({terms})").body[0]
            return RelationExtender.for_atom(atom, dict.fromkeys(relations[name], 1), order)
        case {"pred": "re-find", "args": [{"regex": pattern}, {"var": name}]}:
            return Filter((order.index(strip_mark(name)),), lambda value: pattern in value)
        case {"pred": name, "args": arguments}:
            levels = tuple(order.index(strip_mark(a["var"])) for a in arguments if "var" in a)
            constants = [a["const"] for a in arguments if "const" in a]
            return Filter(levels, lambda *values: PREDICATES[name](*values, *constants))
        case {"fn": name, "args": arguments, "out": out}:
            readers = [value_reader(argument, order) for argument in arguments]
            return Function(FUNCTIONS[name], readers, order.index(strip_mark(out)))


def strip_mark(name):
    """Return the name of a variable without its question mark."""
    return name.removeprefix("?")


def term_text(argument):
    return (
        f"?{strip_mark(argument['var'])}" if "var" in argument else str(Constant(argument["const"]))
    )


def value_reader(argument, order):
    """Return a function that reads the value of an argument in a prefix."""
    if "const" in argument:
        return lambda prefix: argument["const"]
    return lambda prefix: prefix[order.index(strip_mark(argument["var"]))]


def clause_variables(clause):
    """Return the variables of a clause; the result of a function follows its arguments."""
    match clause:
        case {"or": children} | {"and": children} | {"not": children}:
            return [name for child in children for name in clause_variables(child)]
        case {"fn": _, "args": arguments, "out": out}:
            return [strip_mark(a["var"]) for a in arguments if "var" in a] + [strip_mark(out)]
        case {"args": arguments}:
            return [strip_mark(a["var"]) for a in arguments if "var" in a]


def variable_order(case):
    """Return the variables of a case; those that functions compute are last."""
    functions = [clause for clause in case["where"] if "fn" in clause]
    results = {strip_mark(clause["out"]) for clause in functions}
    names = [name for clause in case["where"] for name in clause_variables(clause)]
    return [*dict.fromkeys(name for name in names if name not in results), *sorted(results)]


@needs_cases
@pytest.mark.parametrize(
    "case", cases("oneshot", "oneshot_sequence", "incremental"), ids=lambda case: case["name"]
)
def test_the_shared_cases_of_one_shot_queries(case):
    """Evaluate the query over the rows after the last step."""
    if any("agg" in column for column in case["find"]):
        pytest.skip("an aggregate is an operator of a circuit, not of a join")
    relations = {relation["name"]: set() for relation in case["relations"]}
    for step in case["steps"]:
        for delta in step["deltas"]:
            row = tuple(delta["tuple"])
            change = (
                relations[delta["rel"]].add
                if delta["weight"] > 0
                else relations[delta["rel"]].discard
            )
            change(row)
    order = variable_order(case)
    extenders = [clause_extender(clause, order, relations) for clause in case["where"]]

    answer = {
        tuple(row[order.index(strip_mark(column["var"]))] for column in case["find"])
        for row in solve(extenders, len(order))
    }

    assert answer == {tuple(row) for row in case["expected"]["result"]}
