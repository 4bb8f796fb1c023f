"""Functions of ENUM. Kernels have each value as the text of its label.

The labels are a constant: a JSON array of texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from circuits.plan.expressions import Literal
from circuits.types.codecs.enums import check_labels
from circuits.types.enum_type import EnumType
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.type_rules import is_text

__all__ = ["FUNCTIONS"]


def _type_of(labels: Values) -> EnumType:
    text = labels.as_py() if isinstance(labels, pa.Scalar) else labels[0].as_py()
    return EnumType(json.loads(text))


def _enum_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    value, labels = arguments
    is_value = is_text(value.type) or pa.types.is_integer(value.type)
    if not is_value or not isinstance(labels, Literal):
        raise argument_error(name, arguments, "it takes a text, and the constant labels")
    return arguments, EnumType(json.loads(labels.value))


def _position_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    value, labels = arguments
    if not isinstance(value.type, EnumType) or not isinstance(labels, Literal):
        raise argument_error(name, arguments, "it takes an ENUM, and its constant labels")
    return arguments, pa.int64()


def _of_text(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    texts = fill_rows(arguments[0], row_count(arguments))
    return check_labels(texts.cast(pa.string()), _type_of(arguments[1]))


def _at_position(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    positions = fill_rows(arguments[0], row_count(arguments))
    return pa.array(_type_of(arguments[1]).labels, pa.string()).take(positions)


def _position(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    texts = fill_rows(arguments[0], row_count(arguments))
    labels = pa.array(_type_of(arguments[1]).labels, pa.string())
    return pc.index_in(texts, value_set=labels).cast(pa.int64())


FUNCTIONS = (
    Function("enum_of_text", "the label a of the ENUM with the labels b", _enum_rule, _of_text),
    Function(
        "enum_at", "the label at position a, from 0, of the labels b", _enum_rule, _at_position
    ),
    Function(
        "enum_position",
        "the position, from 0, of the ENUM a in its labels b",
        _position_rule,
        _position,
    ),
)
