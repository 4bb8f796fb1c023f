"""The planner: plan a delta term, that is, order its variables and assign column orders to factors.

A term is a product of views. Its plan consists of

- the variable order. Constants come first, then the delta's variables, so that the work starts at
  the change. After that, each variable is one that shares an atom with a bound variable, to avoid
  needless cross products: with statistics, the one with the fewest expected extensions, else the
  one in the most such atoms; variables of the head come before others. In a ring, both directions
  from a delta are equal, and the direction over new relations comes first: their deltas are lists
  beside the lists of old rows, which cost least where prefixes are few;
- for each factor its column order: its variables in the order in which they are bound, then the
  columns that nothing else needs. Among equally good variable orders, the planner takes the one
  that needs the fewest new arrangements, so that terms share arrangements.

`dbsp_wcoj.execution.program_compiler` compiles the plan into the program that runs; `explain`
prints the same plan.

Constants and repeated variables are rewritten before planning: ``e(x, x, 7)`` becomes
``e(x, x', k), x' == x, k == 7`` with separate variables, and the join narrows those to a point.

References:
    [1] Ngo, Ré, Rudra. Skew Strikes Back. SIGMOD Record 42(4), 2013 (any order is optimal).
    [2] Ammar, McSherry, Salihoglu, Joglekar. PVLDB 11(6), 2018, section 3.3 (delta first).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice, permutations
from math import log2
from typing import Final

from dbsp_wcoj.errors import ColumnTypeError, QuerySyntaxError, VariableOrderError
from dbsp_wcoj.query import Atom, Comparison, Constant, Query, Variable
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import MAX_INT64

__all__ = [
    "FLIPPED",
    "Body",
    "Distinct",
    "FactorPlan",
    "TermPlan",
    "check_constants",
    "check_order",
    "is_ring",
    "normalize_body",
    "plan_term",
]

Distinct = Callable[[int, Sequence[int]], float | None]
# The sort key of a variable: not connected, magnitude, -connections, not in the head, -factors,
# -connections to lists.
Rank = tuple[bool, int, int, bool, int, int]

# At most this many permutations are tried, starting with the order as written.
MAX_PERMUTATIONS: Final = 24
FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def check_constants(query: Query) -> None:
    """Check that each constant is an int64.

    Raises:
        ColumnTypeError: A constant is not an int64.
    """
    constants = [t for atom in query.body for t in atom.terms if isinstance(t, Constant)]
    for comparison in query.comparisons:
        constants += [s for s in (comparison.left, comparison.right) if isinstance(s, Constant)]
    for constant in constants:
        value = constant.value
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not -MAX_INT64 - 1 <= value <= MAX_INT64
        ):
            raise ColumnTypeError(
                f"constant {constant} is not an int64, which columns hold; "
                f"encode the values of that column as integers and give the code"
            )


def check_order(query: Query, order: Sequence[str] | None) -> None:
    """Check that an order is a permutation of the query's variables.

    Raises:
        VariableOrderError: It is not.
    """
    if order is not None and sorted(order) != sorted(query.variables):
        raise VariableOrderError(
            f"order {list(order)} is not a permutation of the variables {list(query.variables)}"
        )


@dataclass(frozen=True, slots=True)
class Body:
    """A query's body with one distinct variable per column.

    Attributes:
        columns: The variables of each atom.
        comparisons: Comparisons with a variable on their left.
        is_never_true: True if a comparison between constants fails, so that the query has no rows.
    """

    columns: tuple[tuple[str, ...], ...]
    comparisons: tuple[Comparison, ...]
    is_never_true: bool


def normalize_body(query: Query) -> Body:
    """Rewrite constants and repeated variables into comparisons.

    >>> body = normalize_body(Query.parse("q(x) :- e(x, x), r(x, 7)"))
    >>> body.columns
    (('x', 'x#0.1'), ('x', '#1.1'))
    >>> [str(comparison) for comparison in body.comparisons]
    ['x#0.1 == x', '#1.1 == 7']
    """
    for name in query.variables:
        if "#" in name:
            raise QuerySyntaxError(f"variable {name!r} has a '#', kept for the planner; rename it")
    comparisons: list[Comparison] = []
    columns = []
    for position, atom in enumerate(query.body):
        columns.append(_distinct_columns(atom, position, comparisons))
    is_never_true = False
    for comparison in query.comparisons:
        left, right = comparison.left, comparison.right
        if isinstance(left, Variable):
            comparisons.append(comparison)
        elif isinstance(right, Variable):
            comparisons.append(Comparison(right, FLIPPED[comparison.op], left))
        else:
            assert isinstance(left, Constant) and isinstance(right, Constant)
            is_never_true |= not comparison.holds(left.value, right.value)
    return Body(tuple(columns), tuple(comparisons), is_never_true)


def _distinct_columns(atom: Atom, place: int, comparisons: list[Comparison]) -> tuple[str, ...]:
    names: list[str] = []
    for column, term in enumerate(atom.terms):
        if not isinstance(term, Variable):
            name = f"#{place}.{column}"
            comparisons.append(Comparison(Variable(name), "==", term))
        elif term.name in names:
            name = f"{term.name}#{place}.{column}"
            comparisons.append(Comparison(Variable(name), "==", term))
        else:
            name = term.name
        names.append(name)
    # A relation without columns is stored with one column, which is always 0 and never bound.
    return tuple(names) or (f"#{place}",)


@dataclass(frozen=True, slots=True)
class FactorPlan:
    """The plan of one factor.

    Attributes:
        variables: The variable of each column.
        order: The column order in which the factor is read.
        depth: The number of columns, in that order, that the join binds.
    """

    variables: tuple[str, ...]
    order: ColumnOrder
    depth: int


@dataclass(frozen=True, slots=True)
class TermPlan:
    """The plan of one term.

    Attributes:
        order: The variable order.
        factors: The plan of each factor.
        comparisons: The comparisons that the join checks.
        head: The variables of the result.
    """

    order: tuple[str, ...]
    factors: tuple[FactorPlan, ...]
    comparisons: tuple[Comparison, ...]
    head: tuple[str, ...]

    @property
    def emitted_levels(self) -> int:
        """The number of variables bound before a row is complete; the others are summed."""
        asked = set(self.head)
        return max((i + 1 for i, name in enumerate(self.order) if name in asked), default=0)

    @property
    def split_level(self) -> int:
        """The level of the first variable not fixed by a constant; parts split its values."""
        fixed = _fixed_variables(self.comparisons)
        return next((i for i, name in enumerate(self.order) if name not in fixed), 0)

    def is_split_factor(self, factor: FactorPlan) -> bool:
        """Return whether the factor's first column is the variable of level `split`."""
        if not factor.depth or not self.order:
            return False
        return factor.variables[factor.order[0]] == self.order[self.split_level]


