"""Structural hash: identifies a sub-plan by what it computes, not by its position or its names.

::

    hash(node)  =  sha256(class of the node, its key, hash of each input, hash of each reference)

Equal sub-plans are one operator of the graph: this is common-subexpression elimination. The hash
also names the state of the operator, so a state directory stays valid when other views are added,
dropped or reordered. It is the same in every process and Python version, because it is computed
from a canonical text of the values. It does not depend on names of columns, nor on the order of the
inputs of a commutative node, as of a UNION ALL.

Alternative considered: compare tuples of Python values. But Python treats some different values as
equal (``0.0`` and ``-0.0``, ``1`` and ``True``), and NaN as different from itself.

The references of a node are plans that it needs besides its inputs
(`circuits.plan.node.PlanNode.references`).

Recursion: the same `RecursiveReference` means different relations in different recursions. The hash
of a recursion is computed from its relations' names, bodies and modes; in the bodies, a
`RecursiveReference` is hashed by its name. In the graph, its hash combines the hash of its
recursion and its name.

Cost: O(nodes), each node once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Final

import pyarrow as pa

from circuits.plan.expressions import Call, Column, Literal
from circuits.plan.fixpoint import Fixpoint
from circuits.plan.node import PlanNode
from circuits.types.arrow_types import is_nested, part_types
from circuits.types.enum_type import EnumType

__all__ = ["PlanHasher", "hash_values", "structural_hash"]

# Classes in which ``repr`` differs for different values.
_CLASSES_WITH_EXACT_REPR: Final = (
    bool,
    int,
    float,
    str,
    bytes,
    Decimal,
    datetime,
    date,
    time,
    timedelta,
)
# The name of every ENUM in the text of a type; the text does not contain the labels.
_ENUM_NAME: Final = EnumType([]).extension_name


class PlanHasher:
    """Computes the hashes of plans; a plan is a DAG, so it visits each node once.

    Args:
        resolve: Returns the hash to use instead of the node's own, or None. For example, a Scan of
            a view has the hash of the view's plan.
    """

    def __init__(self, resolve: Callable[[PlanNode], str | None] = lambda plan: None) -> None:
        self._resolve = resolve
        # By the ``id`` of a node, which stays unique as long as the node is referenced here.
        self._hashes: dict[int, tuple[str, PlanNode]] = {}

    def hash(self, plan: PlanNode) -> str:
        """The hash of a plan, in 64 hexadecimal digits."""
        entry = self._hashes.get(id(plan))
        if entry is None:
            entry = self._hashes[id(plan)] = self._hash(plan), plan
        return entry[0]

    def hash_recursion(self, plan: Fixpoint) -> str:
        """The hash of a recursion, the same for each of its relations and any order of them."""
        return hash_values(
            "recursion",
            sorted(
                (
                    name,
                    f"{mode.kind}, keeps NULL" if mode.keeps_null else mode.kind,
                    mode.column if mode.column is not None else "",
                    self.hash(body),
                )
                for name, mode, body in zip(plan.names, plan.modes, plan.bodies, strict=True)
            ),
        )

    def _hash(self, plan: PlanNode) -> str:
        resolved = self._resolve(plan)
        if resolved is not None:
            return resolved
        inputs = [self.hash(input) for input in plan.inputs]
        references = [self.hash(reference) for reference in plan.references]
        return structural_hash(plan, inputs, references)


def structural_hash(plan: PlanNode, inputs: Sequence[str], references: Sequence[str] = ()) -> str:
    """The hash of a node, from the hashes of its inputs and references.

    The inputs of ``plan`` itself are not read, only the given hashes:

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
    """The hash of values: None, numbers, strings, dates, types, expressions, and lists of these.

    Raises:
        TypeError: A value is of another class; different values of it could have the same text.

    >>> hash_values(0.0) == hash_values(-0.0), hash_values(1) == hash_values(True)
    (False, False)
    """
    parts: list[str] = []
    _write(values, parts)
    return sha256("".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _write(value: object, parts: list[str]) -> None:
    """Append a text that is different for every value."""
    if value is None or isinstance(value, _CLASSES_WITH_EXACT_REPR):
        text = repr(value)
        parts.append(f"{type(value).__name__}:{len(text)}:{text};")
    elif isinstance(value, pa.DataType):
        text = _type_text(value)
        parts.append(f"type:{len(text)}:{text};")
    elif isinstance(value, Column):
        _write(("column", value.index, value.type), parts)
    elif isinstance(value, Literal):
        _write(("literal", value.value, value.type), parts)
    elif isinstance(value, Call):
        _write(("call", value.function, value.arguments, value.type), parts)
    elif isinstance(value, tuple | list):
        parts.append(f"{len(value)}(")
        for element in value:
            _write(element, parts)
        parts.append(")")
    elif isinstance(value, dict):
        _write(("dict", tuple(value.items())), parts)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be part of a structural hash: {value!r}")


def _type_text(type: pa.DataType) -> str:
    """Return the text of a type, followed by the labels of each ENUM in it."""
    text = str(type)
    return text + "".join(map(repr, _enum_labels(type))) if _ENUM_NAME in text else text


def _enum_labels(type: pa.DataType) -> Iterator[tuple[str, ...]]:
    """Yield the labels of an ENUM, or of each ENUM in a nested type."""
    if isinstance(type, EnumType):
        yield type.labels
    elif is_nested(type):
        for part in part_types(type):
            yield from _enum_labels(part)
