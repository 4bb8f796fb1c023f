"""Hypothesis strategies: queries, relations and streams with so few values that most rows join.

Bugs of incremental joins need the same row in the old relation, in the delta and in several atoms.
So the domains have two to five values, the weights lie in -3..3 and a step often undoes an earlier
one. Domains are drawn first, as sorted integers: small and dense, with negative ones, far apart, or
at the edges of 62 bits, because storage may pack them differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dbsp_wcoj import Formula, ZSet
from dbsp_wcoj.query import Atom, Comparison, Constant, Query, Variable

Row = tuple[int, ...]
Delta = dict[Row, int]
Step = dict[str, Delta]

#: For a law; the first example of a process compiles or loads the kernel, hence no deadline.
LAW = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

FORMULAS = tuple(Formula)
OPERATORS = ("<", "<=", ">", ">=", "==", "!=")
# Numbers that comparisons add to a side: with the largest ones, sums do not fit in int64.
SHIFTS = (0, 1, -1, 2, -2, 1000, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63) + 1)
DOMAINS = (
    (0, 1),
    (0, 1, 2),
    (1, 2, 3, 4, 5),
    (-2, -1, 0, 1),
    (-7, 0, 1000, 1 << 33),
    (-(1 << 62), -1, (1 << 62) - 1, 1 << 62),
    (-(1 << 63) + 1, -(1 << 63) + 2, 0, (1 << 63) - 2, (1 << 63) - 1),
)
VARIABLES = ("a", "b", "c", "d", "x")


@dataclass(frozen=True)
class Scenario:
    """A query and the stream of steps of its relations; the first step is the prior state."""

    query: Query
    steps: tuple[Step, ...]


@st.composite
def bodies(draw: st.DrawFn, domain: Sequence[int]) -> tuple[Atom, ...]:
    """Atoms of a known shape over one relation or several, or of no shape at all."""
    shape = draw(st.sampled_from(SHAPES))
    if shape == "random":
        return draw(random_bodies(domain))
    edges = draw(_edges(shape))
    is_self_join = draw(st.booleans())
    if is_self_join:
        return tuple(_atom("e", *edge) for edge in edges)
    names = draw(st.lists(st.sampled_from("rst"), min_size=len(edges), max_size=len(edges)))
    return tuple(
        _atom(f"{name}{len(edge)}", *edge) for name, edge in zip(names, edges, strict=True)
    )


SHAPES = ("triangle", "cycle", "path", "star", "clique", "cross", "wide", "random", "random")


@st.composite
def _edges(draw: st.DrawFn, shape: str) -> list[tuple[str, ...]]:
    """The variables of each atom of one shape, all of the same arity."""
    match shape:
        case "triangle":
            return [("a", "b"), ("b", "c"), draw(st.sampled_from([("a", "c"), ("c", "a")]))]
        case "cycle":
            nodes = VARIABLES[: draw(st.integers(1, 5))]  # one node is e(a, a), two are a pair
            return list(zip(nodes, nodes[1:] + nodes[:1], strict=True))
        case "path":
            nodes = VARIABLES[: draw(st.integers(2, 5))]
            return list(pairwise(nodes))
        case "star":
            leaves = VARIABLES[1 : draw(st.integers(3, 5))]
            out = draw(st.booleans())
            return [("a", leaf) if out else (leaf, "a") for leaf in leaves]
        case "clique":
            nodes = VARIABLES[:4]
            return [(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :]]
        case "cross":
            return draw(st.sampled_from([[("a",), ("b",)], [("a", "b"), ("c", "d")]]))
        case "wide":  # the Loomis-Whitney join: every atom lacks one variable
            nodes = VARIABLES[: draw(st.integers(3, 4))]
            return [tuple(n for n in nodes if n != left_out) for left_out in nodes]
    raise AssertionError(shape)


@st.composite
def random_bodies(draw: st.DrawFn, domain: Sequence[int]) -> tuple[Atom, ...]:
    """One to four atoms over a drawn schema; variables repeat anywhere, constants and ``_``."""
    schema = {
        name: draw(st.sampled_from([1, 2, 2, 3, 5])) for name in draw(st.sets(NAMES, min_size=1))
    }
    fresh = iter(range(1, 100))
    atoms = []
    for name in draw(st.lists(st.sampled_from(sorted(schema)), min_size=1, max_size=4)):
        terms: list[Variable | Constant] = []
        for _ in range(schema[name]):
            kind = draw(st.sampled_from("vvvvvvvvc_"))
            if kind == "v":
                terms.append(Variable(draw(st.sampled_from(VARIABLES))))
            elif kind == "c":
                terms.append(Constant(draw(st.sampled_from(domain))))
            else:
                terms.append(Variable(f"_{next(fresh)}"))
        atoms.append(Atom(name, tuple(terms)))
    return tuple(atoms)


NAMES = st.sampled_from(["e", "r/to", "last-name"])


@st.composite
def queries(draw: st.DrawFn, domain: Sequence[int]) -> Query:
    """Any conjunctive query: a body, a head that may be empty or repeat, some comparisons."""
    body = draw(bodies(domain))
    names_in_body = dict.fromkeys(
        t.name for atom in body for t in atom.terms if isinstance(t, Variable)
    )
    names = [name for name in names_in_body if not name.startswith("_")]
    if not names:
        return Query("q", (), body, ())
    head = draw(
        st.one_of(
            st.just(tuple(names)),
            st.just(()),
            st.permutations(names).map(tuple),
            st.lists(st.sampled_from(names), max_size=4).map(tuple),
        )
    )
    sides = st.one_of(st.sampled_from(names).map(Variable), st.sampled_from(domain).map(Constant))
    comparison = st.builds(
        Comparison, st.sampled_from(names).map(Variable), st.sampled_from(OPERATORS), sides
    )
    flipped = st.builds(
        Comparison, sides, st.sampled_from(OPERATORS), st.sampled_from(names).map(Variable)
    )
    shifted = comparison
    if len(names) > 1:
        pairs = st.sampled_from(list(permutations(map(Variable, names), 2)))
        parts = st.tuples(pairs, st.sampled_from(OPERATORS), st.sampled_from(SHIFTS))
        shifted = parts.map(lambda part: Comparison(part[0][0], part[1], part[0][1], part[2]))
    number = draw(st.sampled_from([0, 0, 1, 2]))
    any_comparison = st.one_of(comparison, flipped, shifted)
    comparisons = draw(st.lists(any_comparison, min_size=number, max_size=number))
    return Query("q", head, body, tuple(comparisons))


def relation_deltas(arity: int, domain: Sequence[int], *, max_size: int = 6) -> st.SearchStrategy:
    """A Z-set as row -> weight; weights -3..3 without zero, mostly 1."""
    row = st.tuples(*[st.sampled_from(domain)] * arity)
    return st.dictionaries(row, st.sampled_from([1, 1, 1, 2, 3, -1, -1, -2, -3]), max_size=max_size)


@st.composite
def streams(
    draw: st.DrawFn, query: Query, domain: Sequence[int], *, max_steps: int = 4
) -> tuple[Step, ...]:
    """A prior state, then steps that touch some of the relations or undo an earlier step."""
    arities = query.relations
    first = {
        name: draw(relation_deltas(arity, domain, max_size=14)) for name, arity in arities.items()
    }
    steps: list[Step] = [first]
    for _ in range(draw(st.integers(0, max_steps))):
        kind = draw(st.sampled_from(["any", "any", "one", "undo"]))
        if kind == "undo":
            earlier = draw(st.sampled_from(steps))
            steps.append({name: negate(delta) for name, delta in earlier.items()})
            continue
        names = sorted(arities) if kind == "any" else [draw(st.sampled_from(sorted(arities)))]
        steps.append({name: draw(relation_deltas(arities[name], domain)) for name in names})
    return tuple(steps)


@st.composite
def scenarios(draw: st.DrawFn, *, max_steps: int = 4) -> Scenario:
    """A query with a stream of its relations over one domain."""
    domain = draw(st.sampled_from(DOMAINS))
    query = draw(queries(domain))
    return Scenario(query, draw(streams(query, domain, max_steps=max_steps)))


def negate(delta: Mapping[Row, int]) -> Delta:
    """The delta that undoes ``delta``."""
    return {row: -weight for row, weight in delta.items()}


def zset(delta: Mapping[Row, int], *, arity: int) -> ZSet:
    """A delta as the engine takes it."""
    return ZSet.from_rows(list(delta), list(delta.values()), arity=arity)


def zsets(step: Mapping[str, Mapping[Row, int]], query: Query) -> dict[str, ZSet]:
    """A step as the engine takes it."""
    return {name: zset(delta, arity=query.relations[name]) for name, delta in step.items()}


def _atom(relation: str, *names: str) -> Atom:
    return Atom(relation, tuple(Variable(name) for name in names))