def plan_term(
    factors: Sequence[tuple[str, ...]],
    comparisons: Sequence[Comparison],
    head: Sequence[str],
    *,
    first: Sequence[int] = (),
    new: Sequence[int] = (),
    arranged: Callable[[int, ColumnOrder], bool] = lambda factor, order: False,
    order: Sequence[str] | None = None,
    distinct: Distinct | None = None,
) -> TermPlan:
    """Plan one product of views.

    Args:
        factors: The distinct variables of each factor's columns.
        comparisons: Comparisons with a variable on the left, all variables in some factor.
        head: Variables of the result.
        first: Factors (the deltas) whose variables are bound first.
        new: In a ring (`is_ring`), the factors that are read as lists of old rows and of a delta.
        arranged: True if factor ``i`` is already arranged in a column order.
        order: The order of the shared variables, if the caller prescribes it; other variables
            that must be bound follow the variables that they are compared with.
        distinct: The number of distinct values of some columns of a factor, if known.

    Complexity:
        O(permutations of the delta's variables * columns of all factors * log(variables)); with
        statistics the square of a factor's columns instead of their number.
    """
    needed = _needed_variables(factors, comparisons, head)
    if order is not None:
        candidates = [
            _greedy_order(
                factors, comparisons, needed, head, [v for v in order if v in needed], new, distinct
            )
        ]
    else:
        start = [name for i in first[:1] for name in factors[i] if name in needed]
        starts = islice(permutations(start), MAX_PERMUTATIONS)
        candidates = [
            _greedy_order(factors, comparisons, needed, head, list(s), new, distinct)
            for s in starts
        ]
    plans = [_plan_factors(factors, comparisons, head, names, arranged) for names in candidates]

    def new_arrangements(plan: TermPlan) -> int:
        missing = {
            (i if i in first else factors[i], factor.order)
            for i, factor in enumerate(plan.factors)
            if not arranged(i, factor.order)
        }
        return len(missing)

    return min(plans, key=new_arrangements)


def is_ring(
    factors: Sequence[tuple[str, ...]], comparisons: Sequence[Comparison], head: Sequence[str]
) -> bool:
    """Return whether the term is a ring.

    A ring has as many variables to bind as factors, more than four, each in two factors.

    In smaller rings all variables but one are adjacent to the delta.

    >>> is_ring([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a")], [], ["a"])
    True
    >>> is_ring([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f")], [], [])
    False
    """
    names = [name for columns in factors for name in columns]
    needed = _needed_variables(factors, comparisons, head)
    return 4 < len(needed) == len(factors) and all(names.count(name) == 2 for name in needed)


def _fixed_variables(comparisons: Sequence[Comparison]) -> set[str]:
    return {
        c.left.name
        for c in comparisons
        if c.op == "==" and isinstance(c.left, Variable) and isinstance(c.right, Constant)
    }


def _needed_variables(
    factors: Sequence[tuple[str, ...]], comparisons: Sequence[Comparison], head: Sequence[str]
) -> set[str]:
    """The variables that have to be bound: shared, compared or in the head."""
    occurrences = Counter(name for columns in factors for name in columns)
    asked = {name for comparison in comparisons for name in comparison.variables} | set(head)
    return {name for name, times in occurrences.items() if times > 1 or name in asked}


