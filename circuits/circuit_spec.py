"""CircuitSpec: a circuit without its state: plans, inputs and options.

A frozen value that can be pickled, so that a circuit can be built again elsewhere: in another
process, or to continue from state on disk. Its fingerprints say which state fits it. They cover
everything that state depends on: the plan of every view, the columns and options of every input,
and the relations that are kept whole. They do not cover the formula, the parts, the threads, the
limits of a step, the limit of iterations and the choice of outputs: the same state serves all of
them.

A circuit that was compiled from a text contains it (`SourceText`), so that the spec can be stored
as text and compiled again. The text is not part of the fingerprints; the plans are.

There is one fingerprint per part, so that a comparison of two specs can name the parts that differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, cast

import pyarrow as pa

from circuits.errors import CircuitError
from circuits.inputs.input_options import InputOptions
from circuits.options import CircuitOptions
from circuits.plan.event_time import EventTime, event_times
from circuits.plan.frontier import GivenStateBound
from circuits.plan.nodes import PlanNode
from circuits.plan.structural_hash import PlanHasher
from circuits.plan.traversal import iter_nodes
from circuits.plan.user_call import UserCall
from circuits.schema import Schema
from circuits.user_functions import UserFunction
from dbsp_wcoj.cached_property import cached_property

__all__ = ["CircuitSpec", "SourceText"]

Language = Literal["sql", "datalog"]
LANGUAGES: Final = ("sql", "datalog")


@dataclass(frozen=True)
class SourceText:
    """The text that the views of a circuit were compiled from.

    Attributes:
        language: "sql" or "datalog".
        text: The whole text.
        name: The name of the view of a plain SELECT.
        dialect: The SQL dialect, as sqlglot calls it.

    Raises:
        CircuitError: ``language`` has another value.
    """

    language: Language
    text: str
    name: str = "view"
    dialect: str = "duckdb"

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise CircuitError(
                f"unknown language {self.language!r}; languages: {', '.join(LANGUAGES)}"
            )


@dataclass(frozen=True)
class CircuitSpec:
    """Everything that a `circuits.Circuit` is built from.

    Attributes:
        plans: The plan of each view; each view is listed after the views that it reads.
        schemas: The columns of each input relation.
        options: The options, as `CircuitOptions.resolve` returns them.
        source: The text that the plans were compiled from; None if there is none.
        functions: The user-defined functions that the text can call, by lower-case name; those
            that a plan calls are also in its nodes.
        given_bounds: The bounds of the state whose values the caller of each step gives. They are
            not part of the fingerprints: the rows that they drop change no output.

    Raises:
        CircuitError: ``outputs`` or ``materialize`` name an unknown view or input.
        InputOptionsError: Options name an unknown input.

    >>> import pickle
    >>> from circuits import Circuit, compile_sql
    >>> schemas = {"e": pa.schema([("src", pa.int64()), ("dst", pa.int64())])}
    >>> circuit = compile_sql("SELECT count(*) AS n FROM e", schemas)
    >>> spec = pickle.loads(pickle.dumps(circuit.spec))
    >>> Circuit(spec).fingerprint == circuit.fingerprint
    True
    >>> list(spec.fingerprints)
    ['input e', 'view view', 'materialized']
    """

    plans: Mapping[str, PlanNode]
    schemas: Mapping[str, pa.Schema]
    options: CircuitOptions = field(default_factory=CircuitOptions)
    source: SourceText | None = field(default=None, compare=False)
    functions: dict[str, UserFunction] = field(default_factory=dict, compare=False)
    given_bounds: tuple[GivenStateBound, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "plans", dict(self.plans))
        object.__setattr__(self, "options", self.options.resolve([*self.schemas], [*self.plans]))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The views that ``step`` returns."""
        return cast("tuple[str, ...]", self.options.outputs)

    @property
    def materialized(self) -> tuple[str, ...]:
        """The views and inputs that are kept whole."""
        return cast("tuple[str, ...]", self.options.materialize)

    @property
    def input_options(self) -> Mapping[str, InputOptions]:
        """The options of the inputs that have any, by name."""
        return self.options.input_options

    @property
    def user_signatures(self) -> dict[str, str]:
        """The declarations of the user-defined functions that the views call, by name."""
        nodes = iter_nodes(*self.plans.values())
        called = {node.name: node.function for node in nodes if isinstance(node, UserCall)}
        return {name: function.signature for name, function in sorted(called.items())}

    @property
    def event_times(self) -> dict[str, EventTime]:
        """The computed event times of the inputs that views read, by the input's name."""
        return event_times(self.plans)

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Hashes of everything that the state depends on: of each input, of each view, and of the
        names of the materialized relations; 16 hexadecimal digits each.
        """
        hasher = PlanHasher()
        fingerprints = {}
        computed_times = self.event_times
        for name, columns in self.schemas.items():
            schema = Schema.of(name, columns)
            options = self.input_options.get(name)
            identity: object = (schema, options) if options else schema
            if name in computed_times:
                identity = schema, options, computed_times[name].expression
            fingerprints[f"input {name}"] = _digest(repr(identity))
        for name, plan in self.plans.items():
            definition = Schema(name, plan.fields), hasher.hash(plan)
            fingerprints[f"view {name}"] = _digest(repr(definition))
        fingerprints["materialized"] = _digest(repr(sorted(self.materialized)))
        return fingerprints

    @cached_property
    def fingerprint(self) -> str:
        """All fingerprints as one; it does not depend on the order of inputs and views."""
        return _digest(repr(sorted(self.fingerprints.items())))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
