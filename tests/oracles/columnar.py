"""A second oracle of queries, for large inputs: left-deep binary joins over numpy columns.

It shares no code with the engine or with ``naive``, except the dataclasses of a query. It
materializes every intermediate result, so these should not exceed some million rows. Weights are
int64; products are also computed in float64, so an overflow is an error, not an expected value.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dbsp_wcoj.query import Query, Variable

Columns = tuple[np.ndarray, ...]
Relation = tuple[Columns, np.ndarray]


def evaluate(query: Query, relations: Mapping[str, Relation]) -> Relation:
    """Return the answer: the columns of its sorted distinct rows, and their non-zero weights."""
    bound: dict[str, np.ndarray] = {}
    weights = np.ones(1, dtype=np.int64)
    for atom in query.body:
        columns, atom_weights = relations[atom.relation]
        keep = np.ones(len(atom_weights), dtype=bool)
        values: dict[str, np.ndarray] = {}
        for term, column in zip(atom.terms, columns, strict=True):
            if not isinstance(term, Variable):
                keep &= column == term.value
            elif term.name in values:
                keep &= column == values[term.name]
            else:
                values[term.name] = column
        values = {name: column[keep] for name, column in values.items()}
        left, right = _pairs(bound, values, len(weights), int(keep.sum()))
        bound = {name: column[left] for name, column in bound.items()}
        bound |= {name: column[right] for name, column in values.items() if name not in bound}
        weights = _product(weights[left], atom_weights[keep][right])
    keep = np.ones(len(weights), dtype=bool)
    for comparison in query.comparisons:
        assert not comparison.shift, "the oracle adds nothing to a side of a comparison"
        a, b = (
            bound[side.name] if isinstance(side, Variable) else side.value
            for side in (comparison.left, comparison.right)
        )
        keep &= _compare(a, b, comparison.op)
    return consolidate(tuple(bound[name][keep] for name in query.head), weights[keep])


def consolidate(columns: Columns, weights: np.ndarray) -> Relation:
    """Sort the rows, sum the weights of equal ones, and drop zeros."""
    if not columns:
        total = np.array([weights.sum()], dtype=np.int64)
        return (), total[total != 0]
    order = np.lexsort(columns[::-1])
    columns = tuple(column[order] for column in columns)
    weights = weights[order]
    if len(weights) == 0:
        return columns, weights
    is_first = np.ones(len(weights), dtype=bool)  # of equal rows
    is_first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    starts = np.flatnonzero(is_first)
    sums = np.add.reduceat(weights, starts)
    kept = starts[sums != 0]
    return tuple(column[kept] for column in columns), sums[sums != 0]


def add(first: Relation, second: Relation) -> Relation:
    """Add two relations of the same arity."""
    columns = tuple(np.concatenate(pair) for pair in zip(first[0], second[0], strict=True))
    return consolidate(columns, np.concatenate([first[1], second[1]]))


def _pairs(
    bound: dict[str, np.ndarray], values: dict[str, np.ndarray], n: int, m: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of row numbers, left and right, that agree on the shared variables.

    The left side has ``n`` rows, the right ``m``.
    """
    left_key, right_key = np.zeros(n, dtype=np.int64), np.zeros(m, dtype=np.int64)
    for name in values:
        if name in bound:  # fold one more shared column into dense keys
            both = np.concatenate([bound[name], values[name]])
            codes = np.unique(both, return_inverse=True)[1]
            keys = np.concatenate([left_key, right_key]) * (codes.max(initial=0) + 1) + codes
            keys = np.unique(keys, return_inverse=True)[1]
            left_key, right_key = keys[:n], keys[n:]
    order = np.argsort(right_key, kind="stable")
    ordered = right_key[order]
    low = np.searchsorted(ordered, left_key, side="left")
    sizes = np.searchsorted(ordered, left_key, side="right") - low
    left = np.repeat(np.arange(n), sizes)
    offset = np.arange(len(left)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return left, order[np.repeat(low, sizes) + offset]


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    product = a * b
    assert np.array_equal(product.astype(float), a.astype(float) * b), "the oracle overflowed"
    return product


def _compare(a: np.ndarray, b: np.ndarray, op: str) -> np.ndarray:
    match op:
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
        case "==":
            return a == b
        case "!=":
            return a != b
    raise AssertionError(op)