def _greedy_order(
    factors: Sequence[tuple[str, ...]],
    comparisons: Sequence[Comparison],
    needed: set[str],
    head: Sequence[str],
    start: list[str],
    new: Sequence[int],
    distinct: Distinct | None,
) -> tuple[str, ...]:
    """Extend a start to all needed variables.

    The rank of a variable changes only when a factor that contains it gets its first bound
    variable, or, with statistics, another one. So a heap contains the ranks, and entries with an
    outdated rank are skipped.

    Complexity:
        O((columns of all factors) * log(variables)); with statistics O(columns²) per factor.
    """
    everything = list(dict.fromkeys(n for columns in factors for n in columns if n in needed))
    place = {name: i for i, name in enumerate(everything)}
    holders: dict[str, list[int]] = {name: [] for name in everything}
    for factor, columns in enumerate(factors):
        for name in columns:
            if name in holders:
                holders[name].append(factor)
    equal: dict[str, set[str]] = {}
    for comparison in comparisons:
        if comparison.op == "==" and isinstance(comparison.right, Variable):
            left, right = comparison.variables[0], comparison.right.name
            equal.setdefault(left, set()).add(right)
            equal.setdefault(right, set()).add(left)
    wanted = set(head)
    bound: dict[str, None] = {}
    connected = [False] * len(factors)
    pinned: list[int] = []  # the positions of variables that equal a bound one
    ranks: dict[str, Rank] = {}
    heap: list[tuple[Rank, int]] = []

    def rank(name: str) -> Rank:
        """The sort key of a variable; smaller keys are bound earlier."""
        reached = [i for i in holders[name] if connected[i]]
        few = 0 if distinct is None else _magnitude(factors, holders[name], name, bound, distinct)
        lists = sum(i in new for i in reached)
        held = len(holders[name])
        return (not reached, few, -len(reached), name not in wanted, -held, -lists)

    def push(name: str) -> None:
        ranks[name] = rank(name)
        heappush(heap, (ranks[name], place[name]))

    def bind(name: str) -> None:
        bound[name] = None
        for other in equal.get(name, ()):
            heappush(pinned, place[other])
        moved: dict[str, None] = {}
        for factor in holders[name]:
            if not connected[factor] or distinct is not None:
                connected[factor] = True
                moved |= dict.fromkeys(n for n in factors[factor] if n in holders)
        for other in moved:
            if other not in bound:
                push(other)

    for name in everything:
        push(name)
    fixed = _fixed_variables(comparisons)
    for name in everything:
        if name in fixed:
            bind(name)
    pending = deque(start)
    while len(bound) < len(everything):
        while pinned and everything[pinned[0]] in bound:
            heappop(pinned)
        while pending and pending[0] in bound:
            pending.popleft()
        if pinned:
            bind(everything[heappop(pinned)])
        elif pending:
            bind(pending.popleft())
        else:
            found, at = heappop(heap)
            if everything[at] not in bound and found == ranks[everything[at]]:
                bind(everything[at])
    return tuple(bound)


def _magnitude(
    factors: Sequence[tuple[str, ...]],
    holders: Sequence[int],
    name: str,
    chosen: Container[str],
    distinct: Distinct,
) -> int:
    """The logarithm of the expected number of extensions, if columns are independent.

    Each factor has an expected number of extensions of its bound columns; the probability that two
    factors agree on one is the inverse of the number of values.
    """
    expected = 1.0
    most = 1.0
    for factor in holders:
        columns = factors[factor]
        bound = [k for k, n in enumerate(columns) if n in chosen]
        column = columns.index(name)
        before, after = distinct(factor, bound), distinct(factor, [*bound, column])
        alone = distinct(factor, [column])
        if before and after and alone:
            expected *= after / before / alone
            most = max(most, alone)
    return round(log2(expected * most)) if expected * most > 0 else 0


def _plan_factors(
    factors: Sequence[tuple[str, ...]],
    comparisons: Sequence[Comparison],
    head: Sequence[str],
    order: tuple[str, ...],
    arranged: Callable[[int, ColumnOrder], bool],
) -> TermPlan:
    plans = []
    level = {name: i for i, name in enumerate(order)}
    for index, columns in enumerate(factors):
        bound = sorted((n for n in columns if n in level), key=level.__getitem__)
        prefix = tuple(columns.index(name) for name in bound)
        rest = tuple(k for k in range(len(columns)) if k not in prefix)
        column_order = prefix + rest
        for tail in islice(permutations(rest), MAX_PERMUTATIONS):
            if arranged(index, prefix + tail):
                column_order = prefix + tail
                break
        plans.append(FactorPlan(columns, column_order, len(prefix)))
    return TermPlan(order, tuple(plans), tuple(comparisons), tuple(head))
