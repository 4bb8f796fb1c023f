"""TemporalFilter: the rows that a comparison with the current time selects.

``WHERE ts > now() - INTERVAL '1 hour'`` selects other rows as time advances. The comparison has
the form ``value op bound``: ``value`` is an expression over the row, ``bound`` a non-decreasing
function of the time of the step. So the bound passes the value of a row once. With ``<`` or ``<=``
the row is inserted then, with ``>`` or ``>=`` it is deleted. A condition with two
bounds is two nodes, one over the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from circuits.plan.expression_text import label
from circuits.plan.expressions import Expression
from circuits.plan.node import UnaryNode

__all__ = ["TemporalComparison", "TemporalFilter"]

TemporalComparison = Literal["lt", "le", "gt", "ge"]

_SYMBOLS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True)
class TemporalFilter(UnaryNode):
    """The rows for which ``value`` compares with ``bound`` at the time of the step.

    Attributes:
        value: An expression over the input's columns, a timestamp or a date. A row in which it is
            NULL is never selected.
        comparison: The comparison, with ``value`` on the left.
        bound: A non-decreasing function of the time of the step, which is its column 0; of the type
            of ``value``.
    """

    value: Expression
    comparison: TemporalComparison
    bound: Expression

    reads_now: ClassVar[bool] = True

    @property
    def state_limit(self) -> str:
        return "rows that now() has not passed yet"

    def key(self) -> tuple[object, ...]:
        return self.value, self.comparison, self.bound

    def label(self) -> str:
        value = label(self.value, [field.name for field in self.input.fields])
        return f"temporal filter {value} {_SYMBOLS[self.comparison]} {label(self.bound, ['now'])}"

    def _may_be_null(self, column: int) -> bool:
        return self.input.is_nullable(column)
