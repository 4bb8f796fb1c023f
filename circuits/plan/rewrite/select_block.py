"""Select block: a flat SELECT … FROM … WHERE: atoms, predicates over their columns, outputs.

``SELECT a.x FROM a, b WHERE a.y = b.y``, for a(x, y) and b(y, z), has the atoms ``a`` and ``b``,
the predicate "column 1 = column 2" and the output "column 0".

Nested CrossJoin, Filter, Map, Semijoin and left OuterJoin nodes become one block, and a block
becomes one N-way join (`circuits.plan.rewrite.join_planning`). The columns of all atoms are
numbered consecutively, so that adding an atom at the end changes no expression. The right side of a
left OuterJoin becomes an atom with a row of NULLs for each key without a match, joined by a
predicate like any other (`circuits.plan.rewrite.outer_joins`). Every other node (Aggregate,
Distinct, Union, TopK) is an atom.

Each of ``antijoins`` removes the rows of the block whose keys are in a set D::

    block ▷ D  =  block - block ⋈ D
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate

from circuits.plan.expressions import Call, Column, Expression, columns_of, conjuncts, substitute
from circuits.plan.nodes import PlanNode, columns
from circuits.plan.rewrite.nullability import is_nullable

__all__ = ["AntijoinOperand", "SelectBlock"]


@dataclass(frozen=True)
class AntijoinOperand:
    """The right side of an antijoin.

    Attributes:
        plan: A set of rows.
        keys: Expressions over the block's columns. A row of the block whose keys are a row of
            ``plan`` is removed.
    """

    plan: PlanNode
    keys: tuple[Expression, ...]


@dataclass(frozen=True)
class SelectBlock:
    """The ``outputs`` of all combinations of the atoms' rows for which the predicates are true."""

    atoms: tuple[PlanNode, ...]
    predicates: tuple[Expression, ...]
    antijoins: tuple[AntijoinOperand, ...]
    outputs: tuple[Expression, ...]

    @classmethod
    def of(cls, plan: PlanNode) -> SelectBlock:
        """Return the block of one atom."""
        return cls((plan,), (), (), columns(plan))

    @property
    def width(self) -> int:
        """The number of columns of all atoms."""
        return sum(len(atom.fields) for atom in self.atoms)

    @property
    def starts(self) -> tuple[int, ...]:
        """The number of the first column of each atom."""
        widths = [len(atom.fields) for atom in self.atoms]
        return tuple(accumulate(widths[:-1], initial=0)) if widths else ()

    def is_nullable(self, output: int) -> bool:
        """Return False if an output is never NULL."""
        expression = self.outputs[output]
        if not isinstance(expression, Column):
            return True
        (atom,) = self.atoms_of([expression])
        local = Column(expression.index - self.starts[atom], expression.type)
        return is_nullable(self.atoms[atom], local)

    def where(self, *predicates: Expression) -> SelectBlock:
        """Return the block with further predicates over its outputs."""
        added = [substitute(p, self.outputs) for p in conjuncts(predicates)]
        return replace(self, predicates=(*self.predicates, *added))

    def select(self, expressions: Sequence[Expression]) -> SelectBlock:
        """Return the block with other outputs, given as expressions over its current outputs."""
        return replace(self, outputs=tuple(substitute(e, self.outputs) for e in expressions))

    def times(self, other: SelectBlock) -> SelectBlock:
        """Return the cross product with another block; the outputs of ``other`` are last."""
        width = self.width

        def shift(expression: Expression) -> Expression:
            return substitute(expression, lambda c: Column(c.index + width, c.type))

        antijoins = tuple(
            AntijoinOperand(a.plan, tuple(map(shift, a.keys))) for a in other.antijoins
        )
        return SelectBlock(
            self.atoms + other.atoms,
            self.predicates + tuple(map(shift, other.predicates)),
            self.antijoins + antijoins,
            self.outputs + tuple(map(shift, other.outputs)),
        )

    def atoms_of(self, expressions: Sequence[Expression]) -> frozenset[int]:
        """Return the numbers of the atoms whose columns the expressions read."""
        owner = [i for i, atom in enumerate(self.atoms) for _ in atom.fields]
        return frozenset(owner[c] for e in expressions for c in columns_of(e))

    def part_with(self, outputs: Sequence[Expression]) -> SelectBlock:
        """Return a block of few atoms that has all values of ``outputs``, and maybe more.

        If the atoms that the outputs read are equal to each other only by way of other atoms, these
        are included; otherwise the part would be a Cartesian product.
        """
        return self._part(self._connected(self.atoms_of(outputs)), outputs)

    def _connected(self, atoms: frozenset[int]) -> frozenset[int]:
        """Return the atoms, and those on shortest paths of equalities between them."""
        neighbors: dict[int, set[int]] = {}
        for predicate in self.predicates:
            if isinstance(predicate, Call) and predicate.function in ("eq", "same"):
                sides = [self.atoms_of([side]) for side in predicate.arguments]
                if all(len(side) == 1 for side in sides) and sides[0] != sides[1]:
                    (left,), (right,) = sides
                    neighbors.setdefault(left, set()).add(right)
                    neighbors.setdefault(right, set()).add(left)
        added: set[int] = set()
        remaining = set(atoms)
        while remaining:
            start = min(remaining)
            remaining.remove(start)
            connected = {start}
            while path := _shortest_path(neighbors, connected, remaining):
                connected.update(path)
                remaining.difference_update(path)
            added |= connected
        return frozenset(added)

    def _part(self, atoms: frozenset[int], outputs: Sequence[Expression]) -> SelectBlock:
        """Return a block of some of the atoms, with the predicates that read only these atoms.

        Every row of the block extends a row of the part, so the part has all values of ``outputs``
        that the block has, and maybe more.
        """
        position: dict[int, int] = {}
        for atom in sorted(atoms):
            for column in range(len(self.atoms[atom].fields)):
                position[self.starts[atom] + column] = len(position)

        def renumber(expression: Expression) -> Expression:
            return substitute(expression, lambda c: Column(position[c.index], c.type))

        return SelectBlock(
            tuple(self.atoms[i] for i in sorted(atoms)),
            tuple(renumber(p) for p in self.predicates if columns_of(p) <= position.keys()),
            (),
            tuple(map(renumber, outputs)),
        )


def _shortest_path(
    neighbors: Mapping[int, Set[int]], starts: Set[int], targets: Set[int]
) -> Sequence[int]:
    """Return the nodes after the start of a shortest path to a target; none if there is no path.

    Complexity:
        O(edges), and copying the path to each node.
    """
    paths: dict[int, tuple[int, ...]] = dict.fromkeys(sorted(starts), ())
    queue = deque(paths)
    while queue:
        node = queue.popleft()
        if node in targets:
            return paths[node]
        for neighbor in sorted(neighbors.get(node, ())):
            if neighbor not in paths:
                paths[neighbor] = (*paths[node], neighbor)
                queue.append(neighbor)
    return ()
