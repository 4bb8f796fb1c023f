"""Names of operators: the same in plans, errors, logs, metrics, the live page and `inspect`.

::

    e           an input
    #3f0c2a     an operator: the first digits of the structural hash of its plan

The name depends on what the operator computes, not on its position. So it is the same after a
restart and in another program with the same sub-plan (`circuits.plan.structural_hash`), and numbers
of different weeks can be compared. If two operators of a graph share these digits, the name of the
second one has more digits.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from circuits.plan.nodes import PlanNode, Scan

__all__ = ["operator_kind", "operator_name"]

#: 24 bits. In a graph of 100 operators, two names with these digits collide once in 3,000 graphs.
MIN_DIGITS: Final = 6


def operator_name(hash: str, used_names: Container[str]) -> str:
    """Return the name of an operator.

    Args:
        hash: The structural hash of its plan, in hexadecimal digits.
        used_names: The names of the inputs and of the other operators.

    >>> operator_name("3f0c2a7d9b", {"e"})
    '#3f0c2a'
    >>> operator_name("3f0c2a7d9b", {"e", "#3f0c2a"})
    '#3f0c2a7'
    """
    for digits in range(MIN_DIGITS, len(hash) + 1):
        name = f"#{hash[:digits]}"
        if name not in used_names:
            return name
    while name in used_names:  # an input has this name
        name += "'"
    return name


def operator_kind(plan: PlanNode) -> str:
    """Return the kind of the operator of a plan node in words.

    >>> operator_kind(Scan("e", ()))
    'input'
    """
    if isinstance(plan, Scan):
        return "input"
    return " ".join(re.findall("[A-Z][a-z]*", type(plan).__name__)).lower()
