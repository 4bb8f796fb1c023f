"""Semijoin reduction: a view keeps only the rows of a relation whose labels its atoms ask for.

A label is a unary relation, as in ``n() :- e(x, y), e(y, z), l0(x), l1(y), l2(z)``. Its first atom
only matches edges from `l0` to `l1`. So the query is computed over reduced relations, and ``e`` is
no longer joined with itself::

    e(l0,l1) = the rows of e whose columns are in l0 and l1
    n()     :- e(l0,l1)(x, y), e(l1,l2)(y, z), l0(x), l1(y), l2(z)

A reduced relation has few rows, and only these are sorted, merged and searched. Its delta is exact,
so every delta formula and plan applies to it. L is 1 for a row that meets all conditions of the
reduced relation, and 0 for the others::

    δ(e L) = δe L_new + e_old (L_new - L_old)

The second sum has only rows with a value that a label relation gains or loses. They are looked up
in the full relation, which is a `DeferredTrace` because nothing else reads it. The weights of label
relations do not matter here: their atoms stay in the query.

The reduction is used if it makes the sum of all relations smaller (`SemijoinCandidates`): with
labels that most rows have, a copy for each pair of labels would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.kernels.storage.semijoin import MAX_CONDITIONS, semijoin_rows
from dbsp_wcoj.query import Query, Variable
from dbsp_wcoj.storage.deferred_trace import DeferredTrace
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.relations import Relations, RelationsStep, check_delta
from dbsp_wcoj.storage.trace import ColumnOrder, Trace
from dbsp_wcoj.zset import Int64Array, ZSet, accumulate, consolidated_rows

__all__ = ["Semijoin", "SemijoinCandidates", "SemijoinReduction", "SemijoinStep"]

# A relation is reduced if its reduced relations together have at most this share of its rows.
MAX_SHARE: Final = 0.5
# Changed rows before the first choice, and their growth before the next one.
FIRST_CHOICE_ROWS: Final = 1024
CHOICE_GROWTH_FACTOR: Final = 2


@dataclass(frozen=True, slots=True)
class Semijoin:
    """The rows of a relation whose columns are in unary relations.

    Attributes:
        relation: The relation.
        conditions: A column and the unary relation that has to contain its value; at least one.
        columns: The number of columns of the relation.

    >>> Semijoin("e", ((0, "l0"), (2, "l1"), (2, "l2")), 3).name
    'e(l0,_,l1&l2)'
    """

    relation: str
    conditions: tuple[tuple[int, str], ...]
    columns: int

    @property
    def name(self) -> str:
        """The name of the reduced relation; no relation of a query has such a name."""
        labels = [
            "&".join([unary for column, unary in self.conditions if column == position]) or "_"
            for position in range(self.columns)
        ]
        return f"{self.relation}({','.join(labels)})"


class SemijoinCandidates:
    """The relations of a query that may be reduced, and the choice among them.

    Attributes:
        by_atom: The semijoin of each atom; None for an atom that reads all rows of its relation.
    """

    __slots__ = ("_changed_rows", "_choose_at", "_relations", "by_atom")

    def __init__(self, query: Query) -> None:
        """Find the semijoins of a query."""
        unary: dict[str, set[str]] = {}
        for atom in query.body:
            if atom.arity == 1 and atom.variables:
                unary.setdefault(atom.variables[0], set()).add(atom.relation)
        by_atom: list[Semijoin | None] = []
        for atom in query.body:
            conditions = [
                (column, relation)
                for column, term in enumerate(atom.terms)
                if atom.arity > 1 and isinstance(term, Variable)
                for relation in sorted(unary.get(term.name, ()))
            ]
            semijoin = Semijoin(atom.relation, tuple(conditions), atom.arity)
            by_atom.append(semijoin if conditions else None)
        # A relation is reduced only if no atom reads all of its rows.
        names = {atom.relation for atom in query.body}
        for atom, found in zip(query.body, by_atom, strict=True):
            if found is None:
                names.discard(atom.relation)
        self._relations = {
            name
            for name in names
            if len({c for s in by_atom if s and s.relation == name for c in s.conditions})
            <= MAX_CONDITIONS
        }
        self.by_atom = tuple(s if s and s.relation in self._relations else None for s in by_atom)
        self._changed_rows = 0
        self._choose_at = FIRST_CHOICE_ROWS

    def __bool__(self) -> bool:
        return bool(self._relations)

    @property
    def is_due(self) -> bool:
        """Return whether enough rows have changed to choose again."""
        return self._changed_rows >= self._choose_at

    def count(self, rows: int) -> None:
        """Count ``rows`` more changed rows."""
        self._changed_rows += rows

    def set_next_choice(self) -> None:
        """Let the next choice be due when the changed rows have doubled."""
        self._choose_at = CHOICE_GROWTH_FACTOR * self._changed_rows

    def choose(self, traces: Mapping[str, Trace]) -> set[str]:
        """Return the relations to reduce, given the traces of all relations.

        Complexity:
            O(n), a few ns for each row and condition.
        """
        chosen = set()
        for name in self._relations:
            semijoins = list(dict.fromkeys(s for s in self.by_atom if s and s.relation == name))
            filters = _filter_words(semijoins, traces)
            reduced = sum(
                len(part)
                for rows in _read_runs(traces[name])
                for part in _run_filters(rows, filters)[0]
            )
            if reduced <= MAX_SHARE * traces[name].rows:
                chosen.add(name)
        return chosen


class SemijoinReduction:
    """The reduced relations of a query, and the full ones that they are computed from.

    Attributes:
        query: The query over the reduced relations.
        full: The full relations, by name.
        filters: The semijoins of each full relation, in the layout of the kernel
            (`dbsp_wcoj.kernels.storage.semijoin`).
        reduced_names: The names of the reduced relations of each full relation, in the order of
            its semijoins in ``filters``.
        reduced_traces: The traces of these reduced relations, in the same order.
    """

    __slots__ = (
        "_arities",
        "_labels",
        "_relations",
        "_semijoins",
        "filters",
        "full",
        "query",
        "reduced_names",
        "reduced_traces",
    )

    def __init__(
        self, query: Query, by_atom: Sequence[Semijoin | None], chosen: Collection[str]
    ) -> None:
        """Reduce the relations ``chosen`` by the semijoins of the atoms; call `bind` next."""
        used = [s if s is not None and s.relation in chosen else None for s in by_atom]
        body = [
            atom if semijoin is None else replace(atom, relation=semijoin.name)
            for atom, semijoin in zip(query.body, used, strict=True)
        ]
        self.query = replace(query, body=tuple(body))
        self.full: dict[str, DeferredTrace] = {}
        self._arities = query.relations
        self._semijoins = {
            name: list(dict.fromkeys(s for s in used if s is not None and s.relation == name))
            for name in query.relations
            if name in chosen
        }
        self._labels = {
            u for group in self._semijoins.values() for s in group for _, u in s.conditions
        }
        self._relations = Relations()
        self.filters: dict[str, Int64Array] = {}
        self.reduced_names = {
            name: tuple([semijoin.name for semijoin in semijoins])
            for name, semijoins in self._semijoins.items()
        }
        self.reduced_traces: dict[str, list[Trace]] = {}

    def bind(self, relations: Relations, traces: Mapping[str, Trace]) -> None:
        """Compute the reduced relations.

        Args:
            relations: Relations of `query` that have all rows but those of the reduced relations.
            traces: The full relations; the reduction keeps those that it reduces.

        Complexity:
            O(n).
        """
        self._relations = relations
        for name, semijoins in self._semijoins.items():
            self.filters[name] = _filter_words(semijoins, relations.traces)
            self.reduced_traces[name] = [relations.traces[s.name] for s in semijoins]
            for rows in _read_runs(traces[name]):
                reduced, _ = _run_filters(rows, self.filters[name])
                for trace, part in zip(self.reduced_traces[name], reduced, strict=True):
                    trace.update(part)
        for name in self._semijoins:
            self.full[name] = DeferredTrace(traces[name])

    def drop_unread(self) -> None:
        """Drop all arrangements of the full relations but one: the terms do not read them."""
        for full in self.full.values():
            full.unread_trace.keep_arrangements([_order_to_read(full.unread_trace)])

    @property
    def is_worthwhile(self) -> bool:
        """Return whether the reduced relations have at most the rows of the full ones; O(runs)."""
        reduced = [trace.rows for traces in self.reduced_traces.values() for trace in traces]
        return sum(reduced) <= sum([full.rows for full in self.full.values()])

    def stage(self, deltas: Mapping[str, ZSet]) -> SemijoinStep:
        """Stage a step with the deltas of the query's own relations; see `Relations.stage`.

        Complexity:
            O(rows); and for each value that a label relation gains or loses, a lookup of the rows
            with this value in a column with this label. The first such lookup in a column arranges
            the full relation in another column order, O(n log n) for n rows, and keeps it.
        """
        check_type("deltas", deltas, Mapping, "a mapping from relations to Z-sets")
        step = SemijoinStep(self._relations, self.full)
        # The values that each label relation gains or loses.
        toggled: dict[str, Int64Array] = {}
        for name, delta in deltas.items():
            check_delta(name, delta, self._arities)
            step.changed_rows += len(delta.weight_array)
            if name not in self.full and len(delta):
                step.add(name, delta)
                if name in self._labels:
                    values = self._toggled_values(name, delta)
                    if len(values):
                        toggled[name] = values
        for name, semijoins in self._semijoins.items():
            delta = deltas.get(name) or ZSet.empty(self._arities[name])
            if not (len(delta) or toggled):
                continue
            reduced, largest = _run_filters(delta, self.filters[name])
            if len(delta):
                self.full[name].check(delta, largest)
                step.full_deltas.append((name, delta, largest))
            for semijoin, part in zip(semijoins, reduced, strict=True):
                if any(unary in toggled for _, unary in semijoin.conditions):
                    part = self._delta_of(semijoin, delta, toggled)
                if len(part.weight_array):
                    step.add(semijoin.name, part)
        return step

    def _toggled_values(self, name: str, delta: ZSet) -> Int64Array:
        """The values that a label relation gains or loses with a delta, sorted."""
        old = self._relations.traces[name].weights_of(delta)
        is_toggled = (old != 0) != (old + delta.weight_array != 0)
        values: Int64Array = delta.row_array[0][is_toggled]
        return values

    def _delta_of(self, semijoin: Semijoin, delta: ZSet, toggled: Mapping[str, Int64Array]) -> ZSet:
        """The delta of a reduced relation in a step that changes one of its label relations."""
        arity = semijoin.columns
        _, new = self._memberships(semijoin, delta.row_array, toggled)
        parts = [ZSet(np.ascontiguousarray(delta.row_array[:, new]), delta.weight_array[new])]
        trace = self.full[semijoin.relation].read()
        for position, (column, unary) in enumerate(semijoin.conditions):
            if unary not in toggled:
                continue
            order = _order_from(column, arity)
            values = toggled[unary]
            found = prefix_lookup(trace, values[np.newaxis], signed=True, order=order)
            rows = np.empty((arity, len(found.old)), np.int64)
            rows[column] = values[found.prefix_index]
            rows[list(order[1:])] = found.rows
            before, after = self._memberships(semijoin, rows, toggled)
            kept = before != after
            # The lookups of earlier conditions have found these rows already.
            for earlier, other in semijoin.conditions[:position]:
                if other in toggled:
                    kept &= ~np.isin(rows[earlier], toggled[other])
            weights = np.where(after, found.old, -found.old)[kept]
            parts.append(consolidated_rows(rows[:, kept], weights))
        return accumulate(parts, arity)

    def _memberships(
        self, semijoin: Semijoin, rows: Int64Array, toggled: Mapping[str, Int64Array]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return whether each row is in the reduced relation before and after the step."""
        count = rows.shape[1]
        old, new = np.ones(count, np.bool_), np.ones(count, np.bool_)
        for column, unary in semijoin.conditions:
            values = ZSet(np.ascontiguousarray(rows[column : column + 1]), np.ones(count, np.int64))
            member = self._relations.traces[unary].weights_of(values) != 0
            old &= member
            if unary in toggled:
                member = member ^ np.isin(rows[column], toggled[unary])
            new &= member
        return old, new


