"""Conditions and the connectives or, and, not, as prefix extenders.

A prefix extender (`dbsp_wcoj.reference.extenders`) tells the join which values of the next variable
a relation has. Each connective is an extender that consists of extenders, its children. So
connectives can be nested, and the join treats them like relations [1]:

- ``Filter``: a condition on bound values, such as ``a < b``; it can only intersect.
- ``Or``: the union of its children; it counts their sum.
- ``And``: the intersection of its children; the child with the smallest count proposes.
- ``Not``: the complement of the conjunction of its children; it can only intersect, on the last
  level of its children, where all their variables are bound.

A child participates in a level if it contains the variable of that level. If a child of ``And``
does not participate in a level, ``And`` asks it again whether it accepts the prefix up to the last
level in which it does participate. Without this check, which [1] does not make, the branch
``and(p(x), q(y))`` of an ``or`` would also extend values of ``x`` that are not in p but come from
another branch. A child of ``Or`` that does not participate in a level accepts every extension
there, if the prefix can still satisfy it: for example, ``or(not(r(x, y)), s(x, y))`` must not
restrict ``x``.

The connectives have set semantics, for one-shot queries. Circuits evaluate or, and, not
incrementally, as union, join and antijoin.

References:
    [1] Datalog and GenericJoin, the hooray2 project, 2025 (the extenders for or, and, not).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self, cast

from dbsp_wcoj.errors import ArityError, ColumnTypeError, UnsafeVariableError, VariableOrderError
from dbsp_wcoj.query import Comparison, Constant, Variable
from dbsp_wcoj.reference.extenders import Prefix, PrefixExtender

__all__ = ["And", "Filter", "Not", "Or"]


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on values that other extenders bind.

    Args:
        arguments: The levels of the predicate's arguments, in parameter order.
        predicate: A pure function of those values.

    >>> Filter((1, 0), lambda b, a: b > a).intersect((3,), [2, 3, 4])
    [4]
    """

    arguments: tuple[int, ...]
    predicate: Callable[..., bool]

    @classmethod
    def for_comparison(cls, comparison: Comparison, order: Sequence[str]) -> Self:
        """Build the filter of a comparison such as ``a < b`` or ``a < 5``.

        Its predicate raises ``ColumnTypeError`` for two values that have no order.

        Args:
            comparison: Two sides and an operator.
            order: Variable order of the join.

        Raises:
            VariableOrderError: A compared variable is not in ``order``.

        >>> from dbsp_wcoj.query import Query
        >>> [comparison] = Query.parse("q(a) :- r(a), a != 2").comparisons
        >>> Filter.for_comparison(comparison, ["a"]).intersect((), [1, 2, 3])
        [1, 3]
        """
        names = comparison.variables
        if not set(names) <= set(order):
            raise VariableOrderError(
                f"variables of '{comparison}' are not all in the order {list(order)}; add them"
            )

        def predicate(*values: Any) -> bool:
            bound = dict(zip(names, values, strict=True))
            left, right = (
                bound[side.name] if isinstance(side, Variable) else cast(Constant, side).value
                for side in (comparison.left, comparison.right)
            )
            try:
                return comparison.holds(left, right)
            except TypeError:
                raise ColumnTypeError(
                    f"'{comparison}' meets {left!r} and {right!r}, which have no order; "
                    f"compare values of one type, or use == or !="
                ) from None

        return cls(tuple(order.index(name) for name in names), predicate)

    @property
    def levels(self) -> tuple[int, ...]:
        """The level that binds the last argument."""
        return (max(self.arguments, default=0),)

    def participates(self, level: int) -> bool:
        """Return whether this level binds the last argument."""
        return level in self.levels

    def count(self, prefix: Prefix) -> float:
        """Infinite: a condition cannot enumerate its values."""
        return math.inf

    def propose(self, prefix: Prefix) -> list[Any]:
        """Raise an error: a condition cannot propose.

        Raises:
            UnsafeVariableError: Always; no atom binds the variable of this level.
        """
        _raise_unsafe(prefix)

    def intersect(self, prefix: Prefix, extensions: Sequence[Any]) -> list[Any]:
        """The extensions for which the predicate is true.

        Complexity:
            O(len(extensions)) calls.
        """
        return [
            extension
            for extension in extensions
            if self.predicate(*((*prefix, extension)[level] for level in self.arguments))
        ]


@dataclass(frozen=True, slots=True)
class Or:
    """The union of its children.

    Args:
        children: Alternatives, at least one; normally over the same variables.

    Raises:
        ArityError: There is no child.

    >>> from dbsp_wcoj.reference.extenders import RelationExtender
    >>> either = Or([RelationExtender([(4,), (8,)], [0]), RelationExtender([(6,), (8,)], [0])])
    >>> either.count(()), either.propose(()), either.intersect((), [5, 6, 8])
    (4, [4, 8, 6], [6, 8])
    """

    children: Sequence[PrefixExtender]

    def __post_init__(self) -> None:
        _check_children(self)

    @property
    def levels(self) -> tuple[int, ...]:
        """All levels of the children."""
        return _union_of_levels(self.children)

    def participates(self, level: int) -> bool:
        """Return whether any child participates in this level."""
        return any(child.participates(level) for child in self.children)

    def count(self, prefix: Prefix) -> float:
        """The sum of the children's counts, because all may propose different extensions.

        Infinite on a level in which a child does not participate, because it accepts all values.
        """
        level = len(prefix)
        return sum(
            child.count(prefix) if child.participates(level) else math.inf
            for child in self.children
        )

    def propose(self, prefix: Prefix) -> list[Any]:
        """The extensions that any child proposes, each once.

        Raises:
            UnsafeVariableError: A child does not bind the variable.
        """
        if not all(child.participates(len(prefix)) for child in self.children):
            _raise_unsafe(prefix)
        return list(dict.fromkeys(e for child in self.children for e in child.propose(prefix)))

    def intersect(self, prefix: Prefix, extensions: Sequence[Any]) -> list[Any]:
        """The extensions that at least one child accepts."""
        allowed: set[Any] = set()
        for child in self.children:
            allowed.update(
                _filter_extensions(child, prefix, [e for e in extensions if e not in allowed])
            )
        return [extension for extension in extensions if extension in allowed]


