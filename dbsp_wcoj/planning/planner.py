"""The planner: chooses the variable order of a term and the column order of each of its factors.

A term is one product of a delta formula (`dbsp_wcoj.formulas`), such as ``Δr(a, b) ⋈ s(b, c) ⋈
t(a, c)``. Each factor is one atom of the query, read as its old relation, its delta or its new
relation. `plan_term` returns a `TermPlan`, which has

- the variable order: the join binds one variable after the other. The variables that equal a
  constant are first, then those of the delta, so that the work is in proportion to the change. Each
  later variable shares a factor with a bound one, if possible, which avoids cross products;
- the column order of each factor: its bound variables in the order in which they are bound, then
  the columns that the join does not read.

If several variables could be next, the planner prefers, in this order,

1. one that bound variables limit from below and from above, as the time in an interval join;
2. the one with the fewest expected extensions, if the planner has statistics;
3. the one in the most factors that have a bound variable;
4. one of the head.

In a ring (see `is_ring`), the join could follow the ring in two directions from the delta. It first
goes towards the new relations, because reading these takes longer: a new relation is two, the old
one and its delta, and for each prefix the join searches both. At first there are few prefixes.

Among equally good variable orders, the planner takes the one that needs the fewest new arrangements
(sorted copies of a relation), so that terms share them. Among these, it takes one that first binds
the variables of the delta that other factors have: the join then searches the other factors once
for all rows of the delta with these values, and not once for each row.

`dbsp_wcoj.execution.program_compiler` compiles the plan into the program that runs; `explain`
prints the same plan.

`normalize_body` first rewrites constants and repeated variables: ``e(x, x, 7)`` becomes
``e(x, x', k), x' == x, k == 7``. So all columns of an atom have different variables, and an
equality leaves the join at most one value to look up.

References:
    [1] Ngo, Ré, Rudra. Skew Strikes Back. SIGMOD Record 42(4), 2013 (any order is optimal).
    [2] Ammar, McSherry, Salihoglu, Joglekar. PVLDB 11(6), 2018, section 3.3 (delta first).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice, permutations
from math import log2
from typing import Final, NamedTuple

from dbsp_wcoj.errors import ColumnTypeError, QuerySyntaxError, VariableOrderError
from dbsp_wcoj.query import Atom, Comparison, Constant, Query, Term, Variable
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import MAX_INT64

__all__ = [
    "FLIPPED",
    "Body",
    "CountDistinct",
    "FactorPlan",
    "TermPlan",
    "check_constants",
    "check_order",
    "is_ring",
    "normalize_body",
    "plan_term",
]

# Estimates the number of distinct values of some columns of a factor; None if unknown.
CountDistinct = Callable[[int, Sequence[int]], float | None]
# True if a factor, given by its index, is already arranged in a column order.
IsArranged = Callable[[int, ColumnOrder], bool]

# At most this many permutations of some variables or columns are tried, the given order first.
MAX_PERMUTATIONS: Final = 24
# The comparison with its sides exchanged.
FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def check_constants(query: Query) -> None:
    """Check that each constant is an int64.

    Raises:
        ColumnTypeError: A constant is not an int64.
    """
    terms: list[Term] = []
    for atom in query.body:
        terms += atom.terms
    for comparison in query.comparisons:
        terms += (comparison.left, comparison.right)
    for constant in terms:
        if not isinstance(constant, Constant):
            continue
        value = constant.value
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not -MAX_INT64 - 1 <= value <= MAX_INT64
        ):
            raise ColumnTypeError(
                f"constant {constant} is not an int64, and columns hold int64 values; encode the "
                f"values of that column as integers, and write the code of the constant"
            )


def check_order(query: Query, order: Sequence[str] | None) -> None:
    """Check that an order is a permutation of the query's variables.

    Raises:
        VariableOrderError: The order lacks a variable, or has one twice or one too many.
    """
    if order is not None and sorted(order) != sorted(query.variables):
        raise VariableOrderError(
            f"order {list(order)} is not a permutation of the variables {list(query.variables)}; "
            f"give each variable once"
        )


@dataclass(frozen=True, slots=True)
class Body:
    """A query's body, in which all columns of an atom have different variables.

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
            raise QuerySyntaxError(f"variable {name!r} contains '#', which is reserved; rename it")
    comparisons: list[Comparison] = []
    columns = []
    for index, atom in enumerate(query.body):
        columns.append(_rename_columns(atom, index, comparisons))
    is_never_true = False
    for comparison in query.comparisons:
        left, right = comparison.left, comparison.right
        if isinstance(left, Variable):
            comparisons.append(comparison)
        elif isinstance(right, Variable):
            comparisons.append(Comparison(right, FLIPPED[comparison.op], left, -comparison.shift))
        else:
            assert isinstance(left, Constant) and isinstance(right, Constant)
            is_never_true |= not comparison.holds(left.value, right.value)
    return Body(tuple(columns), tuple(comparisons), is_never_true)


