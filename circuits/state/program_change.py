"""Program change: move the state of a circuit to a circuit of other views.

::

    old program + its state    ->    new program + its state + the changes that its views publish

The state of equal sub-plans is taken over (`circuits.state.reuse`). All other state of the new
program is computed from rows that the old state has (`circuits.state.backfill`), or that the caller
gives. The rest of the old state is dropped. The result is the state that the new program would
have if it had received the rows that are kept. Of each view, the change says what it publishes:

==========  ====================================================================================
unchanged   nothing: a view of this name was published before, with equal columns and rows
renamed     nothing: as unchanged, under another name (``renames``)
changed     the difference between its new and its old rows; the columns are the same
replaced    all its rows; a view of this name was published before, with other columns
new         all its rows
==========  ====================================================================================

A change that drops a view, the copy of a materialized view, or rows of an input that the new state
does not have, loses something that no later change can bring back. `ProgramChange.losses` names
these.

Event time: the watermark of an input stays if its event time is the same column. It goes back if
rows are kept for a shorter time after it: so the limit of expiry stays, and rows that the shorter
retention no longer keeps expire when the watermark next advances. Rows that have expired do not
come back with a longer one. Another ``on_expiry`` holds for the rows that expire after the change;
published results of rows that have expired stay.

Alternative considered: evaluate every new view by its non-incremental form and load the result. But
the state of an operator is more than its result. A step over all rows from an empty state computes
both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from circuits.circuit import Circuit
from circuits.errors import ProgramChangeError
from circuits.plan.nodes import Field
from circuits.runtime.graph import NOW, Graph, watermark_of
from circuits.state.backfill import Backfill, check_kept_rows
from circuits.state.kept_rows import KeptRows, find_dependents
from circuits.state.registry import operator_trace, relation_trace
from circuits.state.reuse import Reuse, is_partial
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.generic_join import relation_to_zset

__all__ = ["ComputedRows", "ProgramChange", "TraceChange", "ViewChange", "ViewChangeKind"]

ViewChangeKind = Literal["unchanged", "renamed", "changed", "replaced", "new"]

#: The seconds to compute the state of an operator from one row, for estimates, as measured by
#: `benchmarks.program_change`: from 70 ns to 430 ns, by the operator.
SECONDS_PER_ROW: Final = 2e-7


@dataclass(frozen=True)
class ViewChange:
    """The change of an output.

    Attributes:
        view: Its name in the new program.
        old_view: The name under which it was published before; None if it was not.
        kind: What it publishes; see the module.
    """

    view: str
    old_view: str | None
    kind: ViewChangeKind


@dataclass(frozen=True)
class TraceChange:
    """The change of a trace.

    Attributes:
        name: Its name (`circuits.state.registry`), in the old program if it is dropped.
        action: "reuse", "backfill" or "drop".
        rows: The number of its rows in the old state; None if it is computed.
        bytes: Their size in memory or in mapped files; None if it is computed.
    """

    name: str
    action: Literal["reuse", "backfill", "drop"]
    rows: int | None
    bytes: int | None


@dataclass(frozen=True)
class ComputedRows:
    """The rows of views, computed for a change of the program.

    Attributes:
        deltas: The rows of the views of the new program that are not unchanged.
        old_deltas: The rows of the old views that have changed, by their old names.
        now: The time of the rows, if the new program reads it.
        origin: The old state that the rows were computed from, and that must be the same when the
            change is finished; None if the caller makes sure of this.
    """

    deltas: Mapping[str, ZSet]
    old_deltas: Mapping[str, ZSet]
    now: int | None
    origin: object = None


class ProgramChange:
    """The change of a program: first a plan, which reads no rows, then `apply`.

    Args:
        old: The circuit of the old program, with its state.
        new: The circuit of the new program; `apply` replaces its state.
        published: The views of the old program that have published their rows; by default its
            outputs.
        renames: By the name of a view of the new program, its name in the old program.
        given: The inputs whose rows the caller has, as they are after the last step of ``old``.
            They are read only if the state does not have them.
        dropped: The views of the old program that the caller removes on purpose; they are no
            losses.
        lacking: The traces of ``old`` that do not have their rows, possibly none, if another
            version of this library computed its views by another plan
            (`circuits.state.replanned_state`); None if it was the same plan. The state of operators
            without such rows is computed; an unchanged view publishes nothing all the same.

    Attributes:
        old: As given.
        new: As given.
        is_replanned: True if ``lacking`` is given.
        views: What becomes of each output of the new program.
        removed_views: The published views of the old program that the new one does not publish.
        integrals: The operators that keep the rows of the materialized views of the new program.

    Raises:
        ProgramChangeError: A name in ``renames`` or ``given`` does not exist, or an option of an
            input cannot change.

    >>> from circuits import compile_sql
    >>> schemas = {"e": "src bigint not null, dst bigint not null"}
    >>> join = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
    >>> old = compile_sql(join, schemas)
    >>> step = old.step({"e": [{"src": 1, "dst": 2}, {"src": 2, "dst": 3}]})
    >>> count = "CREATE VIEW sources AS SELECT src, count(*) AS n FROM e GROUP BY src"
    >>> new = compile_sql(join + count, schemas)
    >>> change = ProgramChange(old, new)
    >>> [(view.view, view.kind) for view in change.views]
    [('paths', 'unchanged'), ('sources', 'new')]
    >>> change.apply()["sources"].to_pylist()
    [{'src': 1, 'n': 1, 'weight': 1}, {'src': 2, 'n': 1, 'weight': 1}]
    """

    def __init__(
        self,
        old: Circuit,
        new: Circuit,
        *,
        published: Collection[str] | None = None,
        renames: Mapping[str, str] | None = None,
        given: Collection[str] = (),
        dropped: Collection[str] = (),
        lacking: Collection[str] | None = None,
    ) -> None:
        self.old = old
        self.new = new
        self.is_replanned = lacking is not None
        self._given = given
        self._dropped = dropped
        self._renames = dict(renames or {})
        self._published = set(old.outputs if published is None else published)
        self._check_names()
        self._check_expired_results()
        self._graph, self.integrals = new.build_graph(old.codecs)
        self._reuse = Reuse(old.graph, self._graph, lacking or ())
        self._kept = KeptRows(old.graph, lacking or ())
        self.views = tuple(map(self._view_change, new.outputs))
        continued = {view.old_view for view in self.views}
        self.removed_views = tuple(
            name for name in old.plans if name in self._published and name not in continued
        )
        self._watermarks = self._new_watermarks()

    @cached_property
    def traces(self) -> tuple[TraceChange, ...]:
        """The change of each trace that has state in either program."""
        old_traces = self.old.graph.traces
        changes = []
        for name, trace in self._graph.traces.items():
            old_name = self._reuse.traces.get(name)
            if old_name is not None:
                changes.append(_trace_change(name, "reuse", old_traces[old_name]))
            elif trace.orders:
                changes.append(TraceChange(name, "backfill", None, None))
        reused = set(self._reuse.traces.values())
        for name, trace in old_traces.items():
            if name not in reused and trace.orders:
                changes.append(_trace_change(name, "drop", trace))
        return tuple(changes)

    @property
    def reused_traces(self) -> Mapping[str, str]:
        """The name of the old trace, by the name of the new trace that takes it over."""
        return self._reuse.traces

    @property
    def reused_row_ids(self) -> set[str]:
        """The dictionaries of row ids that are taken over under the same name."""
        return self._reuse.row_ids

    @property
    def has_same_inputs(self) -> bool:
        """True if both programs have equal inputs, and so equal checksums of their rows."""
        old, new = self.old, self.new
        return (
            not self.is_replanned  # it may have read other columns
            and old.inputs.keys() == new.inputs.keys()
            and old.input_options == new.input_options
            and all(old.inputs[name].fields == new.inputs[name].fields for name in old.inputs)
            and all(
                old.graph.read_columns(name) == self._graph.read_columns(name)
                for name in old.inputs
            )
        )

    @property
    def missing(self) -> dict[str, str]:
        """By the input whose rows are not kept: why the change cannot be applied."""
        missing: dict[str, list[str]] = {}
        reasons: dict[str, str] = {}
        for backfill in (self._backfill, self._old_views):
            for rows in backfill.missing:
                columns = missing.setdefault(rows.input, [])
                columns += [column for column in rows.columns if column not in columns]
                reasons.setdefault(rows.input, rows.reason)
        return {
            name: f"input {name!r}: new or changed views need the rows of its columns "
            f"({', '.join(columns)}) so far, and {reasons[name]}"
            for name, columns in missing.items()
        }

    @property
    def given_inputs(self) -> set[str]:
        """The inputs whose rows `apply` reads from the caller."""
        return {*self._backfill.tables.values(), *self._old_views.tables.values()}

    @property
    def backfill(self) -> Backfill:
        """The rows that the state and the outputs of the new program need."""
        return self._backfill

    @property
    def graph(self) -> Graph:
        """The operators of the new program, until `finish` gives them to its circuit."""
        return self._graph

    @property
    def watermarks(self) -> dict[str, int]:
        """The watermarks of the inputs that the new program goes on with, as of now."""
        return {name: time for name, time in self._new_watermarks().items() if name != NOW}

    @property
    def rows_to_read(self) -> int:
        """The number of rows of the state that `apply` reads."""
        return self._backfill.rows + self._old_views.rows

    @property
    def estimated_seconds(self) -> float:
        """About how long `apply` takes, from the rows that it reads and the state it computes."""
        new_traces = sum(change.action == "backfill" for change in self.traces)
        return self.rows_to_read * (1 + new_traces) * SECONDS_PER_ROW

    @property
    def losses(self) -> list[str]:
        """The losses of the change, one text each: views, materialized views and rows of inputs."""
        losses = [
            f"view {name!r}, which is not published any more"
            for name in self.removed_views
            if name not in self._dropped
        ]
        losses += [
            f"the published rows of view {view.old_view!r}, which has other columns now: its "
            "target still has rows with the old ones"
            for view in self.views
            if view.kind == "replaced"
        ]
        new_names = {self._renames.get(name, name) for name in self.new.materialized}
        losses += [
            f"the materialized rows of view {name!r}"
            for name in self.old.materialized
            if name in self.old.plans and name not in {*new_names, *self._dropped}
            if self._has_state
        ]
        return losses + self._lost_inputs()

    def apply(
        self,
        tables: Mapping[str, pa.Table] | None = None,
        *,
        now: int | None = None,
    ) -> dict[str, pa.Table]:
        """Give the new circuit its state; the old one accepts no more steps.

        Args:
            tables: The rows of the inputs in ``given_inputs``, with the columns of the new program.
            now: The time in microseconds since 1970, if views of the new program read ``now()``,
                and none of the old program did.

        Returns:
            The changes that each output publishes because of the change of the program, with
            ``weight``; none for those that publish nothing.

        Raises:
            ProgramChangeError: Rows that are needed are not kept; or kept rows do not fit the new
                schema or options of their input. Neither circuit has changed.
            BusyCircuitError: Another thread makes a step of the new circuit; as above.

        Complexity:
            O(rows that are read), and the work of a first step over them. State that is taken over
            is not read, unless a new join needs it in another order.
        """
        return self.finish(self.compute(tables, now=now))

    def compute(
        self, tables: Mapping[str, pa.Table] | None = None, *, now: int | None = None
    ) -> ComputedRows:
        """Compute the new state, for `finish`; neither circuit changes.

        The arguments, errors and the complexity are those of `apply`. Steps of the old circuit in
        other threads wait, because the rows add values to its dictionaries.

        Raises:
            BusyCircuitError: This thread is computing a step of the old circuit.
        """
        return self.old.run_exclusively(lambda: self._compute(tables, now))

    def _compute(self, tables: Mapping[str, pa.Table] | None, now: int | None) -> ComputedRows:
        self.begin()
        old, graph = self.old, self._graph
        stored_now = old.graph.watermarks.get(NOW)
        now = stored_now if stored_now is not None else now
        graph.watermarks = {k: v for k, v in self._watermarks.items() if k != NOW}
        zsets = {name: self._given_rows(name, tables or {}) for name in self.given_inputs}
        deltas: Mapping[str, ZSet] = {}
        if not self._backfill.is_empty:
            step = self._backfill.run(zsets, old.codecs, now if graph.reads_now else None)
            step.commit()
            deltas = {name: step.deltas[position] for name, position in graph.views.items()}
        old_deltas = self._old_view_rows(zsets, now)
        return ComputedRows(deltas, old_deltas, now, self._origin)

    def begin(self) -> None:
        """Begin the backfill: rows can be computed from here on.

        Raises:
            ProgramChangeError: Rows that are needed are not kept.
        """
        if self.missing:
            raise ProgramChangeError("; ".join(self.missing.values()))
        self._reuse.share_row_ids()
        self._reuse.share_results()

    def finish(self, computed: ComputedRows, *, keep_orders: bool = False) -> dict[str, pa.Table]:
        """Give the new circuit its state, after its new state has been computed.

        Args:
            computed: The rows of the views.
            keep_orders: True if the new traces have all rows, so that a trace that is taken over
                keeps the column orders that only the new program has.

        Returns:
            As `apply`.

        Raises:
            ProgramChangeError, BusyCircuitError: As `apply`; or the old circuit has made or
                prepared a step since the rows were computed.
        """
        old, graph = self.old, self._graph
        codecs = old.codecs
        if computed.origin not in (None, self._origin):
            raise ProgramChangeError(
                "the old circuit has made or prepared a step since the rows of the views were "
                "computed: plan the change again, and finish it before the next step"
            )
        self._watermarks = self._new_watermarks()
        # Rows that are dropped from these traces may not be the same ones in the backfill.
        partial_traces = {
            relation_trace(node.state_name)
            for position, node in enumerate(graph.nodes)
            if is_partial(graph, position) and not self._has_dropped_same_rows(position)
        }
        for name, old_name in self._reuse.traces.items():
            trace = graph.traces[name]
            is_filled = keep_orders and not trace.is_empty and name not in partial_traces
            orders = {a.order: a.spine.runs for a in trace.arrangements if is_filled}
            orders |= {a.order: a.spine.runs for a in old.graph.traces[old_name].arrangements}
            trace.load(orders)
        self._reuse.end_sharing_results()
        self._check_options()
        self._plan_joins()
        graph.steps = old.graph.steps
        graph.watermarks = dict(self._watermarks)
        if graph.reads_now and computed.now is not None:
            graph.watermarks[NOW] = computed.now
        graph.rows, graph.seconds, graph.drop_limits = (), (), {}
        changes = {}
        for view in self.views:
            if view.kind in ("unchanged", "renamed") or not self._has_state:
                continue
            delta = computed.deltas[view.view]
            if view.kind == "changed":
                assert view.old_view is not None
                delta = delta - computed.old_deltas[view.old_view]
            changes[view.view] = self.new.schema(view.view).to_table(delta, codecs)
        old.end()  # the circuits share dictionaries, which only one of them may sweep
        try:
            graph.values_after_sweep = old.graph.values_after_sweep
            self.new.adopt(codecs, graph, self.integrals)
        except BaseException:  # interrupted, or the new circuit is busy
            if self.new.graph is not graph:
                old.undo_end()
            raise
        return changes

    @property
    def _origin(self) -> tuple[Graph, int, int]:
        """The old graph, its number of steps, and how often values were removed from dictionaries.

        A step that is prepared removes the values that were added since the last commit.
        """
        graph = self.old.graph
        dictionaries = graph.registry.dictionaries.values()
        return graph, graph.steps, sum([dictionary.removals for dictionary in dictionaries])

    @property
    def _has_state(self) -> bool:
        return self.old.graph.steps > 0

    def _check_names(self) -> None:
        for name, old_name in self._renames.items():
            if name not in self.new.plans or old_name not in self.old.plans:
                raise ProgramChangeError(
                    f"renames: {{{name!r}: {old_name!r}}}: give a view of the new program "
                    f"({', '.join(self.new.plans)}) and its name in the old program "
                    f"({', '.join(self.old.plans)})"
                )
        names: dict[str, str] = {}
        for name in self.new.outputs:
            old_name = self._renames.get(name, name)
            other = names.setdefault(old_name, name)
            if other != name and old_name in self._published:
                raise ProgramChangeError(
                    f"renames: views {other!r} and {name!r} would both go on with the published "
                    f"rows of view {old_name!r}: rename only one of them, or give the view that is "
                    "not a continuation a name that no view had"
                )
        for name in self._given:
            if name not in self.new.inputs:
                raise ProgramChangeError(
                    f"backfill: {name!r} is not an input of the new program; inputs are "
                    f"{', '.join(self.new.inputs)}"
                )

    def _check_expired_results(self) -> None:
        """Check that no materialized view goes on with results of expired rows.

        An input with ``on_expiry="keep"`` leaves them there. Without this option, no later step
        would delete them, and views that are added later would be computed from them.
        """
        inputs = {
            name
            for name, checked in self.old.graph.checked_inputs.items()
            if checked.keeps_results
            and not (
                name in self.new.graph.checked_inputs
                and self.new.graph.checked_inputs[name].keeps_results
            )
        }
        dependents = find_dependents(self.old.graph, inputs)
        for name in self.new.materialized:
            old_name = self._renames.get(name, name)
            if old_name not in self.old.materialized or not self._has_state:
                continue
            if self.old.graph.views.get(old_name) in dependents:
                raise ProgramChangeError(
                    f"view {name!r} is materialized and has results of expired rows of "
                    f"{', '.join(sorted(inputs))} (on_expiry='keep'), which would stay in it for "
                    "ever without this option: leave the view out of materialize for this change, "
                    "and materialize it again with a later one"
                )

    def _view_change(self, name: str) -> ViewChange:
        old_name = self._renames.get(name, name)
        if old_name not in self._published or old_name not in self.old.plans:
            return ViewChange(name, None, "new")
        columns, old_columns = (
            [(field.name, field.type) for field in circuit.schema(view).fields]
            for circuit, view in ((self.new, name), (self.old, old_name))
        )
        if columns != old_columns:
            return ViewChange(name, old_name, "replaced")
        old_position = self.old.graph.views[old_name]
        if self._reuse.nodes.get(self._graph.views[name]) != old_position:
            return ViewChange(name, old_name, "changed")
        return ViewChange(name, old_name, "unchanged" if name == old_name else "renamed")

    @cached_property
    def _backfill(self) -> Backfill:
        """The rows that the state and the outputs of the new program need."""
        graph = self._graph
        if not self._has_state:
            return Backfill(self._reuse, self._kept, (), ())
        required = {
            graph.views[view.view]
            for view in self.views
            if view.kind not in ("unchanged", "renamed")
        }
        computed: set[int] = set()
        fixpoints = {  # the position of the recursion, by that of each node inside it
            inner: position
            for position, circuit in graph.nested_circuits.items()
            for inner in (*circuit.references, *circuit.order)
        }
        for position, node in enumerate(graph.nodes):
            names = [
                operator_trace(node.state_name, index)
                for index in range(len(getattr(node.operator, "traces", ())))
            ]
            relation = relation_trace(node.state_name)
            is_new = [name for name in names if self._is_new(name)]
            if position in fixpoints:
                if is_new or self._is_new(relation):
                    computed.add(fixpoints[position])
                continue
            if is_new:
                computed.add(position)
            if self._is_new(relation):
                required.add(position)
        return Backfill(self._reuse, self._kept, required, computed, self._given_columns)

    @property
    def _given_columns(self) -> dict[str, Sequence[Field]]:
        """The columns of the rows that the caller gives: those of the new program."""
        return {name: self.new.inputs[name].fields for name in self._given}

    def _is_new(self, name: str) -> bool:
        trace = self._graph.traces.get(name)
        return trace is not None and bool(trace.orders) and name not in self._reuse.traces

    def _has_dropped_same_rows(self, position: int) -> bool:
        """Return whether the traces of a node in both graphs have dropped rows by equal limits."""
        old_position = self._reuse.nodes.get(position)
        limits = [
            graph.state_bounds.limit_of_relation(at, graph.drop_limits)
            for graph, at in ((self._graph, position), (self.old.graph, old_position))
            if graph.state_bounds is not None and at is not None
        ]
        return len(limits) == 2 and limits[0] is not None and limits[0] == limits[1]

    @cached_property
    def _old_graph(self) -> Graph:
        """The old program without state, to compute rows of its views."""
        return self.old.build_graph(self.old.codecs)[0]

    @cached_property
    def _old_views(self) -> Backfill:
        """The rows of the old views whose changes are published."""
        changed = [view.old_view for view in self.views if view.kind == "changed"]
        if not changed or not self._has_state:
            return Backfill(self._reuse, self._kept, (), ())
        reuse = Reuse(self.old.graph, self._old_graph)
        required = {self._old_graph.views[name] for name in changed if name is not None}
        return Backfill(reuse, self._kept, required, (), self._given_columns)

    def _old_view_rows(self, zsets: Mapping[str, ZSet], now: int | None) -> dict[str, ZSet]:
        if self._old_views.is_empty:
            return {}
        graph = self._old_graph
        reuse = Reuse(self.old.graph, graph)
        reuse.share_row_ids()
        reuse.share_results()
        watermarks = self.old.graph.watermarks
        graph.watermarks = {name: time for name, time in watermarks.items() if name != NOW}
        step = self._old_views.run(zsets, self.old.codecs, now if graph.reads_now else None)
        return {name: step.deltas[position] for name, position in graph.views.items()}

    def _given_rows(self, name: str, tables: Mapping[str, pa.Table]) -> ZSet:
        """Return the rows of an input that the caller gives, after its options."""
        if name not in tables:
            raise ProgramChangeError(f"the rows of input {name!r} are missing: give its table")
        zset = self.new.inputs[name].to_zset(tables[name], self.old.codecs)
        checked = self._graph.checked_inputs.get(name)
        if checked is None:
            return zset
        check_kept_rows(name, checked, zset)
        return checked.unexpired(zset, self._watermarks.get(watermark_of(name)))

    def _check_options(self) -> None:
        """Check the kept rows of inputs whose keys or strictness are new; arrange them."""
        for name, checked in self._graph.checked_inputs.items():
            if not checked.reads_rows:
                continue
            for order in checked.orders:
                checked.trace.arrange(order)
            old = self.old.input_options.get(name)
            options = checked.options
            same_keys = old is not None and set(old.keys) == set(options.keys)
            same_strict = old is not None and old.strict == options.strict
            if (options.keys and not same_keys) or (options.strict and not same_strict):
                rows = relation_to_zset(checked.trace, self.new.inputs[name].arity)
                check_kept_rows(name, checked, rows)

    def _plan_joins(self) -> None:
        """Plan the joins; those that are taken over get the plans that they had before."""
        registry, old_plans = self._graph.registry, self.old.graph.registry.plans
        joins = dict(registry.plans["joins"])
        if old_plans["formula"] == registry.plans["formula"]:
            for name, old_name in self._reuse.joins.items():
                if old_name in old_plans["joins"]:
                    joins[name] = old_plans["joins"][old_name]
        registry.resume({"formula": registry.plans["formula"], "joins": joins})

    def _new_watermarks(self) -> dict[str, int]:
        """Return the watermarks of the inputs whose event time is the same, and the last time."""
        old_watermarks = self.old.graph.watermarks
        watermarks = {}
        if NOW in old_watermarks:
            watermarks[NOW] = old_watermarks[NOW]
        for name, checked in self._graph.checked_inputs.items():
            old_checked = self.old.graph.checked_inputs.get(name)
            watermark = old_watermarks.get(watermark_of(name))
            if old_checked is None or watermark is None:
                continue
            if _event_time(self.old, name) != _event_time(self.new, name):
                continue
            delay, old_delay = checked.expiry_delay, old_checked.expiry_delay
            if delay is not None and old_delay is None:
                raise ProgramChangeError(
                    f"input {name!r} with lateness gets a retention: rows before its watermark "
                    "would never expire: start with a new state directory"
                )
            if delay is not None and old_delay is not None:
                # The next step deletes the rows from the old limit of expiry to the new one.
                watermark = min(watermark, watermark - old_delay + delay)
            watermarks[watermark_of(name)] = watermark
        return watermarks

    def _lost_inputs(self) -> list[str]:
        """Return the inputs of which the new state has fewer columns than the old state."""
        kept = KeptRows(self._graph)
        losses = []
        positions = {
            node.name: position for position, node in enumerate(self._graph.nodes) if node.is_input
        }
        for old_position, node in enumerate(self.old.graph.nodes):
            if not node.is_input:
                continue
            sources = self._kept.find_columns(old_position)
            names = {node.plan.fields[c].name for s in sources if s.trace.rows for c in s.columns}
            if node.name in positions:
                fields = self._graph.nodes[positions[node.name]].plan.fields
                names -= {
                    fields[c].name
                    for s in kept.find_columns(positions[node.name])
                    for c in s.columns
                }
            if names:
                columns = [field.name for field in node.plan.fields if field.name in names]
                losses.append(f"the rows of input {node.name!r} (columns {', '.join(columns)})")
        return losses


def _event_time(circuit: Circuit, name: str) -> tuple[object, ...]:
    """Return the event time of an input: its name, its type, and how it is computed."""
    options = circuit.input_options[name]
    column, schema = options.time_column, circuit.inputs[name]
    types = [field.type for field in schema.fields if field.name == column]
    computed = circuit.spec.event_times.get(name)
    return column, *types, None if computed is None else computed.expression


def _trace_change(name: str, action: Literal["reuse", "drop"], trace: Trace) -> TraceChange:
    size = sum(arrangement.spine.nbytes for arrangement in trace.arrangements)
    return TraceChange(name, action, trace.rows, size)
