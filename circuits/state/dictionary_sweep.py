"""Dictionary sweep: removes the values of dictionaries that the state no longer refers to.

A dictionary assigns a code to each value that is encoded (`circuits.types.codecs.dictionaries`,
`circuits.runtime.operators.late_materialization`). Rows are deleted, and then nothing may refer to
their values any more. A sweep finds such values and removes them. The codes of the others do not
change, and no code is used again (`dbsp_wcoj.values.code_map`)::

    due         there are many new values since the last sweep
    mark        the codes in the columns of all traces, as they were when the sweep began
    copy        the marked values of each dictionary to new arrays

These hold codes between steps:

- the traces of relations and operators; a column has codes of one type, or no codes;
- the values of the dictionaries of nested values and of row ids, which consist of codes of others:
  they are marked when such a value is marked for the first time;
- the constant rows of `Values` nodes;
- prepared steps, whose values have been encoded since the last commit, and are kept therefore;
- readers of earlier versions, which have the arrays as they were (`CircuitVersion`).

Everything else uses codes only during a step, or uses them without decoding them.

Every commit does a part of the work, in proportion to the values that the step has added, and at
least `MIN_WORK`. A sweep begins when the number of new values is at least a share of the
remaining ones (`MAX_NEW_SHARE`), and there are at most `MARKS_PER_NEW_VALUE` codes to mark for each
new value. So the work for each new value is O(1) amortised, there is none if no value is new, and
the memory of removed values is at most a share of that of the live ones and of the traces. The
number of values after the last sweep is part of the state, so that frequent restarts do not delay
the next one: a sweep that is due when a state is loaded is done at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Final, cast

import numpy as np

from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph
from circuits.runtime.operators.values import ValuesOperator
from circuits.state.coded_columns import RowIds, coded_traces, field_codecs
from circuits.types.codecs.codec import Codec
from circuits.types.codecs.decimals import WideDecimals
from circuits.types.codecs.nested import Nested
from circuits.types.codecs.strings import Strings
from dbsp_wcoj.storage.sum_slices import sum_slices
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.values.sweep import Sweep
from dbsp_wcoj.zset import Int64Array

__all__ = ["DictionarySweeper"]

# A sweep is due if at least this many values, and this share of the remaining ones, are new.
MIN_NEW_VALUES: Final = 1 << 14
MAX_NEW_SHARE: Final = 0.25
MARKS_PER_NEW_VALUE: Final = 16
# Work of a commit: for each new value, and for each commit.
WORK_PER_VALUE: Final = 32
MIN_WORK: Final = 512
# The most codes that are marked at a time.
_CODES_PER_SLICE: Final = 2048
# Rows of each run that are added up at a time.
_ROWS_PER_SLICE: Final = 2048

#: Marks the codes of a column; returns how many codes it has looked at.
Marker = Callable[[Int64Array], int]


class DictionarySweeper:
    """Sweeps the dictionaries of a graph, a part with each commit.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sweep: Iterator[int] | None = None
        self._sweeps: dict[str, Sweep] = {}
        # The number of values at which the next sweep may be due.
        self._due_at = _next_due(graph.values_after_sweep)
        # At the last commit: the number of values, and of those that the sweep has kept again.
        self._values_before = 0
        self._has_replaced = False
        # The codes to mark next, at most.
        self._slice_codes = _CODES_PER_SLICE
        # True until the first sweep ends. The runs of a loaded state, and mapped runs, may have
        # many rows that cancel each other, because stored runs are merged less often than runs in
        # memory. The first sweep, and each one of mapped runs, marks the codes of their sum only.
        self._is_first = True

    def advance(self, version: CircuitVersion) -> bool:
        """Do a part of a sweep, after a commit; return True if a dictionary has other arrays now.

        Args:
            version: The committed version.

        Complexity:
            O(dictionaries + values that the step has added).
        """
        values = version.value_count
        if self._sweep is None:
            if values < self._due_at or not self._is_due(values):
                return False
            self._sweep, self._values_before = self._run(version), values
        kept_again = sum([sweep.kept_again for sweep in self._sweeps.values()])
        new_values = max(values + kept_again - self._values_before, 0)
        self._values_before = values + kept_again
        work = WORK_PER_VALUE * new_values + MIN_WORK
        self._has_replaced = False
        try:
            while work > 0:
                self._slice_codes = min(work, _CODES_PER_SLICE)
                done = next(self._sweep, None)
                if done is None:
                    self._end()
                    break
                work -= done
        except MemoryError:  # there is no room for the new arrays
            self.abandon()
        return self._has_replaced

    def sweep_loaded(self, version: CircuitVersion) -> bool:
        """Do a whole sweep, if one is due, after a state was loaded; return as `advance`.

        Complexity:
            O(1) if no sweep is due, else O(rows of the traces + values).
        """
        has_replaced = self.advance(version)
        while self._sweep is not None:
            has_replaced |= self.advance(version)
        return has_replaced

    def sweep_all(self, version: CircuitVersion) -> None:
        """Do a whole sweep, whether or not one is due.

        Args:
            version: The committed version. The dictionaries have new arrays afterwards.

        Complexity:
            O(rows of the traces + values).
        """
        if self._sweep is not None:
            self.abandon()
        self._is_first = True  # mark the sums of the runs
        self._slice_codes = _CODES_PER_SLICE
        for _ in self._run(version):
            pass
        self._end()

    def abandon(self) -> None:
        """Stop a running sweep; the next one is due after as many new values as if it had ended."""
        for dictionary in self._graph.registry.dictionaries.values():
            dictionary.abandon_sweep()
        self._end()

    def stop(self) -> None:
        """Stop a running sweep, if there is one; another circuit goes on with the dictionaries."""
        if self._sweep is not None:
            self.abandon()

    def _is_due(self, values: int) -> bool:
        """Return whether to begin a sweep; if not, remember when to ask again."""
        marks = sum(
            len(columns) * self._graph.traces[name].rows
            for name, columns in coded_traces(self._graph).items()
        )
        due_at = self._graph.values_after_sweep + marks // MARKS_PER_NEW_VALUE
        # After a deletion of many rows, a sweep is due earlier, so ask again before.
        self._due_at = min(due_at, _next_due(values))
        return values >= due_at

    def _end(self) -> None:
        self._sweep = None
        self._is_first = False
        self._sweeps.clear()
        dictionaries = self._graph.registry.dictionaries.values()
        values = sum(dictionary.string_count for dictionary in dictionaries)
        self._graph.values_after_sweep = values
        self._due_at = _next_due(values)

    def _run(self, version: CircuitVersion) -> Iterator[int]:
        """Sweep all dictionaries; yield after each part how much work it was."""
        dictionaries = {
            name: dictionary
            for name, dictionary in self._graph.registry.dictionaries.items()
            if dictionary.string_count
        }
        self._sweeps = {name: entry.begin_sweep() for name, entry in dictionaries.items()}
        yield from self._mark(version, dictionaries)
        del version  # its runs may be freed
        for name, dictionary in dictionaries.items():
            is_complete = False
            before = dictionary.share().code_map
            while not is_complete:
                slice_codes = self._slice_codes
                is_complete, remaining = dictionary.advance_sweep(slice_codes)
                if is_complete:
                    del self._sweeps[name]
                    self._has_replaced |= dictionary.share().code_map is not before
                yield slice_codes - remaining + 1

    def _mark(self, version: CircuitVersion, dictionaries: Mapping[str, Interner]) -> Iterator[int]:
        graph = self._graph
        markers = _Markers({id(dictionaries[name]): sweep for name, sweep in self._sweeps.items()})
        for node in graph.nodes:
            if isinstance(node.operator, ValuesOperator):
                for column, codec in field_codecs(node.plan.fields, graph.codecs).items():
                    marker = markers.marker(codec)
                    if marker is not None:
                        yield marker(node.operator.rows.row_array[column])
        for name, columns in coded_traces(graph).items():
            trace = version.trace(name)
            if trace.is_empty:
                continue
            arrangement = trace.arrangements[0]
            runs = arrangement.spine.runs
            levels = {
                arrangement.order.index(column): marker
                for column, codes in columns.items()
                if (marker := markers.marker(codes)) is not None
            }
            if len(runs) > 1 and (self._is_first or any(run.is_mapped for run in runs)):
                for rows, read_rows in sum_slices(runs, _ROWS_PER_SLICE):
                    yield read_rows + sum(
                        marker(rows.row_array[level]) for level, marker in levels.items()
                    )
                continue
            for level, marker in levels.items():
                for values in [run.level_values(level) for run in runs]:
                    first = 0
                    while first < len(values):
                        end = first + self._slice_codes
                        # A slice at a time, because codes of 32 bits are copied to int64.
                        yield marker(values[first:end].astype(np.int64, copy=False))
                        first = end


