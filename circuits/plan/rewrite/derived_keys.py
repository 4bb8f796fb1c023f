"""Derived keys: group by fewer keys where some are functions of the others.

::

    aggregate[x, f(x); calls](Z)  =  map[x, f(x), calls](aggregate[x; calls](Z))

The end of a window is its start plus its size, so a query that groups by both has one key less to
sort, store and look up. A join on x and f(x) is a join on x (`circuits.plan.rewrite.conditions`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from circuits.plan.expressions import Call, Column, Expression, Literal, columns_of
from circuits.plan.nodes import Aggregate, AggregateCall, columns
from circuits.plan.rewrite.select_block import SelectBlock

__all__ = ["drop_derived_keys"]


def drop_derived_keys(
    plan: Aggregate, block: SelectBlock
) -> tuple[Aggregate, SelectBlock, tuple[Expression, ...]]:
    """Return an aggregate without the keys that are functions of other keys.

    Args:
        plan: The aggregate.
        block: Its input.

    Returns:
        Three values:

        - The aggregate. Its columns are numbered over the outputs of the block that is returned;
          its ``input`` is still that of ``plan``, and the caller replaces it.
        - The block that is the new input.
        - The columns of ``plan`` as expressions over the columns of the aggregate.
    """
    keys = [block.outputs[key] for key in plan.keys]
    is_derived = [_is_derived(position, keys) for position in range(len(keys))]
    if not any(is_derived):
        return plan, block, columns(plan)
    kept_keys = [key for key, derived in zip(plan.keys, is_derived, strict=True) if not derived]
    key_columns = {
        block.outputs[key]: Column(position, block.outputs[key].type)
        for position, key in enumerate(kept_keys)
    }
    results = [
        Column(len(kept_keys) + position, call.type)
        for position, call in enumerate(plan.aggregates)
    ]
    outputs_read = {
        *kept_keys,
        *(column for call in plan.aggregates for column in _columns_read(call)),
    }
    positions = {column: position for position, column in enumerate(sorted(outputs_read))}
    aggregate = Aggregate(
        plan.input,
        tuple(positions[key] for key in kept_keys),
        tuple(_renumber(call, positions) for call in plan.aggregates),
    )
    outputs = tuple(block.outputs[column] for column in positions)
    expressions = (*(_over_keys(key, key_columns) for key in keys), *results)
    return aggregate, replace(block, outputs=outputs), expressions


def _is_derived(position: int, keys: list[Expression]) -> bool:
    """Return whether a key equals an earlier one, or is a function of other keys.

    A function contains these keys, so two keys are never derived from each other.
    """
    key = keys[position]
    if key in keys[:position]:
        return True
    return bool(columns_of(key)) and _is_function_of(key, {*keys} - {key})


def _is_function_of(expression: Expression, keys: Collection[Expression]) -> bool:
    """Return whether the values of the keys determine the value of an expression."""
    if expression in keys or isinstance(expression, Literal):
        return True
    return isinstance(expression, Call) and all(
        _is_function_of(argument, keys) for argument in expression.arguments
    )


def _over_keys(expression: Expression, key_columns: Mapping[Expression, Column]) -> Expression:
    """Return an expression with the keys that it contains replaced by columns."""
    if expression in key_columns:
        return key_columns[expression]
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(_over_keys(argument, key_columns) for argument in expression.arguments)
    return Call(expression.function, arguments, expression.type)


def _columns_read(call: AggregateCall) -> list[int]:
    return [*call.arguments, *(part.column for part in call.order)]


def _renumber(call: AggregateCall, positions: Mapping[int, int]) -> AggregateCall:
    """Return a call over the columns at other positions."""
    return replace(
        call,
        argument=None if call.argument is None else positions[call.argument],
        others=tuple(positions[column] for column in call.others),
        order=tuple(replace(part, column=positions[part.column]) for part in call.order),
    )
