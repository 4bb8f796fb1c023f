"""CircuitOptions: the settings of a circuit: outputs, delta formula, limits and so on.

`circuits.compile_sql` and `circuits.compile_datalog` take them as keyword arguments and store them
as this one value in the `circuits.circuit_spec.CircuitSpec`. The value can be compared and pickled.
Therefore the clock of a circuit is not part of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from circuits.errors import CircuitError
from circuits.inputs.input_options import InputOptions, check_options
from circuits.plan.fixpoint import MAX_ITERATIONS
from circuits.runtime.threads import check_threads
from dbsp_wcoj import Formula
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from dbsp_wcoj.planning.formula_candidates import FormulaName, parse_formula

__all__ = ["CircuitOptions"]


@dataclass(frozen=True)
class CircuitOptions:
    """The settings of a circuit, with the defaults of `compile_sql` and `compile_datalog`.

    Attributes:
        outputs: The views that ``step`` returns; None means all of them.
        materialize: The views and inputs that are kept whole, for ``views`` and ``query``: a
            collection of names, or True for all of them.
        formula: The delta formula of every join. With "auto", each join measures its work and
            chooses the formula itself.
        max_iterations: The limit of iterations of a recursion per step.
        input_options: The options of inputs that are not plain Z-sets, by name.
        limits: The rows, bytes and seconds that a step, or a query, may use.
        threads: The number of threads that share the work of a large step; None means the number
            of cores that the process may use.

    Raises:
        ArgumentTypeError: A value is of the wrong Python type.
        CircuitError: ``threads`` is less than 1.
        FormulaError: The formula is unknown.

    >>> CircuitOptions(formula="auto").formula, CircuitOptions().threads is None
    ('auto', True)
    """

    outputs: Collection[str] | None = None
    materialize: bool | Collection[str] = False
    formula: FormulaName | str = Formula.collapsed
    max_iterations: int = MAX_ITERATIONS
    input_options: Mapping[str, InputOptions] = field(default_factory=dict)
    limits: StepLimits = DEFAULT_LIMITS
    # It belongs to the machine, not to the views, so it is neither compared nor stored.
    threads: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_type("limits", self.limits, StepLimits, "StepLimits(...), or StepLimits.off()")
        check_threads(self.threads)
        check_type("max_iterations", self.max_iterations, int, "a number of iterations")
        object.__setattr__(self, "formula", parse_formula(self.formula))

    def resolve(self, inputs: Collection[str], views: Collection[str]) -> CircuitOptions:
        """Return the same options with names checked and defaults replaced by explicit values.

        Args:
            inputs: The names of the input relations.
            views: The names of the views.

        Returns:
            Options whose ``outputs`` and ``materialize`` are tuples of names, in the order of the
            circuit, so that a set and a list of the same names give the same circuit. Inputs with
            ``keep="all"`` are materialized.

        Raises:
            CircuitError: ``outputs`` or ``materialize`` name an unknown view or input.
            InputOptionsError: ``input_options`` name an unknown input.

        >>> CircuitOptions(materialize=True).resolve(["e"], ["v"]).materialize
        ('e', 'v')
        """
        relations = [*inputs, *views]
        materialize = self.materialize
        if isinstance(materialize, bool):
            materialize = relations if materialize else ()
        outputs = views if self.outputs is None else self.outputs
        materialized = _select("materialize", materialize, relations)
        input_options = check_options(self.input_options, inputs)
        kept = {name for name, options in self.input_options.items() if options.keep}
        return replace(
            self,
            outputs=_select("outputs", outputs, views),
            materialize=tuple(n for n in relations if n in materialized or n in kept),
            input_options=input_options,
        )


def _select(option: str, names: Collection[str], allowed: Collection[str]) -> tuple[str, ...]:
    """Return ``names`` in the order of ``allowed``."""
    if isinstance(names, str):
        raise CircuitError(f"{option}={names!r} must be a collection of names: give [{names!r}]")
    check_type(option, names, Collection, "a collection of names")
    for name in names:
        if not isinstance(name, str) or name not in allowed:
            raise CircuitError(
                f"{option}: unknown relation {name!r}; relations: {', '.join(allowed)}: "
                "add its definition or drop the name"
            )
    return tuple(name for name in allowed if name in names)