@dataclass(frozen=True, slots=True)
class And:
    """The intersection of its children; for use inside ``Or`` and ``Not``.

    Args:
        children: Conjuncts, at least one.

    Raises:
        ArityError: There is no child.

    >>> from dbsp_wcoj.reference.extenders import RelationExtender
    >>> both = And([RelationExtender([(4,), (8,)], [0]), RelationExtender([(6,), (8,)], [0])])
    >>> both.count(()), both.propose(()), both.intersect((), [5, 6, 8])
    (2, [8], [8])
    """

    children: Sequence[PrefixExtender]

    def __post_init__(self) -> None:
        _check_children(self)

    @property
    def levels(self) -> tuple[int, ...]:
        """All levels of the children."""
        return _union_of_levels(self.children)

    def participates(self, level: int) -> bool:
        """Return whether any child participates in this level."""
        return any(child.participates(level) for child in self.children)

    def count(self, prefix: Prefix) -> float:
        """The smallest count of the children that participate in the level."""
        level = len(prefix)
        counts = (child.count(prefix) for child in self.children if child.participates(level))
        return min(counts, default=math.inf)

    def propose(self, prefix: Prefix) -> list[Any]:
        """The extensions that the child with the smallest count proposes and all others accept.

        Raises:
            UnsafeVariableError: No child binds the variable.
        """
        participants = [child for child in self.children if child.participates(len(prefix))]
        if not participants:
            _raise_unsafe(prefix)
        proposer = min(participants, key=lambda child: child.count(prefix))
        extensions = proposer.propose(prefix)
        for child in self.children:
            if child is not proposer:
                extensions = _filter_extensions(child, prefix, extensions)
        return extensions

    def intersect(self, prefix: Prefix, extensions: Sequence[Any]) -> list[Any]:
        """The extensions that all children accept."""
        remaining = list(extensions)
        for child in self.children:
            remaining = _filter_extensions(child, prefix, remaining)
        return remaining


@dataclass(frozen=True, slots=True)
class Not:
    """The complement of the intersection of its children: ``not(child, child)``.

    Args:
        children: Conjuncts, at least one; other extenders must bind all their variables.

    Raises:
        ArityError: There is no child.

    >>> from dbsp_wcoj.reference.extenders import RelationExtender
    >>> blocked = RelationExtender([("Ada", "UK"), ("Bob", "US")], [0, 1])
    >>> Not([blocked]).intersect(("Ada",), ["DE", "UK"])
    ['DE']
    """

    children: Sequence[PrefixExtender]

    def __post_init__(self) -> None:
        _check_children(self)

    @property
    def levels(self) -> tuple[int, ...]:
        """The last level of the children, where all their variables are bound."""
        return _union_of_levels(self.children)[-1:]

    def participates(self, level: int) -> bool:
        """Return whether this is the last level of the children."""
        return level in self.levels

    def count(self, prefix: Prefix) -> float:
        """Infinite: the complement cannot be enumerated."""
        return math.inf

    def propose(self, prefix: Prefix) -> list[Any]:
        """Raise an error: a negation cannot propose.

        Raises:
            UnsafeVariableError: Always; the variable is bound only inside the negation.
        """
        _raise_unsafe(prefix)

    def intersect(self, prefix: Prefix, extensions: Sequence[Any]) -> list[Any]:
        """The extensions that at least one child rejects."""
        removed = set(And(self.children).intersect(prefix, extensions))
        return [extension for extension in extensions if extension not in removed]


def _filter_extensions(
    child: PrefixExtender, prefix: Prefix, extensions: Sequence[Any]
) -> list[Any]:
    """The extensions that a child accepts.

    A child that does not participate accepts all, if the prefix can still satisfy it.
    """
    if child.participates(len(prefix)):
        return child.intersect(prefix, extensions)
    return list(extensions) if _holds(child, prefix) else []


def _holds(child: PrefixExtender, prefix: Prefix) -> bool:
    """Return whether a child accepts the prefix up to the last level in which it participates."""
    past = [level for level in child.levels if level < len(prefix)]
    return not past or bool(child.intersect(prefix[: past[-1]], [prefix[past[-1]]]))


def _union_of_levels(children: Sequence[PrefixExtender]) -> tuple[int, ...]:
    return tuple(sorted({level for child in children for level in child.levels}))


def _check_children(connective: Or | And | Not) -> None:
    if not connective.children:
        name = type(connective).__name__
        raise ArityError(f"{name} has 0 children; give it at least 1")


def _raise_unsafe(prefix: Prefix) -> NoReturn:
    raise UnsafeVariableError(
        f"level {len(prefix)} meets only conditions and negations; bind its variable in an atom "
        f"outside of them"
    )
