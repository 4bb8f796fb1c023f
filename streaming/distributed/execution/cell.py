"""Build the circuits of the cells, and those of the driver.

A stage is the section of the whole circuit between two exchanges of rows: an operator with state,
and the linear operators above it. Its grid assigns each row to one or more cells. A cell is a
circuit of its own, which runs in one process.

The inputs of a cell are named and typed like the stage's relations; a join has one input for each
atom. Columns are named by position: ``c0, c1, …``. A part (`StagePart`) is a linear plan over the
stage's operator that another stage or a view reads. Each part is a view of the cell's circuit, so
all of them are computed from one state. The delta of a relation, or of a view, is the sum of the
outputs of all cells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from circuits.circuit_spec import CircuitSpec
from circuits.options import CircuitOptions
from circuits.plan.fixpoint import MAX_ITERATIONS
from circuits.plan.nodes import (
    Fields,
    Map,
    PlanNode,
    Scan,
    columns,
)
from circuits.schema import Schema
from dbsp_wcoj import Formula
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from dbsp_wcoj.planning.formula_candidates import FormulaName
from streaming.distributed.planning.stages import SOURCE, Stage, StagePart, Stages, atom_name

__all__ = [
    "OPERATOR",
    "cell_spec",
    "destination_of",
    "driver_spec",
    "group_by_destination",
    "parts_of_source",
    "returned_parts",
    "schema_of",
    "source_spec",
]

#: The view of a cell that is the stage's operator.
OPERATOR = "#operator"


def schema_of(fields: Fields) -> pa.Schema:
    """Return the columns of a relation in the exchange between stages."""
    return pa.schema(
        [pa.field(f"c{position}", f.type, f.nullable) for position, f in enumerate(fields)]
    )


def parts_of_source(stages: Stages, source: str | int | None) -> dict[str, StagePart]:
    """Return the parts that read a source, by name: the part's destination and a number.

    Args:
        stages: The stages of the circuit.
        source: The name of an input, or the number of a stage; None for the constants.

    >>> from streaming.distributed.planning.stages import Stages
    >>> parts_of_source(Stages((), {"v": (StagePart("e", Scan(SOURCE, ())),)}), "e")
    {'view v 0': StagePart(source='e', plan=Scan(relation='#source', fields=()), operator=0)}
    """
    parts_by_destination = {
        f"relation {relation.name}": relation.parts
        for stage in stages.stages
        for relation in stage.relations
    }
    parts_by_destination |= {f"view {name}": parts for name, parts in stages.outputs.items()}
    return {
        f"{name} {number}": part
        for name, parts in parts_by_destination.items()
        for number, part in enumerate(parts)
        if part.source == source
    }


def returned_parts(stages: Stages, parts: Collection[str]) -> tuple[str, ...]:
    """Return the names of parts, without those of hidden views.

    >>> returned_parts(Stages((), {}, hidden=frozenset({"v"})), ["view v 0", "relation r0 1"])
    ('relation r0 1',)
    """
    hidden = {f"view {view}" for view in stages.hidden}
    return tuple(name for name in parts if destination_of(name) not in hidden)


def cell_spec(
    stage: Stage,
    stages: Stages,
    *,
    formula: FormulaName = Formula.collapsed,
    limits: StepLimits = DEFAULT_LIMITS,
    max_iterations: int = MAX_ITERATIONS,
) -> CircuitSpec:
    """Return the circuit of a stage's cells.

    The operator is a separate view, and the parts read this view. So there is one operator with all
    its columns, even if a part needs only some of them, and its state is the same as that of the
    operator in the whole circuit.
    """
    parts = parts_of_source(stages, stage.number)
    plans: dict[str, PlanNode] = {
        OPERATOR if number == 0 else f"{OPERATOR} {number}": _rename_by_position(operator)
        for number, operator in enumerate(stage.operators)
    }
    scans = [Scan(name, plan.fields) for name, plan in plans.items()]
    plans |= {
        name: _rename_by_position(rebase(part.plan, scans[part.operator]))
        for name, part in parts.items()
    }
    relations = {relation.name: relation for relation in stage.relations}
    if stage.atoms:
        input_relations = {
            atom_name(atom.relation, position): relations[atom.relation]
            for position, atom in enumerate(stage.atoms)
        }
    else:
        input_relations = relations
    schemas = {name: schema_of(relation.fields) for name, relation in input_relations.items()}
    # A task of Spark has one core.
    options = CircuitOptions(
        outputs=returned_parts(stages, parts),
        materialize=(OPERATOR,) if stage.view else (),
        formula=formula,
        limits=limits,
        max_iterations=max_iterations,
        threads=1,
    )
    return CircuitSpec(plans, schemas, options, given_bounds=stage.bounds)


def driver_spec(
    spec: CircuitSpec, stages: Stages, destinations: Collection[str] | None = None
) -> CircuitSpec:
    """Return the driver's circuit: it computes the parts of all inputs, and the constants.

    Its state consists of the dictionaries, the rows of materialized inputs, and the state that
    input options need.

    Args:
        spec: The whole circuit.
        stages: Its stages.
        destinations: The relations and views whose parts it computes (`destination_of`); by default
            all.
    """
    plans: dict[str, PlanNode] = {}
    for name, schema in spec.schemas.items():
        scan = Scan(name, Schema.of(name, schema).fields)
        for part_name, part in parts_of_source(stages, name).items():
            plans[part_name] = _rename_by_position(rebase(part.plan, scan))
    for part_name, part in parts_of_source(stages, None).items():
        plans[part_name] = _rename_by_position(part.plan)
    if destinations is not None:
        plans = {name: plan for name, plan in plans.items() if destination_of(name) in destinations}
    return CircuitSpec(
        plans,
        spec.schemas,
        CircuitOptions(
            outputs=returned_parts(stages, plans),
            materialize=tuple(name for name in spec.materialized if name in spec.schemas),
            input_options=spec.input_options,
            limits=spec.options.limits,
            threads=spec.options.threads,
        ),
    )


def source_spec(spec: CircuitSpec, stages: Stages) -> CircuitSpec:
    """Return the circuit that computes the parts of the inputs from some of their rows.

    It is that of the driver without the constants, which belong to the first step only. Its parts
    are linear, so it has no state but dictionaries.
    """
    driver = driver_spec(spec, stages)
    constants = parts_of_source(stages, None)
    plans = {name: plan for name, plan in driver.plans.items() if name not in constants}
    # A task of Spark has one core.
    options = replace(driver.options, outputs=returned_parts(stages, plans), threads=1)
    return replace(driver, plans=plans, options=options)


def _rename_by_position(plan: PlanNode) -> Map:
    """Rename the columns of a plan to those of `schema_of`."""
    return Map(plan, columns(plan), tuple(f"c{position}" for position in range(len(plan.fields))))


def rebase(plan: PlanNode, source: PlanNode) -> PlanNode:
    """Replace the Scan named `SOURCE` in a linear plan; a plan of constants has none."""
    if isinstance(plan, Scan) and plan.relation == SOURCE:
        return source
    if plan.is_linear and len(plan.inputs) == 1:
        return plan.with_inputs([rebase(plan.inputs[0], source)])
    return plan


def group_by_destination(outputs: Mapping[str, pa.Table]) -> dict[str, list[pa.Table]]:
    """Group the outputs of a circuit by destination: ``relation <name>`` or ``view <name>``."""
    tables_by_destination: dict[str, list[pa.Table]] = {}
    for name, table in outputs.items():
        tables_by_destination.setdefault(destination_of(name), []).append(table)
    return tables_by_destination


def destination_of(output: str) -> str:
    """Return the destination of an output, whose name is that of a part (`parts_of_source`).

    >>> destination_of("relation r0 1")
    'relation r0'
    """
    return output.rpartition(" ")[0]