def _rename_columns(atom: Atom, index: int, comparisons: list[Comparison]) -> tuple[str, ...]:
    """Return a variable for each column of an atom; add a comparison for each new variable."""
    names: list[str] = []
    for column, term in enumerate(atom.terms):
        if isinstance(term, Variable) and term.name not in names:
            names.append(term.name)
            continue
        # An empty name for a constant.
        variable = term.name if isinstance(term, Variable) else ""
        name = f"{variable}#{index}.{column}"
        comparisons.append(Comparison(Variable(name), "==", term))
        names.append(name)
    # A relation without columns is stored with one column, which is always 0 and never bound.
    return tuple(names) or (f"#{index}",)


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
    """The plan of one term. The variable at position k of the order is bound at level k.

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
        """The number of levels that make a row of the result; the join sums over later levels."""
        levels = [level for level, name in enumerate(self.order) if name in self.head]
        return levels[-1] + 1 if levels else 0

    @property
    def split_level(self) -> int:
        """The level whose values are split into ranges, to run parts of the join in parallel.

        It is the first level whose variable does not equal a constant.
        """
        constant = _constant_variables(self.comparisons)
        return next((level for level, name in enumerate(self.order) if name not in constant), 0)

    def is_split_factor(self, factor: FactorPlan) -> bool:
        """Return whether the factor's first column is the variable of level `split_level`."""
        if not factor.depth or not self.order:
            return False
        return factor.variables[factor.order[0]] == self.order[self.split_level]


def _nothing_is_arranged(factor: int, order: ColumnOrder) -> bool:
    return False


def plan_term(
    factors: Sequence[tuple[str, ...]],
    comparisons: Sequence[Comparison],
    head: Sequence[str],
    *,
    delta_factors: Sequence[int] = (),
    new_factors: Sequence[int] = (),
    is_arranged: IsArranged = _nothing_is_arranged,
    order: Sequence[str] | None = None,
    count_distinct: CountDistinct | None = None,
) -> TermPlan:
    """Plan one term.

    Args:
        factors: The variables of each factor's columns, all different within a factor.
        comparisons: Comparisons with a variable on the left; each variable is in some factor.
        head: Variables of the result.
        delta_factors: The indexes of the factors that are deltas. The variables of the first one
            are bound first.
        new_factors: In a ring (`is_ring`), the indexes of the factors that are new relations.
        is_arranged: Returns True if a factor is already arranged in a column order.
        order: The variable order, if the caller prescribes it. It may leave out the variables that
            `normalize_body` adds: they follow the variables that they are compared with.
        count_distinct: The statistics, if there are any.

    Complexity:
        O(p * c * log(v)), for p permutations of the delta's variables, c columns of all factors and
        v variables. With statistics, c is the sum of the squares of the factors' columns.

    >>> plan = plan_term([("a", "b"), ("b", "c"), ("a", "c")], [], ["a"], delta_factors=[1])
    >>> plan.order
    ('b', 'c', 'a')
    >>> [factor.order for factor in plan.factors]
    [(1, 0), (0, 1), (1, 0)]
    """
    needed = _needed_variables(factors, comparisons, head)
    orderer = _VariableOrderer(factors, comparisons, needed, head, new_factors, count_distinct)
    first_variables: Iterator[Sequence[str]]
    delta_variables: list[str] = []
    if order is not None:
        first_variables = iter([order])
    else:
        delta_variables = [name for i in delta_factors[:1] for name in factors[i] if name in needed]
        first_variables = islice(permutations(delta_variables), MAX_PERMUTATIONS)
    plans = [
        _plan_factors(factors, comparisons, head, orderer.order(names), is_arranged)
        for names in first_variables
    ]

    def count_new_arrangements(plan: TermPlan) -> int:
        # The planner does not know the relations. It assumes that factors with the same variables
        # read one relation, so they share an arrangement; a delta is always sorted separately.
        missing: set[tuple[int | tuple[str, ...], ColumnOrder]] = set()
        for i, factor in enumerate(plan.factors):
            if not is_arranged(i, factor.order):
                missing.add((i if i in delta_factors else factors[i], factor.order))
        return len(missing)

    shared = {
        name
        for name in delta_variables
        if any(name in names for i, names in enumerate(factors) if i != delta_factors[0])
    }

    def sum_shared_levels(plan: TermPlan) -> int:
        return sum([level for level, name in enumerate(plan.order) if name in shared])

    return min(plans, key=lambda plan: (count_new_arrangements(plan), sum_shared_levels(plan)))


