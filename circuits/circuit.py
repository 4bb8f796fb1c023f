"""Circuit: named rules over named relations, stepped together and all or nothing.

A rule is a conjunctive query; several rules with one head name add up (union of Z-sets); a head
named in ``distinct`` becomes a set. Rules may use the heads of other rules, not their own::

    e(a, b) :- message(a, b), a != b                        distinct: e
    reach(a) :- e(a, b), e(b, c), e(a, c)                   adds up with ...
    reach(c) :- e(a, b), e(b, c), e(a, c)

For every step the rules run in topological order; a rule gets the deltas of the relations it
reads, whether these are inputs or heads, so by the chain rule the whole is the composition of
the incremental parts. All rules share the relations' traces: one arrangement for each column
order that any of them needs.

Invariant: a step is all or nothing. ``prepare`` encodes and validates every table, then computes
every delta without touching state; ``commit`` swaps the new state in. An error before ``commit``
leaves the circuit as it was; one inside ``commit`` (out of memory, say) closes it for good.
``prepare`` and ``commit`` are apart so that a durable sink can write the delta in between.

This is the small first form: int64 columns and conjunctive rules. Typed columns, SQL and Datalog
compile to circuits in a later one; the signature of ``step`` stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

import pyarrow as pa

from circuits.distinct import Distinct
from circuits.errors import BrokenCircuitError, RuleError, StaleStepError, UnknownInputError
from circuits.schema import WEIGHT, Schema
from dbsp_wcoj import DeltaQuery, Formula, Query, Relations, ZSet

__all__ = ["Circuit", "CircuitStep"]


class Prepared(Protocol):
    """What an operator hands back before its state changes."""

    def commit(self) -> None: ...


class Circuit:
    """Views over changing relations, maintained by deltas.

    Args:
        rules: Conjunctive queries, as text or values; the head's variables name the columns.
        schemas: The input relations, with integer columns.
        distinct: Heads that are sets: weight 1 where the summed weight is positive.
        outputs: Heads that ``step`` returns; all of them when not given.
        formula: The delta formula of every rule.
        executor: Threads for the joins; none by default.
        parts: Into how many parts a delta is split over the executor.

    Raises:
        RuleError: The rules are recursive, disagree on a head, or name what is not there.
        QuerySyntaxError, UnsafeVariableError, ArityError, FormulaError: A rule is no query.

    >>> edge = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    >>> circuit = Circuit(
    ...     ["e(a, b) :- link(a, b), a != b", "triangles() :- e(a, b), e(b, c), e(a, c)"],
    ...     {"link": edge},
    ...     distinct=["e"],
    ...     outputs=["triangles"],
    ... )
    >>> link = pa.table({"src": [1, 2, 1, 1], "dst": [2, 3, 3, 3]})
    >>> circuit.step({"link": link})["triangles"].to_pylist()
    [{'weight': 1}]
    >>> gone = pa.table({"src": [1], "dst": [3], "weight": [-2]})
    >>> circuit.step({"link": gone})["triangles"].to_pylist()
    [{'weight': -1}]
    """

    def __init__(
        self,
        rules: Sequence[Query | str],
        schemas: Mapping[str, pa.Schema],
        *,
        distinct: Collection[str] = (),
        outputs: Collection[str] | None = None,
        formula: Formula | str = Formula.collapsed,
        executor: Executor | None = None,
        parts: int = 1,
    ) -> None:
        queries = [Query.parse(rule) if isinstance(rule, str) else rule for rule in rules]
        self.inputs = {name: Schema.of(name, schema) for name, schema in schemas.items()}
        self.views = _heads(queries, self.inputs)
        self._order = _stratified(queries, {**self.inputs, **self.views})
        self.outputs = tuple(self._order if outputs is None else outputs)
        for role, names in (("distinct", distinct), ("outputs", self.outputs)):
            for name in names:
                if name not in self.views:
                    raise RuleError(
                        f"{role}: {name!r} is not the head of a rule; heads are "
                        f"{', '.join(self.views)}: add the rule or drop the name"
                    )
        self._relations = Relations()
        self._rules = {
            name: tuple(
                DeltaQuery(
                    query,
                    formula=formula,
                    executor=executor,
                    parts=parts,
                    relations=self._relations,
                )
                for query in queries
                if query.name == name
            )
            for name in self._order
        }
        self._distinct = {name: Distinct(self.views[name].arity) for name in distinct}
        self._version = 0
        self._broken = False

    def step(self, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Apply the changes of one moment and return the change of every output.

        Args:
            tables: A table of rows per input relation, with an optional integer column
                ``weight``; a relation without a table does not change.

        Returns:
            For every output a table of the changed rows, with ``weight``.

        Raises:
            UnknownInputError, SchemaError: A table is refused; nothing has changed.
            WeightOverflowError: A weight would leave int64; nothing has changed.
        """
        prepared = self.prepare(tables)
        prepared.commit()
        return prepared.outputs

    def prepare(self, tables: Mapping[str, pa.Table]) -> CircuitStep:
        """Validate and compute a step; the state changes at ``commit`` and not before."""
        self._check_whole()
        deltas = {name: self._encode(name, table) for name, table in tables.items()}
        shared = self._relations.stage({k: d for k, d in deltas.items() if k in self._relations})
        operators: list[Prepared] = [shared]
        for name in self._order:
            delta = ZSet.empty(self.views[name].arity)
            for rule in self._rules[name]:
                delta = delta + rule.evaluate(shared)
            if name in self._distinct:
                distinct = self._distinct[name].prepare(delta)
                operators.append(distinct)
                delta = distinct.delta
            deltas[name] = delta
            if name in self._relations:
                shared.add(name, delta)
        outputs = {name: self.views[name].to_table(deltas[name]) for name in self.outputs}
        return CircuitStep(outputs, tuple(operators), self, self._version)

    def explain(self) -> str:
        """The rules in the order in which they run, each with its plan."""
        blocks = []
        for name in self._order:
            kind = "distinct sum of" if name in self._distinct else "sum of"
            blocks.append(f"{name}({', '.join(self.views[name].columns)}): {kind}")
            blocks.extend(rule.explain() for rule in self._rules[name])
        return "\n".join(blocks)

    def _check_whole(self) -> None:
        if self._broken:
            raise BrokenCircuitError(
                "an earlier commit failed half-way: build a new circuit and feed it again"
            )

    def _encode(self, name: str, table: pa.Table) -> ZSet:
        if name not in self.inputs:
            raise UnknownInputError(
                f"{name!r} is not an input; inputs are {', '.join(self.inputs)}: "
                "rename the relation or add its schema"
            )
        return self.inputs[name].to_zset(table)


