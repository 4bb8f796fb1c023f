"""Value sets: the distinct values of each group, for aggregates with ``distinct``.

::

    sets(Z)[key, slot, values] = 1 if Σ Z[x] over the rows x of the key with these values is
                                 positive, else 0

There is a set for each column, or list of columns, that an aggregate reads with ``distinct``. It
has the values that are not NULL. Its slot is the number that names it (`linear_aggregate`). Sets of
columns with the same code space (`Codec.code_space`) share a trace, so a step that changes eight of
them sorts, looks up and commits once. An example, the sets 128 of a and 256 of b, of rows
(key, a, b)::

    delta of the input    {(7,1,3): +1}                        {(7,1,4): +1}
    delta of the sets     {(7,128,1): +1, (7,256,3): +1}       {(7,256,4): +1}

Cost: O(sets log N) per row of the delta.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from circuits.runtime.operators.distinct import DistinctOperator, one_if_positive
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.row_batch import UnsortedRows
from circuits.types.codecs.codec import NULL, Codec, dictionary_columns
from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["ValueSets", "value_sets"]


class ValueSets:
    """Sets of values that share one trace of rows (keys, slot, values).

    Args:
        keys: The columns that identify a group.
        slots: The slot of each set, by its columns; all sets have the same number of columns.
        codecs: The codecs of the input's columns.
    """

    def __init__(
        self, keys: Sequence[int], slots: Mapping[tuple[int, ...], int], codecs: Sequence[Codec]
    ) -> None:
        self._keys = list(keys)
        self._columns = np.array(list(slots))  # a row per set
        self._slots = np.array(list(slots.values()))
        first_columns = next(iter(slots))
        self._distinct = DistinctOperator(len(keys) + 1 + len(first_columns), one_if_positive)
        self.trace = self._distinct.trace
        value_codecs = dictionary_columns([codecs[column] for column in first_columns])
        self.coded_columns: Mapping[int, Codec] = {
            **dictionary_columns([codecs[key] for key in keys]),
            **{len(keys) + 1 + column: codec for column, codec in value_codecs.items()},
        }

    def evaluate(self, zset: ZSet) -> ZSet:
        """Return the sets of a Z-set, as rows (keys, slot, values)."""
        return self._distinct.evaluate([self._value_rows(zset)])

    def prepare(self, delta: ZSet | UnsortedRows, context: StepContext) -> Result:
        """Return the change of the sets, as rows (keys, slot, values).

        Raises:
            WeightOverflowError: The total weight of a value would leave int64.
        """
        return self._distinct.prepare([self._value_rows(delta)], context)

    def _value_rows(self, zset: ZSet | UnsortedRows) -> ZSet:
        """Return the rows (keys, slot, values) of all values that are not NULL."""
        values: Int64Array = zset.row_array[self._columns]  # by set, column and row
        sets, rows = np.nonzero(np.all(values != NULL, axis=1))
        value_rows = np.concatenate(
            (
                zset.row_array[self._keys][:, rows],
                self._slots[sets].reshape(1, -1),
                values[sets, :, rows].T,
            )
        )
        return consolidated_rows(value_rows, zset.weight_array[rows])


def value_sets(
    keys: Sequence[int], slots: Mapping[tuple[int, ...], int], codecs: Sequence[Codec]
) -> list[ValueSets]:
    """Return the sets of some columns, in as few traces as their codes allow.

    Args:
        keys: The columns that identify a group.
        slots: The slot of each set, by its columns.
        codecs: The codecs of the input's columns.
    """
    slots_by_space: dict[Hashable, dict[tuple[int, ...], int]] = {}
    for columns, slot in slots.items():
        space = tuple(codecs[column].code_space for column in columns)
        slots_by_space.setdefault(space, {})[columns] = slot
    return [ValueSets(keys, group, codecs) for group in slots_by_space.values()]
