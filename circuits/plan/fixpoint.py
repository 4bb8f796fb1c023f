"""Fixpoint: plans of recursive views, the least solution of equations that name themselves.

::

    X_k = cut_k(body_k(X_1, …, X_n))        Fixpoint(names, bodies, cuts, index k)
    X_j within a body                       Recur(name)

The solution is the limit of the iterations ``X⁰ = ∅, Xⁱ⁺¹ = cut(body(Xⁱ))``. A cut says what is
kept of the rows that the body derives: each once (Datalog, UNION), all of them (UNION ALL), or per
key the least or the greatest value of a column (shortest paths). What makes a plan run is in
`circuits.plan.rewrite.iterated_rows` and `circuits.runtime.nested_circuit`.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from circuits.plan.columns import Field, Fields

if TYPE_CHECKING:
    from circuits.plan.nodes import Plan

__all__ = [
    "ITERATION",
    "MAX_ITERATIONS",
    "SET",
    "DistinctMode",
    "Fixpoint",
    "RecursiveDistinct",
    "RecursiveReference",
]

#: The last column of rows in a recursion: the iteration from which on a row is there.
ITERATION: Final = Field("#iteration", pa.int64(), nullable=False)

#: After so many iterations of a recursion that still changes a step is refused, unless said else.
MAX_ITERATIONS: Final = 10_000


@dataclass(frozen=True)
class DistinctMode:
    """What is kept of the rows that a body derives.

    Attributes:
        kind: "set": each row once. "bag": all. "min", "max": per value of the other columns the
            row with the least or greatest value in ``column``.
        column: Of "min" and "max".
    """

    kind: Literal["set", "bag", "min", "max"]
    column: int | None = None


SET: Final = DistinctMode("set")


@dataclass(frozen=True)
class RecursiveReference:
    """The rows of a recursive name, within its own recursion."""

    name: str
    fields: Fields


@dataclass(frozen=True)
class Fixpoint:
    """One of the relations that equations define together.

    Attributes:
        names: What the bodies call the relations.
        bodies: What each derives; those of all members are the same tuple, so that it is made once.
        cuts: What is kept of each.
        index: Which one of them this is.
    """

    names: tuple[str, ...]
    bodies: tuple[Plan, ...]
    cuts: tuple[DistinctMode, ...]
    index: int = 0

    @property
    def fields(self) -> Fields:
        return self.bodies[self.index].fields

    @property
    def cut(self) -> DistinctMode:
        """What is kept of its own rows."""
        return self.cuts[self.index]


@dataclass(frozen=True)
class RecursiveDistinct:
    """Lowered plans only: a cut in a recursion, of rows whose last column is the iteration."""

    input: Plan
    cut: DistinctMode

    @property
    def fields(self) -> Fields:
        return self.input.fields