def is_ring(
    factors: Sequence[tuple[str, ...]], comparisons: Sequence[Comparison], head: Sequence[str]
) -> bool:
    """Return whether a term is a ring: a cycle of more than four variables.

    It then has as many factors as variables to bind, and each of these variables is in two factors.
    Shorter cycles do not count: the delta binds two of their variables, and the other one or two
    are all next to these.

    >>> is_ring([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a")], [], ["a"])
    True
    >>> is_ring([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f")], [], [])
    False
    """
    names = [name for columns in factors for name in columns]
    needed = _needed_variables(factors, comparisons, head)
    return 4 < len(needed) == len(factors) and all(names.count(name) == 2 for name in needed)


def _constant_variables(comparisons: Sequence[Comparison]) -> set[str]:
    """The variables that equal a constant."""
    return {
        c.left.name
        for c in comparisons
        if c.op == "==" and isinstance(c.left, Variable) and isinstance(c.right, Constant)
    }


def _needed_variables(
    factors: Sequence[tuple[str, ...]], comparisons: Sequence[Comparison], head: Sequence[str]
) -> set[str]:
    """The variables that the join has to bind: shared by factors, compared, or in the head."""
    occurrences = Counter(name for columns in factors for name in columns)
    needed = {name for name in occurrences if occurrences[name] > 1 or name in head}
    for comparison in comparisons:
        needed.update(name for name in comparison.variables if name in occurrences)
    return needed


class VariableRank(NamedTuple):
    """The sort key of a variable that is not bound yet; the smallest is bound next.

    A factor is connected if one of its variables is bound.

    Attributes:
        is_unconnected: True if the variable is in no connected factor.
        is_unlimited: False if bound variables limit the variable from below and from above, as in
            ``a <= x, x <= b``: the join then reads a range of its values only.
        log_extensions: The binary logarithm of the expected number of extensions; 0 if there are
            no statistics.
        minus_connected_factors: The number of connected factors of the variable, negated.
        is_not_in_head: True if the result does not contain the variable.
        minus_factors: The number of factors of the variable, negated.
        minus_new_factors: The number of its connected new relations in a ring, negated.
    """

    is_unconnected: bool
    is_unlimited: bool
    log_extensions: int
    minus_connected_factors: int
    is_not_in_head: bool
    minus_factors: int
    minus_new_factors: int


class VariableLimits(NamedTuple):
    """The variables that a variable is compared with: those below it, and those above it."""

    below: set[str]
    above: set[str]


