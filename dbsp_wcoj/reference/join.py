"""The readable generic join: count, propose, intersect, emit.

::

    solve(extenders, levels)           sets of rows, any extenders
    reference_join(query, relations)   weighted rows, one relation per atom

The join binds one variable after the other. *Level* ``k`` is the ``k``-th variable of the order. A
prefix is a row of values for the first levels, and an extension is a value for the next one. An
extender is a relation or filter that can add the next variable to a prefix. For each prefix, the
join asks every extender of the level how many extensions it has (count). The one with the fewest
lists them (propose), and the others remove those that they do not contain (intersect).

``reference_join`` is the oracle of the compiled join: tests compare the results of both. It uses
exact Python integers and any ordered values, and shares no code with the kernels.

The change of a join is a sum of terms. Each term is the same join, but for each atom it reads the
old relation, the delta or the new relation. So ``reference_join`` accepts one relation per *atom*,
not only one per name.

The join proceeds depth first, so its memory is one prefix and one list of extensions per level.

Cost: the join processes O(AGM(query)) values, each with one hash look-up per atom, because the
extender with the smallest count proposes. AGM(query) is the largest possible number of result rows
for relations of the given sizes.

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
        extenders: Relations, filters and connectives (and, or, not). For each variable, one of them
            must be able to propose values.
        levels: The number of variables.

    Returns:
        The rows, each once. They are in ascending order if only relations propose.

    Raises:
        UnsafeVariableError: A variable is bound by no extender.
        VariableOrderError: An extender has a level that does not exist.

    Complexity:
        O(AGM bound * extenders) for relations; a connective counts as all of its children.

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
    for level, participants_of_level in enumerate(participants):
        if not participants_of_level:
            raise UnsafeVariableError(
                f"level {level} of {levels} meets no extender; bind its variable in an atom"
            )
    # A query without variables has only atoms such as ``e(1, 2)``. Such an atom takes part at level
    # 0 and keeps every value if its row exists, so one value tests it, such as None.
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
        relations: Each relation maps its rows to their weights. Give a mapping from names to
            relations, or a sequence of one relation per atom, in the order of the body.
        order: A permutation of ``query.variables``, by default the order of their occurrence.

    Returns:
        The rows of the head with their weights, without zero weights. The weight of a row is a sum
        over all bindings of the variables; each adds the product of the weights of the joined rows.

    Raises:
        VariableOrderError: ``order`` is not a permutation of the variables.
        UnknownRelationError: A relation of the query is missing from the mapping.
        ArityError: The number of relations differs from the number of atoms, or a row has another
            arity than its atom.
        WeightError: A weight is not an integer.
        ColumnTypeError: Values that are joined or compared cannot be ordered.

    Complexity:
        O(N log N) to build the tries of the atoms, where N is the number of rows of all atoms, then
        O(AGM(query) * atoms) for the join.

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
