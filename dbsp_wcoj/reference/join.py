"""The readable generic join: count, propose, intersect, emit.

::

    solve(extenders, levels)           one-shot, set semantics, any extenders
    reference_join(query, relations)   weighted, one relation per atom

``reference_join`` is the oracle of the compiled join: exact Python integers, any ordered values,
no code shared with the kernels. A delta term of a formula is the same join over other views, so
``reference_join`` takes one relation per *atom*: an old, a delta or a new one for each.

The join runs depth first, so its memory is one prefix and one list of extensions per level.

Cost: because the extender with the smallest count proposes for each prefix, the join processes
O(AGM(query)) values, each with one hash look-up per atom.

References:
    Ngo, Ré, Rudra. Skew Strikes Back. SIGMOD Record 42(4), 2013, section 3. arXiv:1310.3314
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from dbsp_wcoj.errors import (
    ArityError,
    UnknownRelationError,
    UnsafeVariableError,
    VariableOrderError,
)
from dbsp_wcoj.query import Query
from dbsp_wcoj.reference.connectives import Filter
from dbsp_wcoj.reference.extenders import PrefixExtender, RelationExtender, Row

__all__ = ["reference_join", "solve"]

Relation: TypeAlias = Mapping[Row, int]


def solve(extenders: Sequence[PrefixExtender], levels: int) -> Iterator[Row]:
    """Yield all rows over ``levels`` variables that satisfy every extender.

    Args:
        extenders: Relations, filters and connectives; each variable is bound by one that proposes.
        levels: The number of variables.

    Returns:
        The rows, each once; ascending where only relations propose.

    Raises:
        UnsafeVariableError: A variable is bound by no extender.
        VariableOrderError: An extender has a level that does not exist.

    Complexity:
        O(AGM bound * extenders) for relations; connectives add their own number of children.

    >>> even = RelationExtender([(0,), (2,), (4,)], [0])
    >>> after = RelationExtender([(0, 1), (1, 2), (2, 3), (2, 4)], [0, 1])
    >>> list(solve([even, after], 2))
    [(0, 1), (2, 3), (2, 4)]
    """
    for extender in extenders:
        if extender.levels[-1] >= max(levels, 1):
            raise VariableOrderError(
                f"an extender has level {extender.levels[-1]}, but the order has {levels} "
                f"variables, from level 0; give it a smaller level or the order more variables"
            )
    participants = [[e for e in extenders if e.participates(level)] for level in range(levels)]
    for level, present in enumerate(participants):
        if not present:
            raise UnsafeVariableError(
                f"level {level} of {levels} meets no extender; bind its variable in an atom"
            )
    # Without variables nothing is proposed; any value shows whether the constant atoms hold.
    if levels == 0 and not all(extender.intersect((), [None]) for extender in extenders):
        return iter(())
    return _extend((), participants)


def _extend(prefix: Row, participants: Sequence[Sequence[PrefixExtender]]) -> Iterator[Row]:
    level = len(prefix)
    if level == len(participants):
        yield prefix  # emit
        return
    proposer = min(participants[level], key=lambda extender: extender.count(prefix))
    extensions = proposer.propose(prefix)
    for extender in participants[level]:
        if extender is not proposer:
            extensions = extender.intersect(prefix, extensions)
    for extension in extensions:
        yield from _extend((*prefix, extension), participants)


def reference_join(
    query: Query,
    relations: Mapping[str, Relation] | Sequence[Relation],
    *,
    order: Sequence[str] | None = None,
) -> dict[Row, int]:
    """Evaluate a query over weighted relations.

    Args:
        query: The query.
        relations: Weight by row; by relation name, or one for each atom in body order.
        order: A permutation of ``query.variables``; by default in order of occurrence.

    Returns:
        Weight by row of the head, without zeros: the sum, over the bindings of all variables, of
        the product of the weights of the joined rows.

    Raises:
        VariableOrderError: ``order`` is not a permutation of the variables.
        UnknownRelationError: A relation of the query is missing from the mapping.
        ArityError: Not one relation per atom, or a row of another arity than its atom.
        WeightError: A weight is not an integer.
        ColumnTypeError: Values that are joined or compared have no order.

    Complexity:
        O(AGM(query) * atoms) after O(N log N) for the tries, N = rows of all atoms.

    >>> query = Query.parse("tri(a, b, c) :- e(a, b), e(b, c), e(a, c)")
    >>> edges = {(1, 2): 1, (2, 3): 2, (1, 3): 1, (3, 4): 1}
    >>> reference_join(query, {"e": edges})
    {(1, 2, 3): 2}
    >>> reference_join(query, [edges, edges, {(1, 3): -1}], order=["c", "a", "b"])
    {(1, 2, 3): -2}
    """
    order = query.variables if order is None else tuple(order)
    if sorted(order) != sorted(query.variables):
        raise VariableOrderError(
            f"order {list(order)} is not a permutation of {list(query.variables)}; "
            f"give each variable of '{query}' once"
        )
    atoms = [
        RelationExtender.for_atom(atom, relation, order)
        for atom, relation in zip(query.body, _per_atom(query, relations), strict=True)
    ]
    filters = [Filter.for_comparison(comparison, order) for comparison in query.comparisons]
    head = [order.index(name) for name in query.head]
    # Q(head) = Σ over all bindings of  Π over atoms of  weight(row)
    answer: defaultdict[Row, int] = defaultdict(int)
    for binding in solve([*atoms, *filters], len(order)):
        weight = math.prod(atom.weight(binding) for atom in atoms)
        answer[tuple(binding[level] for level in head)] += weight
    return {row: weight for row, weight in answer.items() if weight}


def _per_atom(
    query: Query, relations: Mapping[str, Relation] | Sequence[Relation]
) -> Sequence[Relation]:
    if isinstance(relations, Mapping):
        missing = [name for name in query.relations if name not in relations]
        if missing:
            raise UnknownRelationError(
                f"relations {missing} of '{query}' are not among {sorted(relations)}; "
                f"give each one, {{}} if it is empty"
            )
        return [relations[atom.relation] for atom in query.body]
    if len(relations) != len(query.body):
        raise ArityError(
            f"{len(relations)} relations for the {len(query.body)} atoms of '{query}'; "
            f"give one per atom"
        )
    return relations
