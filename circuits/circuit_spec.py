"""Definition: what a circuit is, without its state: plans, inputs, and how its joins are made.

A frozen value that can be pickled, so a circuit can be made again elsewhere: in another process, or
when state on disk is to be continued. Its fingerprints say which state fits it. They cover what
state depends on: the plan of every view, the columns and the rules of every input, and what is kept
whole. Formula, parts, threads, the limits of a step, the bound on iterations and which views are
published are not covered: the same state serves all of them.

A circuit that was compiled from a text remembers it (`SourceText`), so that the definition can be
stored as text and compiled again. The text is not part of the fingerprints; plans are.

Fingerprints are per part, so that who compares two definitions can say in what they differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from circuits.errors import CircuitError
from circuits.inputs.input_options import InputOptions
from circuits.plan.fixpoint import MAX_ITERATIONS
from circuits.plan.nodes import Plan
from circuits.plan.structural_hash import PlanHasher
from circuits.schema import Schema
from dbsp_wcoj import Formula
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from dbsp_wcoj.planning.formula_candidates import FormulaName

if TYPE_CHECKING:
    from circuits.circuit import Circuit

__all__ = ["CircuitSpec", "SourceText", "chosen"]

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
        CircuitError: ``language`` is neither of the two.
    """

    language: Language
    text: str
    name: str = "view"
    dialect: str = "duckdb"

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise CircuitError(f"language {self.language!r} is none of {', '.join(LANGUAGES)}")


@dataclass(frozen=True)
class CircuitSpec:
    """All that a circuit is made from; `circuits.circuit.Circuit` says what each part means.

    >>> import pickle
    >>> from circuits import compile_sql
    >>> schemas = {"e": pa.schema([("src", pa.int64()), ("dst", pa.int64())])}
    >>> circuit = compile_sql("SELECT count(*) AS n FROM e", schemas)
    >>> definition = pickle.loads(pickle.dumps(circuit.definition))
    >>> definition.circuit().fingerprint == circuit.fingerprint
    True
    >>> list(definition.fingerprints)
    ['input e', 'view view', 'materialized']
    """

    plans: Mapping[str, Plan]
    schemas: Mapping[str, pa.Schema]
    outputs: tuple[str, ...]
    materialize: tuple[str, ...] = ()
    formula: FormulaName = Formula.collapsed
    parts: int = 1
    iterations: int = MAX_ITERATIONS
    rules: Mapping[str, InputOptions] = field(default_factory=dict)
    source: SourceText | None = field(default=None, compare=False)
    limits: StepLimits = DEFAULT_LIMITS

    def circuit(self, executor: Executor | None = None) -> Circuit:
        """A new circuit, without state.

        Args:
            executor: Threads for the joins; none by default.
        """
        from circuits.circuit import Circuit  # which is made from a definition

        return Circuit(
            self.plans,
            self.schemas,
            outputs=self.outputs,
            materialize=self.materialize,
            formula=self.formula,
            executor=executor,
            parts=self.parts,
            iterations=self.iterations,
            rules=self.rules,
            source=self.source,
            limits=self.limits,
        )

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """What state depends on, as 16 hex digits for each input, each view and what is kept."""
        hasher = PlanHasher()
        found = {}
        for name, schema in self.schemas.items():
            given = Schema.of(name, schema)
            rules = self.rules.get(name)
            found[f"input {name}"] = _digest(repr((given, rules) if rules else given))
        for name, plan in self.plans.items():
            found[f"view {name}"] = _digest(repr((Schema(name, plan.fields), hasher.hash(plan))))
        return found | {"materialized": _digest(repr(sorted(self.materialize)))}

    @cached_property
    def fingerprint(self) -> str:
        """All fingerprints as one; it does not depend on the order of inputs and views."""
        return _digest(repr(sorted(self.fingerprints.items())))


def chosen(role: str, names: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    """The names, in the order of the known ones, so that a set names the same circuit."""
    if isinstance(names, str):
        raise CircuitError(f"{role}: {names!r} is one text, not a collection: give [{names!r}]")
    check_type(role, names, Collection, "a collection of names")
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise CircuitError(
                f"{role}: {name!r} is not there; known are {', '.join(known)}: "
                "add its definition or drop the name"
            )
    return tuple(name for name in known if name in names)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