class SemijoinStep(RelationsStep):
    """A staged step of reduced relations and of the full relations behind them.

    Attributes:
        changed_rows: The number of changed rows of the query's own relations.
        full_deltas: The name of each full relation that changes, its delta and the largest absolute
            weight of the delta.
    """

    __slots__ = ("_full", "changed_rows", "full_deltas")

    def __init__(self, relations: Relations, full: Mapping[str, DeferredTrace]) -> None:
        """Create a step without deltas."""
        super().__init__(relations)
        self._full = full
        self.changed_rows = 0
        self.full_deltas: list[tuple[str, ZSet, int]] = []

    @property
    def rows(self) -> int:
        """The number of changed rows of the query's own relations."""
        return self.changed_rows

    def _commit_traces(self, rows: int) -> None:
        super()._commit_traces(rows)
        for name, delta, largest in self.full_deltas:
            self._full[name].append(delta, largest)


def _order_from(column: int, arity: int) -> ColumnOrder:
    """Return the column order that begins with a column."""
    return (column, *(other for other in range(arity) if other != column))


def _filter_words(semijoins: Sequence[Semijoin], traces: Mapping[str, Trace]) -> Int64Array:
    """Return the semijoins of a relation as the kernel reads them.

    The addresses are valid as long as the arrangements of the unary relations.
    """
    conditions = list(dict.fromkeys(c for semijoin in semijoins for c in semijoin.conditions))
    words = [len(conditions)]
    for column, unary in conditions:
        words += [column, traces[unary].arrange((0,)).spine.table_address]
    for semijoin in semijoins:
        words.append(sum([1 << conditions.index(c) for c in semijoin.conditions]))
    return np.array(words, np.int64)


def _order_to_read(trace: Trace) -> ColumnOrder:
    """Return the column order whose rows need no sort, if the trace is arranged in it."""
    columns = tuple(range(trace.arity))
    return columns if trace.has_arrangement(columns) else trace.orders[0]


def _read_runs(trace: Trace) -> Iterator[ZSet]:
    """Yield the rows of each run, oldest first; their sum is the trace."""
    order = _order_to_read(trace)
    for run in trace.arrange(order).spine.runs:
        columns, weights = run.read()
        if order == tuple(range(trace.arity)):
            yield ZSet(columns, weights)
        else:
            rows = np.empty_like(columns)
            rows[list(order)] = columns
            yield consolidated_rows(rows, weights)


def _run_filters(rows: ZSet, filters: Int64Array) -> tuple[list[ZSet], int]:
    """Return the rows of each semijoin, and the largest absolute weight of all rows."""
    columns = rows.row_array
    arity = len(columns)
    out, counts, largest = semijoin_rows(columns, rows.weight_array, filters)
    parts = []
    start = 0
    for count in counts.tolist():
        middle = start + arity * count
        end = middle + count
        parts.append(ZSet(out[start:middle].reshape(arity, count), out[middle:end]))
        start = end
    return parts, largest
