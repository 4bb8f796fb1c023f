"""Structural hash: identifies a sub-plan by what it computes, not by its position or its names.

::

    hash(node)  =  sha256(class of the node, its key, hash of each input, hash of each reference)

Equal sub-plans are one operator of the graph: this is common-subexpression elimination. The hash
also names the state of the operator, so a state directory stays valid when other views are added,
dropped or reordered. It is the same in every process and Python version, because it is computed
from a canonical text of the values. It does not depend on names of columns, nor on the order of the
inputs of a commutative node, as of a UNION ALL.

A hash, not a tuple of Python values, because Python calls values equal that are not: ``0.0`` and
``-0.0``, ``1`` and ``True``; and NaN differs from itself.

Recursion: a `RecursiveReference` means the relation of one particular recursion. So the hash of the
recursion (of its relations' names, bodies and modes) replaces the reference's own, where the graph
builds the recursion.

Cost: O(nodes), each node once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Final

import pyarrow as pa

from circuits.plan.expressions import Call, Column, Literal
from circuits.plan.fixpoint import Fixpoint
from circuits.plan.node import PlanNode

__all__ = ["PlanHasher", "hash_values", "structural_hash"]

_PLAIN: Final = (bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta)


class PlanHasher:
    """Computes the hashes of plans; a plan is a DAG, so it visits each node once.

    Args:
        resolve: Returns the hash that replaces a node's own, or None; as for a Scan of a view,
            which is the same as the plan of the view.
    """

    def __init__(self, resolve: Callable[[PlanNode], str | None] = lambda plan: None) -> None:
        self._resolve = resolve
        # By the ``id`` of a node, which stays unique as long as the node is referenced here.
        self._known: dict[int, tuple[str, PlanNode]] = {}

    def hash(self, plan: PlanNode) -> str:
        """The hash of a plan, in 64 hexadecimal digits."""
        known = self._known.get(id(plan))
        if known is None:
            known = self._known[id(plan)] = self._hash(plan), plan
        return known[0]

    def hash_recursion(self, plan: Fixpoint) -> str:
        """The hash of a recursion, the same for each of its relations and any order of them."""
        return hash_values(
            "recursion",
            sorted(
                (name, mode.kind, mode.column if mode.column is not None else "", self.hash(body))
                for name, mode, body in zip(plan.names, plan.modes, plan.bodies, strict=True)
            ),
        )

    def _hash(self, plan: PlanNode) -> str:
        found = self._resolve(plan)
        if found is not None:
            return found
        inputs = [self.hash(below) for below in plan.inputs]
        return structural_hash(plan, inputs, [self.hash(one) for one in plan.references])


def structural_hash(plan: PlanNode, inputs: Sequence[str], references: Sequence[str] = ()) -> str:
    """The hash of a node over inputs and references of these hashes.

    >>> from circuits.plan.nodes import Field, Negate, Scan
    >>> e = Scan("e", (Field("src", pa.int64()),))
    >>> structural_hash(e, ())[:16]
    '79aa7b068d9f91fd'
    >>> structural_hash(Negate(e), ("1f",)) == structural_hash(Negate(Negate(e)), ("1f",))
    True
    """
    ordered = sorted(inputs) if plan.is_commutative else inputs
    return hash_values(type(plan).__name__, plan.key(), tuple(ordered), tuple(references))


def hash_values(*values: object) -> str:
    """The hash of values: of None, numbers, texts, dates, types, expressions, and lists of these.

    Raises:
        TypeError: A value is of another class, whose text might not identify it.

    >>> hash_values(0.0) == hash_values(-0.0), hash_values(1) == hash_values(True)
    (False, False)
    """
    parts: list[str] = []
    _write(values, parts)
    return sha256("".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _write(value: object, parts: list[str]) -> None:
    """Append a text of the value that no other value has."""
    if value is None or isinstance(value, _PLAIN):
        text = repr(value)
        parts.append(f"{type(value).__name__}:{len(text)}:{text};")
    elif isinstance(value, pa.DataType):
        parts.append(f"type:{len(str(value))}:{value};")
    elif isinstance(value, Column):
        _write(("column", value.index, value.type), parts)
    elif isinstance(value, Literal):
        _write(("literal", value.value, value.type), parts)
    elif isinstance(value, Call):
        _write(("call", value.function, value.arguments, value.type), parts)
    elif isinstance(value, tuple | list):
        parts.append(f"{len(value)}(")
        for one in value:
            _write(one, parts)
        parts.append(")")
    elif isinstance(value, dict):
        _write(("dict", tuple(value.items())), parts)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be part of a structural key: {value!r}")