class _VariableOrderer:
    """Orders the variables of a term greedily: it always binds the variable of the least rank.

    The rank of a variable changes only when one of its factors gets its first bound variable; with
    statistics, when it gets any bound variable. So the ranks are in a heap, into which a changed
    rank is pushed again; entries with an outdated rank are skipped.

    Args:
        factors: As in `plan_term`; so are `comparisons`, `head`, `new_factors`, `count_distinct`.
        needed: The variables to order.
    """

    def __init__(
        self,
        factors: Sequence[tuple[str, ...]],
        comparisons: Sequence[Comparison],
        needed: set[str],
        head: Sequence[str],
        new_factors: Sequence[int],
        count_distinct: CountDistinct | None,
    ) -> None:
        self._factors = factors
        self._head = set(head)
        self._new_factors = new_factors
        self._count_distinct = count_distinct
        self._constant_variables = _constant_variables(comparisons)
        names = [name for columns in factors for name in columns if name in needed]
        self._variables = list(dict.fromkeys(names))
        self._positions = {name: i for i, name in enumerate(self._variables)}
        self._factors_of: dict[str, list[int]] = {name: [] for name in self._variables}
        for factor, columns in enumerate(factors):
            for name in columns:
                if name in needed:
                    self._factors_of[name].append(factor)
        self._equal_variables: dict[str, set[str]] = {name: set() for name in self._variables}
        for comparison in comparisons:
            if comparison.op == "==" and isinstance(comparison.right, Variable):
                left, right = comparison.variables[0], comparison.right.name
                self._equal_variables[left].add(right)
                self._equal_variables[right].add(left)
        self._limits = {name: VariableLimits(set(), set()) for name in self._variables}
        for comparison in comparisons:
            if comparison.op in ("<", "<=", ">", ">=") and len(comparison.variables) == 2:
                lower, upper = comparison.variables
                if comparison.op in (">", ">="):
                    lower, upper = upper, lower
                self._limits[lower].above.add(upper)
                self._limits[upper].below.add(lower)

    def order(self, first: Sequence[str]) -> tuple[str, ...]:
        """Return all needed variables in the order in which the join binds them.

        Args:
            first: Variables to bind after those that equal a constant, and before all others.

        Complexity:
            O((columns of all factors) * log(variables)); with statistics O(columns²) per factor.
        """
        self._bound: dict[str, None] = {}
        self._is_connected = [False] * len(self._factors)
        self._ranks: dict[str, VariableRank] = {}
        self._heap: list[tuple[VariableRank, int]] = []
        # A heap of the positions of variables that equal a bound one.
        self._equal_to_bound: list[int] = []
        for name in self._variables:
            self._push(name)
        for name in self._variables:
            if name in self._constant_variables:
                self._bind(name)
        pending = deque(name for name in first if name in self._positions)
        while len(self._bound) < len(self._variables):
            self._bind(self._next_variable(pending))
        return tuple(self._bound)

    def _next_variable(self, pending: deque[str]) -> str:
        """A variable that equals a bound one; else the next pending one; else the least rank."""
        while self._equal_to_bound:
            name = self._variables[heappop(self._equal_to_bound)]
            if name not in self._bound:
                return name
        while pending:
            name = pending.popleft()
            if name not in self._bound:
                return name
        while True:
            rank, position = heappop(self._heap)
            name = self._variables[position]
            if name not in self._bound and rank == self._ranks[name]:
                return name

    def _bind(self, name: str) -> None:
        self._bound[name] = None
        for other in self._equal_variables[name]:
            heappush(self._equal_to_bound, self._positions[other])
        changed: dict[str, None] = {}
        for limits in self._limits[name]:
            changed.update(dict.fromkeys(sorted(limits)))
        for factor in self._factors_of[name]:
            if not self._is_connected[factor] or self._count_distinct is not None:
                self._is_connected[factor] = True
                changed.update(dict.fromkeys(self._factors[factor]))
        for other in changed:
            if other in self._positions and other not in self._bound:
                self._push(other)

    def _push(self, name: str) -> None:
        """Compute the rank of a variable and push it on the heap."""
        factors = self._factors_of[name]
        connected = [factor for factor in factors if self._is_connected[factor]]
        rank = VariableRank(
            is_unconnected=not connected,
            is_unlimited=not self._is_limited(name),
            log_extensions=self._log_extensions(name),
            minus_connected_factors=-len(connected),
            is_not_in_head=name not in self._head,
            minus_factors=-len(factors),
            minus_new_factors=-sum(factor in self._new_factors for factor in connected),
        )
        self._ranks[name] = rank
        heappush(self._heap, (rank, self._positions[name]))

    def _is_limited(self, name: str) -> bool:
        """Return True if bound variables limit a variable from below and from above."""
        return all(any(limit in self._bound for limit in limits) for limits in self._limits[name])

    def _log_extensions(self, name: str) -> int:
        """The binary logarithm of the expected number of extensions, rounded.

        The estimate assumes that columns are independent. A factor with p distinct prefixes, q
        distinct pairs of a prefix and an extension, and v distinct values of the variable has q / p
        extensions for each prefix, so a value is one of them with the probability q / p / v. The
        expected number is the number of values times the probabilities of all factors.
        """
        count_distinct = self._count_distinct
        if count_distinct is None:
            return 0
        probability = 1.0
        domain = 1.0
        for factor in self._factors_of[name]:
            columns = self._factors[factor]
            bound = [k for k, other in enumerate(columns) if other in self._bound]
            column = columns.index(name)
            prefixes = count_distinct(factor, bound)
            pairs = count_distinct(factor, [*bound, column])
            values = count_distinct(factor, [column])
            if prefixes and pairs and values:
                probability *= pairs / prefixes / values
                domain = max(domain, values)
        expected = probability * domain
        return round(log2(expected)) if expected > 0 else 0


def _plan_factors(
    factors: Sequence[tuple[str, ...]],
    comparisons: Sequence[Comparison],
    head: Sequence[str],
    order: tuple[str, ...],
    is_arranged: IsArranged,
) -> TermPlan:
    """Choose the column order of each factor; of equally good ones, one that is arranged."""
    levels = {name: level for level, name in enumerate(order)}
    plans = []
    for index, columns in enumerate(factors):
        bound = sorted((name for name in columns if name in levels), key=levels.__getitem__)
        prefix = tuple(columns.index(name) for name in bound)
        unread = tuple(column for column in range(len(columns)) if column not in prefix)
        column_order = prefix + unread
        for permuted in islice(permutations(unread), MAX_PERMUTATIONS):
            if is_arranged(index, prefix + permuted):
                column_order = prefix + permuted
                break
        plans.append(FactorPlan(columns, column_order, len(prefix)))
    return TermPlan(order, tuple(plans), tuple(comparisons), tuple(head))
