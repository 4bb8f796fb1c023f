"""Named relations, whose rows are shared by all queries over them.

Each relation has one trace: its rows, sorted in each column order that any query needs (an
arrangement). A step is staged once, evaluated by each query, and committed once::

    step = relations.stage({"e": delta})
    deltas = [view.evaluate(step) for view in views]
    step.commit()

Nothing changes before the commit, so an error in any query leaves all of them as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import ArityError, DbspWcojError, UnknownRelationError
from dbsp_wcoj.storage.deferred_rows import DeferredRows
from dbsp_wcoj.storage.trace import ColumnOrder, Staged, Trace, TraceStep
from dbsp_wcoj.workers import MIN_PARALLEL_ROWS, run_tasks
from dbsp_wcoj.zset import ZSet, to_storable

__all__ = ["Relations", "RelationsStep", "check_delta"]


class Relations:
    """The traces of named relations.

    Attributes:
        arities: The number of columns of each relation.
        traces: The trace of each relation.
        version: The number of committed steps.
        has_unfinished_commit: True while a step is committed, and after an error or interrupt then:
            some traces may have the step and others not, so no further step is accepted, not even
            after `Trace.load`.
        arrangement_drops: The number of calls of `drop_unread`.
        planning: Held by the query that plans its terms and arranges traces for them; other threads
            may be running queries.

    >>> from dbsp_wcoj import DeltaQuery
    >>> relations = Relations()
    >>> triangles = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)", relations=relations)
    >>> paths = DeltaQuery("n() :- e(a, b), e(b, c)", relations=relations)
    >>> step = relations.stage({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])})
    >>> triangles.evaluate(step), paths.evaluate(step)
    (ZSet({(): 1}), ZSet({(): 1}))
    >>> step.commit()
    """

    __slots__ = (
        "_kept_names",
        "_occurrences",
        "_readers",
        "arities",
        "arrangement_drops",
        "has_unfinished_commit",
        "planning",
        "traces",
        "version",
    )

    def __init__(self) -> None:
        """Create an empty set of relations; queries declare those that they read."""
        self.arities: dict[str, int] = {}
        self.traces: dict[str, Trace] = {}
        self._kept_names: set[str] = set()
        # The most atoms of a query that read a relation, by relation.
        self._occurrences: dict[str, int] = {}
        self._readers: list[Callable[[], Mapping[str, Collection[ColumnOrder]]]] = []
        # Held while a query plans, and arranges traces that others read.
        self.planning = Lock()
        self.version = 0
        self.has_unfinished_commit = False
        self.arrangement_drops = 0

    def __contains__(self, name: str) -> bool:
        return name in self.traces

    def declare(self, name: str, arity: int, *, keep_rows: bool, occurrences: int = 1) -> Trace:
        """Return the trace of a relation; create it if no query has declared it.

        Args:
            name: The relation.
            arity: Its number of columns.
            keep_rows: True if arrangements may be requested after rows have been inserted; the
                trace then always has an arrangement from which others can be built.
            occurrences: How many atoms of the query read the relation. If it is more than one, the
                query looks up the rows of a delta in the trace of the same relation.

        Raises:
            ArityError: The relation was declared with another arity, or the arity is negative or
                too large.
        """
        check_type("name", name, str, "the name of a relation")
        check_type("arity", arity, int, "a number of columns")
        if arity < 0:
            raise ArityError(f"relation {name!r} has arity {arity}; give 0 or a positive number")
        declared = self.arities.get(name, arity)
        if declared != arity:
            raise ArityError(f"relation {name!r} has arity {declared}, not {arity}; rename one")
        trace = self.traces.get(name)
        if trace is None:
            # A relation without columns is stored with one column, which is always 0.
            trace = self.traces[name] = Trace(max(arity, 1), ())
            self.arities[name] = arity
        if keep_rows:
            trace.arrange(tuple(range(trace.arity)))
            self._kept_names.add(name)
        self._occurrences[name] = max(self._occurrences.get(name, 1), occurrences)
        return trace

    def estimate_lookups(self, name: str, rows: int, all_rows: int) -> int:
        """Return a rough estimate of how many rows a step searches for in a relation's trace.

        It is the estimate for one query that reads all relations, this one as often as the query
        that reads it most often, and the others once: for each atom of the relation, the query
        looks up the rows of the deltas of all other atoms.

        Args:
            name: The relation.
            rows: The rows of its delta.
            all_rows: The rows of the deltas of all relations.
        """
        occurrences = self._occurrences[name]
        return occurrences * (all_rows + (occurrences - 2) * rows)

    def add_reader(self, orders: Callable[[], Mapping[str, Collection[ColumnOrder]]]) -> None:
        """Register a reader.

        Args:
            orders: Returns the column orders that the reader needs now, by relation.
        """
        self._readers.append(orders)

    def drop_unread(self) -> None:
        """Drop the arrangements that no reader needs any more."""
        needed: dict[str, set[ColumnOrder]] = {}
        for orders in self._readers:
            for name, column_orders in orders().items():
                needed.setdefault(name, set()).update(column_orders)
        for name, needed_orders in needed.items():
            trace = self.traces[name]
            if name in self._kept_names:
                needed_orders.add(tuple(range(trace.arity)))
            trace.keep_arrangements(needed_orders)
        self.arrangement_drops += 1

    def check_committed(self) -> None:
        """Check that no commit has failed or been interrupted.

        Raises:
            DbspWcojError: One has, so the traces may disagree.
        """
        if self.has_unfinished_commit:
            raise DbspWcojError(
                "a step of these relations failed or was interrupted while it was committed, so "
                "some of them may have its rows and others not: create the view again, and give it "
                "all rows"
            )

    def stage(self, deltas: Mapping[str, ZSet]) -> RelationsStep:
        """Stage a step with these deltas, for the queries to evaluate.

        Raises:
            UnknownRelationError: No query has declared a relation of that name.
            ArityError: A delta has another arity than its relation.
            WeightOverflowError: The weight of a row would leave int64.
            DbspWcojError: An earlier commit has failed.
        """
        check_type("deltas", deltas, Mapping, "a mapping from relations to Z-sets")
        step = RelationsStep(self)
        for name, delta in deltas.items():
            step.add(name, delta)
        return step


class RelationsStep(Staged):
    """The staged deltas of one step.

    Attributes:
        by_name: The deltas that are not empty, by relation.
    """

    __slots__ = ("_relations", "_version", "by_name")

    def __init__(self, relations: Relations) -> None:
        """Create a step without deltas.

        Raises:
            DbspWcojError: An earlier commit has failed.
        """
        relations.check_committed()
        self.by_name: dict[str, TraceStep] = {}
        self._relations = relations
        self._version = relations.version

    def add(self, name: str, delta: ZSet, *, is_committed: bool = True) -> None:
        """Stage the delta of one more relation; see `Relations.stage` for errors.

        Args:
            name: The relation.
            delta: The delta.
            is_committed: False if only queries read the staged delta. Its runs are then built when
                they are read, and the weights of the relation are not checked.

        Raises:
            DbspWcojError: The relation has a delta already.
        """
        check_delta(name, delta, self._relations.arities)
        if name in self.by_name:
            raise DbspWcojError(
                f"relation {name!r} has a delta in this step already: add the two deltas, and "
                "stage their sum"
            )
        if len(delta.weight_array):
            rows = delta if len(delta.row_array) else to_storable(delta)
            trace = self._relations.traces[name]
            self.by_name[name] = trace.prepare(rows) if is_committed else TraceStep(trace, rows, {})

    def add_deferred(self, name: str, rows: DeferredRows) -> None:
        """Stage the first rows of a declared relation, which are sorted when they are read."""
        self.by_name[name] = TraceStep(self._relations.traces[name], None, deferred=rows)

    def sort(self, names: Iterable[str]) -> None:
        """Put the staged deltas in the order of these names; all others come after them."""
        ordered = {name: self.by_name[name] for name in names if name in self.by_name}
        self.by_name = ordered | self.by_name

    def replace(self, name: str, step: TraceStep | None) -> None:
        """Replace the staged delta of a relation, after all queries have been evaluated.

        Args:
            name: The relation.
            step: Another step of its trace, or the same; None if its rows do not change.
        """
        if step is not None:
            self.by_name[name] = step
        else:
            self.by_name.pop(name, None)

    @property
    def changes(self) -> Collection[TraceStep]:
        """The steps of the traces that change."""
        return self.by_name.values()

    @property
    def rows(self) -> int:
        """The number of changed rows."""
        return sum([step.rows for step in self.by_name.values()])

    def check(self, relations: Relations) -> None:
        """Check that the step was staged for the current version of these relations.

        Raises:
            DbspWcojError: The step belongs to other relations, or is out of date; or an earlier
                commit has failed.
        """
        relations.check_committed()
        if relations is not self._relations:
            raise DbspWcojError(
                "the step was staged for other relations; stage it for those of the view"
            )
        if relations.version != self._version:
            raise DbspWcojError(
                f"step prepared at version {self._version}, but the relations are at version "
                f"{relations.version}; prepare it again"
            )

    def commit(self) -> None:
        """Make the step part of the traces; only a lack of memory can still fail.

        After such an error, or an interrupt, the relations accept no more steps.

        Raises:
            DbspWcojError: This step was already committed, or another one since it was staged; or a
                trace was changed directly. No trace has changed then.
        """
        self.check(self._relations)
        for step in self.by_name.values():
            step.check_version()
        all_rows = self.rows
        for name, step in self.by_name.items():
            step.lookups = self._relations.estimate_lookups(name, step.rows, all_rows)
        self._relations.has_unfinished_commit = True
        self._commit_traces(all_rows)
        self._relations.version += 1
        self._relations.has_unfinished_commit = False

    def _commit_traces(self, rows: int) -> None:
        if rows >= MIN_PARALLEL_ROWS:
            run_tasks([step.commit for step in self.by_name.values()])
        else:
            for step in self.by_name.values():
                step.commit()


def check_delta(name: str, delta: ZSet, arities: Mapping[str, int]) -> None:
    """Check that a delta is one of a declared relation, given the arity of each.

    Raises:
        UnknownRelationError: The relation is not declared.
        ArityError: The delta has another arity than its relation.
    """
    if not isinstance(delta, ZSet):
        check_type(f"the delta of {name!r}", delta, ZSet, "a ZSet")
    arity = arities.get(name)
    if arity is None:
        declared = ", ".join(sorted(arities))
        raise UnknownRelationError(f"unknown relation {name!r}; relations: {declared}")
    if len(delta.row_array) != arity:
        raise ArityError(
            f"the delta of {name!r} has arity {delta.arity}, but the relation has {arity}; "
            f"project it"
        )