def _next_due(values_after_sweep: int) -> int:
    """Return the number of values at which the next sweep may be due."""
    return values_after_sweep + max(MIN_NEW_VALUES, int(values_after_sweep * MAX_NEW_SHARE))


class _Markers:
    """The functions that mark the codes of columns.

    Args:
        sweeps: The sweep of each dictionary, by the ``id`` of the dictionary.
    """

    def __init__(self, sweeps: Mapping[int, Sweep]) -> None:
        self._sweeps = sweeps
        self._nested: dict[Hashable, Marker] = {}

    def marker(self, codes: Codec | RowIds) -> Marker | None:
        """Return the function that marks the codes of a column; None if they need no marks."""
        if isinstance(codes, RowIds):
            return self._row_id_marker(codes)
        match codes.coding:
            case Strings() | WideDecimals() as coding:
                sweep = self._sweeps.get(id(coding.dictionary))
                return None if sweep is None else partial(_mark_values, sweep)
            case Nested() as coding:
                if id(coding.dictionary) not in self._sweeps:
                    return None
                marker = self._nested.get(coding.code_space)
                if marker is None:
                    marker = self._nested[coding.code_space] = self._nested_marker(coding)
                return marker
        return None

    def _row_id_marker(self, row_ids: RowIds) -> Marker | None:
        sweep = self._sweeps.get(id(row_ids.dictionary))
        if sweep is None:
            return None
        parts = self._part_markers(row_ids.columns)

        def mark(codes: Int64Array) -> int:
            new_codes = sweep.mark(codes)
            if not parts or not len(new_codes):
                return len(codes)
            rows = row_ids.dictionary.rows(new_codes)
            return len(codes) + sum(marker(rows[column]) for column, marker in parts.items())

        return mark

    def _nested_marker(self, coding: Nested) -> Marker:
        sweep = self._sweeps[id(coding.dictionary)]
        # Values of different types may have one code, but their parts have other codecs. So each
        # type has its own marks, from which follows whether the parts of a value are marked.
        marks = sweep.new_marks()
        parts = self._part_markers(dict(enumerate(cast(tuple[Codec, ...], coding.parts))))

        def mark(codes: Int64Array) -> int:
            new_codes = sweep.mark(codes, marks)
            if not parts or not len(new_codes):
                return len(codes)
            _, words = coding.words(new_codes)
            columns = np.ascontiguousarray(words.T)
            return len(codes) + sum(marker(columns[column]) for column, marker in parts.items())

        return mark

    def _part_markers(self, columns: Mapping[int, Codec]) -> dict[int, Marker]:
        markers = {column: self.marker(codec) for column, codec in columns.items()}
        return {column: marker for column, marker in markers.items() if marker is not None}


def _mark_values(sweep: Sweep, codes: Int64Array) -> int:
    sweep.mark(codes)
    return len(codes)
