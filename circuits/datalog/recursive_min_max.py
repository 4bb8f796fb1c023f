"""min and max in recursive rules, as for shortest paths; checks that they are monotone.

::

    dist(x, 0) :- source(x).
    dist(y, min(d + w)) :- dist(x, d), e(x, y, w).

In a recursion, a head with ``min(x)`` keeps for each value of its other columns the least value
that any of its rules derives. So each rule derives candidates: ``dist(y, d + w)`` for the second
rule. Without candidates there is no row, not even if the head has no other column. Outside of a
recursion each rule aggregates separately. A rule with another aggregate, such as ``count()``,
cannot read the recursion, and it aggregates separately, too.

A least solution exists if a better value only leads to better values, where *better* is smaller for
a minimum and larger for a maximum. So a value that a rule reads from the column of a minimum may

- be passed to such a column, unchanged or in a monotone function: ``d + w``, ``least(d, w)``,
  ``2 * d``; or to the column of a maximum in an antitone function: ``10 - d``;
- be compared with a bound that every better value satisfies, too: for a minimum ``d < 10`` and
  ``d + w <= k``;
- be ignored: ``_``.

Any other use (in another column, a join, ``d > 10``, a negation) raises an error, because a better
value would then delete a derived row. The recursion terminates if no cycle improves its own value.
With a cycle of negative length, the step raises `IterationError` at the limit on iterations.

Reference: Ross, Sagiv. Monotonic aggregation in deductive databases. PODS 1992.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final, cast

from circuits.datalog.program import (
    Atom,
    Comparison,
    Equation,
    FunctionCall,
    HeadTerm,
    Item,
    Items,
    Or,
    Program,
    Rule,
    Term,
    TypedConstant,
    Variable,
    Wildcard,
    variables_of,
    walk,
)
from circuits.datalog.scope import bound_variables, find_assignment, rename_local_variables
from circuits.datalog.source import DatalogSource
from circuits.datalog.terms import AGGREGATES, MIN_MAX
from circuits.plan.fixpoint import SET, DistinctMode

__all__ = ["candidate_rule", "distinct_modes"]

#: How a value changes as the values that it depends on get better: -1 falls, 1 rises, 0 is
#: constant; None is unknown.
Direction = int | None
BETTER_DIRECTION: Final = {"min": -1, "max": 1}
RISING_FUNCTIONS: Final = frozenset({"add", "least", "greatest"})
SCALING_FUNCTIONS: Final = frozenset({"multiply", "divide", "quot", "int_divide"})


def distinct_modes(program: Program, component: Sequence[str]) -> dict[str, DistinctMode]:
    """Return which rows each head of a recursion keeps: all, or the best by a min or max.

    Raises:
        DatalogError: A minimum or maximum is not monotone, or not alone in its head.
    """
    heads = program.heads
    modes = {head: _distinct_mode(heads[head], program.source) for head in component}
    for head in component:
        for rule in heads[head]:
            _MonotonicityCheck(rule, modes, program.source).check()
    return modes


def candidate_rule(rule: Rule) -> Rule:
    """Return the rule without its min or max; a rule with another aggregate as it is."""
    if _has_other_aggregate(rule):
        return rule
    return replace(rule, terms=tuple(replace(t, term=_candidate(t.term)) for t in rule.terms))


def _has_other_aggregate(rule: Rule) -> bool:
    """Return whether a rule has an aggregate that cannot be recursive."""
    aggregates = {n.function for n in walk(*rule.terms) if isinstance(n, FunctionCall)} & AGGREGATES
    return not aggregates <= MIN_MAX


def _candidate(term: Term) -> Term:
    match term:
        case FunctionCall(function=function, arguments=(argument,)) if function in MIN_MAX:
            return argument
    return term


def _distinct_mode(rules: Sequence[Rule], source: DatalogSource) -> DistinctMode:
    mode = SET
    for rule in rules:
        if _has_other_aggregate(rule):
            continue
        for index, term in enumerate(rule.terms):
            if not any(
                isinstance(n, FunctionCall) and n.function in AGGREGATES for n in walk(term)
            ):
                continue
            match term.term:
                case FunctionCall(function=("min" | "max") as function, arguments=(_,)):
                    term_mode = DistinctMode(function, index)
                case _:
                    raise source.error(
                        f"an aggregate within a term in the recursive rules of {rule.head!r}; "
                        "let the whole term be min or max, and compute with it in another rule",
                        term.offset,
                    )
            if mode not in (SET, term_mode):
                raise source.error(
                    f"the recursive head {rule.head!r} has {mode.kind} of column "
                    f"{cast(int, mode.column) + 1} and {term_mode.kind} of column {index + 1}; a "
                    "row that is best by one may not be by the other: give each a separate head",
                    term.offset,
                )
            mode = term_mode
    return mode


class _MonotonicityCheck:
    """Checks one rule of a recursion.

    ``_directions`` has the variables whose values may get better, and how they change. A body has
    no order, so a condition may be read before the direction of its variable is known. Therefore
    the body is checked again until no direction changes.
    """

    def __init__(
        self, rule: Rule, modes: Mapping[str, DistinctMode], source: DatalogSource
    ) -> None:
        self._rule = replace(rule, body=rename_local_variables(rule.body))
        self._modes = modes
        self._source = source
        self._directions: dict[str, Direction] = {}
        # By the ``id`` of an alternative: the directions within it, at the last check.
        self._alternatives: dict[int, dict[str, Direction]] = {}

    def check(self) -> None:
        """Raise an error if the rule is not monotone."""
        rule = self._rule
        self._directions = self._column_directions(rule.body)
        if not self._directions:
            return
        before: object = None
        while before != (after := (dict(self._directions), dict(self._alternatives))):
            before = after
            self._check_items(rule.body, frozenset())
        mode = self._modes[rule.head]
        for index, term in enumerate(rule.terms):
            allowed = BETTER_DIRECTION.get(mode.kind, 0) if index == mode.column else 0
            if self._direction(_candidate(term.term)) not in (0, allowed):
                raise self._not_monotone_error(term, f"column {index + 1} of {rule.head!r}")

    def _min_max_column(self, atom: Atom) -> int | None:
        """Return the column of an atom that is a minimum or maximum of this recursion."""
        mode = self._modes.get(atom.relation)
        return None if mode is None else mode.column

    def _column_directions(self, items: Items) -> dict[str, Direction]:
        """Return the directions of the variables that atoms bind to a minimum or maximum."""
        directions: dict[str, Direction] = {}
        for atom in walk(*items):
            if not isinstance(atom, Atom) or (column := self._min_max_column(atom)) is None:
                continue
            term = atom.terms[column]
            if not isinstance(term, Wildcard):
                self._check_column(atom, term)
                directions[cast(Variable, term).name] = BETTER_DIRECTION[
                    self._modes[atom.relation].kind
                ]
        return directions

    def _check_column(self, atom: Atom, term: Term) -> None:
        """Raise an error unless the term only binds a variable to a value that may get better."""
        mode = self._modes[atom.relation]
        atoms = _atoms_beside(self._rule.body, atom)
        occurrences = [node for node in walk(*(t for a in atoms for t in a.terms)) if node == term]
        if not isinstance(term, Variable) or len(occurrences) > 1:
            raise self._source.error(
                f"the {mode.kind} of {atom.relation!r} is compared for equality within its own "
                "recursion, and a better value would not be equal any more; join with it outside "
                f"of the recursion of {self._rule.head!r}",
                term.offset,
            )

    def _check_items(self, items: Items, outer: frozenset[str]) -> None:
        """Check a conjunction and find the directions of the variables that it assigns.

        Args:
            items: The conjunction, without ``and``.
            outer: The variables that the items around it bind.
        """
        other_items = tuple(item for item in items if not isinstance(item, Equation))
        equations = [item for item in items if isinstance(item, Equation)]
        names = outer | bound_variables(other_items, outer)
        size = -1
        while size < len(names):
            size = len(names)
            for equation in equations.copy():
                assignment = find_assignment(equation, names)
                if assignment is None:
                    continue
                variable, term = assignment
                direction = self._direction(term)
                if direction is None:
                    raise self._not_monotone_error(term, f"the value of {_name(variable.name)}")
                self._set_direction(variable.name, direction)
                names |= {variable.name}
                equations.remove(equation)
            names |= bound_variables(other_items, names)
        for item in (*other_items, *equations):
            if isinstance(item, Or):
                siblings = tuple(sibling for sibling in items if sibling is not item)
                self._check_alternatives(item, outer | bound_variables(siblings, outer))
            else:
                self._check_condition(item)

    def _check_alternatives(self, item: Or, outer: frozenset[str]) -> None:
        """Check the alternatives of an or; a variable may have another direction in each."""
        directions = self._directions
        results: list[dict[str, Direction]] = []
        for alternative in item.alternatives:
            own_names = bound_variables(alternative, outer) - outer
            known = self._alternatives.get(id(alternative))
            if known is None:
                known = self._column_directions(alternative)
            self._directions = {n: d for n, d in directions.items() if n not in own_names}
            self._directions |= {n: d for n, d in known.items() if n in own_names}
            self._check_items(alternative, outer)
            self._alternatives[id(alternative)] = self._directions
            results.append(self._directions)
        self._directions = {}
        for name in dict.fromkeys(name for result in results for name in result):
            self._set_direction(name, _combine([result.get(name, 0) for result in results]))

    def _set_direction(self, name: str, direction: Direction) -> None:
        if direction == 0:
            self._directions.pop(name, None)
        else:
            self._directions[name] = direction

    def _check_condition(self, item: Item) -> None:
        match item:
            case Atom() if self._min_max_column(item) is not None:
                return
            case Comparison(op=op, left=left, right=right) if op in ("<", "<=", ">", ">="):
                smaller, larger = (left, right) if op in ("<", "<=") else (right, left)
                if self._direction(smaller) in (0, -1) and self._direction(larger) in (0, 1):
                    return
        if not self._directions.keys().isdisjoint(variables_of(item)):
            raise self._not_monotone_error(item, "this condition")

    def _direction(self, term: Term) -> Direction:
        match term:
            case Variable(name=name):
                return self._directions.get(name, 0)
            case FunctionCall(function=function, arguments=arguments):
                directions = [self._direction(argument) for argument in arguments]
                if not any(d != 0 for d in directions):
                    return 0
                if function == "negate":
                    return _reverse(directions[0])
                if function == "subtract":
                    return _combine([directions[0], _reverse(directions[1])])
                if function in RISING_FUNCTIONS:
                    return _combine(directions)
                if function in SCALING_FUNCTIONS and len(arguments) == 2:
                    return _scale(function, arguments, directions)
                return None
        return 0

    def _not_monotone_error(self, node: HeadTerm | Item | Term, where: str) -> Exception:
        names = ", ".join(_name(n) for n in variables_of(node) if n in self._directions)
        kinds = {c.kind for c in self._modes.values() if c.column is not None}
        adjective = "better"
        if len(kinds) == 1:
            adjective = "smaller" if "min" in kinds else "larger"
        return self._source.error(
            f"{where} is not monotone in {names} in the recursion of "
            f"{self._rule.head!r}: a {adjective} value would delete a row that has been derived "
            f"already; pass it on by +, least, greatest or times a constant, compare it with a "
            f"bound that every {adjective} value satisfies, or use it outside of the recursion",
            node.offset,
        )


def _atoms_beside(items: Items, atom: Atom) -> list[Atom]:
    """Return the atom, and those that may hold together with it: not in other alternatives."""
    atoms: list[Atom] = []
    for item in items:
        if isinstance(item, Or):
            own = [part for part in item.alternatives if any(n is atom for n in walk(*part))]
            for part in own or item.alternatives:
                atoms += _atoms_beside(part, atom)
        else:
            atoms += [node for node in walk(item) if isinstance(node, Atom)]
    return atoms


def _name(variable: str) -> str:
    """Return the name of a variable in the text: a local variable has a number after it."""
    return repr(variable.partition("#")[0])


def _reverse(direction: Direction) -> Direction:
    return None if direction is None else -direction


def _combine(directions: Sequence[Direction]) -> Direction:
    """Return the direction of a sum of values with these directions."""
    changes = {direction for direction in directions if direction != 0}
    if not changes:
        return 0
    return changes.pop() if len(changes) == 1 else None


def _scale(function: str, arguments: Sequence[Term], directions: Sequence[Direction]) -> Direction:
    """Return the direction of a value times, or divided by, a constant."""
    constant_positions = (1, 0) if function == "multiply" else (1,)
    for position in constant_positions:
        sign = _sign(arguments[position])
        if sign is None or (sign == 0 and function != "multiply"):
            continue
        direction = directions[1 - position]
        return None if direction is None else direction * sign
    return None


def _sign(term: Term) -> int | None:
    """Return the sign of a constant; None for any other term."""
    match term:
        case TypedConstant(value=value) if (
            isinstance(value, int | float | Decimal) and value == value
        ):
            return (value > 0) - (value < 0)
        case FunctionCall(function="negate", arguments=(inner,)):
            sign = _sign(inner)
            return None if sign is None else -sign
    return None