@dataclass(frozen=True)
class CircuitStep:
    """A computed step: the ``outputs`` it will have, and ``commit`` to make it the state."""

    outputs: dict[str, pa.Table]
    operators: tuple[Prepared, ...]
    circuit: Circuit
    version: int

    def commit(self) -> None:
        """Make the step the state of the circuit.

        Raises:
            StaleStepError: Another step was committed since, or this one already was.
            BrokenCircuitError: An earlier commit failed half-way.
        """
        circuit = self.circuit
        circuit._check_whole()
        if circuit._version != self.version:
            raise StaleStepError(
                f"this step was prepared at version {self.version} and the circuit is at "
                f"{circuit._version}: prepare it again"
            )
        circuit._broken = True
        for operator in self.operators:
            operator.commit()
        circuit._broken = False
        circuit._version += 1


def _heads(queries: Sequence[Query], inputs: Mapping[str, Schema]) -> dict[str, Schema]:
    """The schema of every head: the variables of its first rule name the columns."""
    views: dict[str, Schema] = {}
    for query in queries:
        if query.name in inputs:
            raise RuleError(f"{query.name!r} is an input and the head of {query}: rename one")
        if len(set(query.head)) != len(query.head) or WEIGHT in query.head:
            raise RuleError(
                f"the head of {query} names columns: its variables must differ from each other "
                f"and from {WEIGHT!r}: rename them"
            )
        first = views.setdefault(query.name, Schema(query.name, tuple(query.head)))
        if first.arity != len(query.head):
            raise RuleError(
                f"rules for {query.name!r} have heads of {first.arity} and of {len(query.head)} "
                f"columns, the latter in {query}: rules with one head name are added up"
            )
    return views


def _stratified(queries: Sequence[Query], known: Mapping[str, Schema]) -> tuple[str, ...]:
    """The heads in an order in which each comes after the heads that it reads."""
    reads: dict[str, set[str]] = {}
    for query in queries:
        for relation, arity in query.relations.items():
            if relation not in known:
                raise RuleError(
                    f"{query} reads {relation!r}, which is neither an input nor a head; known "
                    f"are {', '.join(known)}: add its schema or its rule"
                )
            if known[relation].arity != arity:
                raise RuleError(
                    f"{query} reads {relation!r} with {arity} terms, it has "
                    f"{known[relation].arity} columns"
                )
        reads.setdefault(query.name, set()).update(query.relations)
    try:
        order = tuple(TopologicalSorter(reads).static_order())
    except CycleError as error:
        raise RuleError(
            f"rules read each other in a circle: {' <- '.join(error.args[1])}; recursion is not "
            "supported here: break the circle"
        ) from error
    return tuple(name for name in order if name in reads)
