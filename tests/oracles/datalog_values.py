"""Terms and conditions as functions of Python values, for one-shot queries.

As in a plan, the types of the values determine the expression: it is built once for each
combination of types, and `circuits.runtime.evaluation` evaluates it on columns of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from circuits.datalog.program import Comparison, Condition, Equation, Term, Variable
from circuits.datalog.source import DatalogSource
from circuits.datalog.terms import build_comparison, build_expression
from circuits.plan.expressions import Column, Expression
from circuits.runtime.evaluation import evaluate

__all__ = ["Null", "Valuation", "plain"]


class Null:
    """NULL at one place: equals only the NULL of that place, and sorts before every value.

    >>> Null("a") == Null("a"), Null("a") == Null("b"), sorted([3, Null("a")])
    (True, False, [NULL, 3])
    """

    __slots__ = ("place",)

    def __init__(self, place: Hashable) -> None:
        self.place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Null) and other.place == self.place

    def __hash__(self) -> int:
        return hash((Null, self.place))

    def __lt__(self, other: object) -> bool:
        return not isinstance(other, Null) or repr(self.place) < repr(other.place)

    def __gt__(self, other: object) -> bool:
        return isinstance(other, Null) and other < self

    def __repr__(self) -> str:
        return "NULL"


def plain(value: Any) -> Any:
    """Return the value; None for a `Null`."""
    return None if isinstance(value, Null) else value


class Valuation:
    """A term as a function of the values of ``names``; None is NULL.

    >>> from circuits.datalog.parser import parse
    >>> [term, _] = [t.term for t in parse("q(x * 2, x) :- d(x).").rules[0].terms]
    >>> Valuation(term, ("x",), DatalogSource(""))(21)
    42
    """

    __slots__ = ("_build", "_direct", "_expressions", "_names")

    def __init__(self, term: Term, names: Sequence[str], source: DatalogSource) -> None:
        self._names = tuple(names)
        self._direct: Callable[..., Any] | None = None
        self._build: Callable[[Mapping[str, Expression]], Expression] = lambda scope: (
            build_expression(term, scope, source)
        )
        self._expressions: dict[tuple[pa.DataType, ...], Expression] = {}
        if isinstance(term, Variable):
            index = self._names.index(term.name)
            self._direct = lambda *values: values[index]

    @classmethod
    def of_condition(
        cls, item: Comparison | Equation | Condition, names: Sequence[str], source: DatalogSource
    ) -> Valuation:
        """Return a comparison or a condition as a function that returns a boolean."""
        if isinstance(item, Condition):
            return cls(item.term, names, source)
        valuation = cls(item.left, names, source)
        left, right, op, offset = item.left, item.right, item.op, item.offset
        valuation._build = lambda scope: build_comparison(
            op,
            build_expression(left, scope, source),
            build_expression(right, scope, source),
            source,
            offset,
        )
        valuation._direct = None
        return valuation

    def __call__(self, *values: Any) -> Any:
        if self._direct is not None:
            return self._direct(*values)
        arrays = [pa.array([plain(value)]) for value in values]
        types = tuple(array.type for array in arrays)
        if types not in self._expressions:
            columns = (Column(index, data_type) for index, data_type in enumerate(types))
            self._expressions[types] = self._build(dict(zip(self._names, columns, strict=True)))
        return evaluate(self._expressions[types], arrays, 1)[0].as_py()
