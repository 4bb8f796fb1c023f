"""Fixpoint: plans of recursive views, the least solution of equations that refer to themselves.

::

    X_k = mode_k(body_k(X_1, …, X_n))       Fixpoint(names, bodies, modes, index k)
    X_j within a body                       RecursiveReference(name)

For example, the nodes that can be reached along edges are ``X = distinct(start + X ⋈ edges)``. The
solution is the limit of the iterations ``X⁰ = ∅, Xⁱ⁺¹ = mode(body(Xⁱ))``. A `DistinctMode` says
which of the derived rows are kept: each once (Datalog, UNION), all of them (UNION ALL), or per key
the least or the greatest value of a column (shortest paths). `circuits.plan.rewrite.iterated_rows`
and `circuits.runtime.nested_circuit` execute a fixpoint.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

import pyarrow as pa

from circuits.plan.columns import Field, Fields
from circuits.plan.node import LeafNode, PlanNode, UnaryNode

__all__ = [
    "ITERATION",
    "MAX_ITERATIONS",
    "SET",
    "DistinctMode",
    "Fixpoint",
    "RecursiveDistinct",
    "RecursiveReference",
]

#: The last column of rows in a recursion: the iteration that first derives the row.
ITERATION: Final = Field("#iteration", pa.int64(), nullable=False)

#: The default limit of iterations per step. A recursion that has not converged by then fails.
MAX_ITERATIONS: Final = 10_000


@dataclass(frozen=True)
class DistinctMode:
    """The choice of the derived rows that a recursive relation keeps.

    Attributes:
        kind: "set": each row once. "bag": all. "min", "max": per value of the other columns the
            row with the least or greatest value in ``column``.
        column: The column of "min" and "max"; None for the others.
        keeps_null: For "min" and "max": True to keep a row with NULL in the column if its key has
            no other row; False to drop rows with NULL.
    """

    kind: Literal["set", "bag", "min", "max"]
    column: int | None = None
    keeps_null: bool = False

    def key(self) -> tuple[object, ...]:
        """Return what distinguishes the mode from others, and from other forms of its state."""
        if self.column is None:
            return self.kind, self.column, self.keeps_null
        return self.kind, self.column, self.keeps_null, "improvements"


SET: Final = DistinctMode("set")


@dataclass(frozen=True)
class RecursiveReference(LeafNode):
    """The rows of a recursive relation, within its own recursion."""

    name: str
    fields: Fields

    def key(self) -> tuple[object, ...]:
        return self.name, tuple(field.type for field in self.fields)

    def label(self) -> str:
        return f"rows of {self.name} so far ({', '.join(f.name for f in self.fields)})"

    def _may_be_null(self, column: int) -> bool:
        return self.fields[column].nullable


@dataclass(frozen=True)
class Fixpoint(PlanNode):
    """One of the relations that a set of recursive equations defines.

    Attributes:
        names: The names that bodies use for the relations.
        bodies: The plan of each relation. All relations of one recursion have the same tuple
            object, so that the recursion is built once.
        modes: The `DistinctMode` of each relation.
        index: The position of the relation whose rows the node has.
    """

    names: tuple[str, ...]
    bodies: tuple[PlanNode, ...]
    modes: tuple[DistinctMode, ...]
    index: int = 0

    @property
    def inputs(self) -> tuple[PlanNode, ...]:
        return self.bodies

    def with_inputs(self, inputs: Sequence[PlanNode]) -> Self:
        return replace(self, bodies=tuple(inputs))

    @property
    def fields(self) -> Fields:
        return self.bodies[self.index].fields

    @property
    def mode(self) -> DistinctMode:
        """The derived rows that this relation keeps."""
        return self.modes[self.index]

    def key(self) -> tuple[object, ...]:
        return self.names, tuple(mode.key() for mode in self.modes), self.index

    def label(self) -> str:
        return f"recursion of {', '.join(self.names)}: {self.names[self.index]}"

    def _may_be_null(self, column: int) -> bool:
        return self.fields[column].nullable


@dataclass(frozen=True)
class RecursiveDistinct(UnaryNode):
    """Physical plans only: applies a `DistinctMode` to rows whose last column is the iteration."""

    mode: DistinctMode

    def key(self) -> tuple[object, ...]:
        return self.mode.key()

    def label(self) -> str:
        if self.mode.column is not None:
            return f"{self.mode.kind}({self.fields[self.mode.column].name}) by the other columns"
        return "each row once" if self.mode.kind == "set" else "all rows"

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column)
