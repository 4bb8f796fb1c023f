"""Cell: one part of a stage's grid, an embedded circuit.

What a cell reads is named and typed like the stage's relations (a join's by atom), columns by
position: ``c0, c1, …``. What it gives out are the pieces of its operator that other stages and the
views want, each a view of the cell's circuit, so that all of them are made of one state. The delta
of a relation, or of a view, is the sum of what all cells give for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from circuits.circuit_spec import CircuitSpec
from circuits.options import CircuitOptions
from circuits.plan.nodes import (
    Fields,
    Map,
    Plan,
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
    "added_up",
    "constants",
    "definition_of",
    "feed_of",
    "feeds_of",
    "given_by",
    "schema_of",
]

#: The view of a cell that is the stage's operator.
OPERATOR = "#operator"


def schema_of(fields: Fields) -> pa.Schema:
    """The columns of a relation on its way between stages."""
    return pa.schema([pa.field(f"c{place}", f.type, f.nullable) for place, f in enumerate(fields)])


def given_by(stages: Stages, source: str | int | None) -> dict[str, StagePart]:
    """The pieces that are made of a source, by what they add to, and a number.

    >>> from streaming.distributed.planning.stages import Stages
    >>> given_by(Stages((), {"v": (StagePart("e", Scan(SOURCE, ())),)}), "e")
    {'view v 0': Piece(source='e', plan=Scan(relation='#source', fields=()))}
    """
    wanted = {
        f"relation {relation.name}": relation.pieces
        for stage in stages.stages
        for relation in stage.relations
    }
    wanted |= {f"view {name}": pieces for name, pieces in stages.outputs.items()}
    return {
        f"{name} {number}": piece
        for name, pieces in wanted.items()
        for number, piece in enumerate(pieces)
        if piece.source == source
    }


def definition_of(
    stage: Stage,
    stages: Stages,
    *,
    formula: FormulaName = Formula.collapsed,
    limits: StepLimits = DEFAULT_LIMITS,
) -> CircuitSpec:
    """The circuit of a stage's cells.

    The operator is a view of its own, which the pieces read: so it is one, with all its columns,
    whichever of them a piece wants, and its state is that of the operator in the whole circuit.
    """
    given = given_by(stages, stage.number)
    plans = {OPERATOR: _numbered(stage.plan)}
    operator = Scan(OPERATOR, plans[OPERATOR].fields)
    plans |= {name: _numbered(over(piece.plan, operator)) for name, piece in given.items()}
    relations = {relation.name: relation for relation in stage.relations}
    if stage.atoms:
        reads = {
            atom_name(atom.relation, place): relations[atom.relation]
            for place, atom in enumerate(stage.atoms)
        }
    else:
        reads = relations
    schemas = {name: schema_of(relation.fields) for name, relation in reads.items()}
    options = CircuitOptions(outputs=tuple(given), formula=formula, limits=limits)
    return CircuitSpec(plans, schemas, options)


def feed_of(name: str, fields: Fields, stages: Stages) -> CircuitSpec:
    """The circuit, without state, that makes the pieces of an input of the whole circuit."""
    given = given_by(stages, name)
    scan = Scan(name, fields)
    plans = {view: _numbered(over(piece.plan, scan)) for view, piece in given.items()}
    schema = pa.schema([pa.field(f.name, f.type, f.nullable) for f in fields])
    return CircuitSpec(plans, {name: schema}, CircuitOptions(outputs=tuple(given)))


def feeds_of(definition: CircuitSpec, stages: Stages) -> CircuitSpec:
    """The driver's circuit: makes the pieces of all inputs, under their rules, and the constants.

    Its state is that of the rules, and the tables of codes.
    """
    plans: dict[str, Plan] = {}
    for name, schema in definition.schemas.items():
        scan = Scan(name, Schema.of(name, schema).fields)
        for view, piece in given_by(stages, name).items():
            plans[view] = _numbered(over(piece.plan, scan))
    for view, piece in given_by(stages, None).items():
        plans[view] = _numbered(piece.plan)
    return CircuitSpec(
        plans,
        definition.schemas,
        CircuitOptions(
            outputs=tuple(plans),
            input_options=definition.input_options,
            limits=definition.options.limits,
        ),
    )


def constants(stages: Stages) -> CircuitSpec:
    """The circuit whose first step gives the constant pieces."""
    given = given_by(stages, None)
    plans = {view: _numbered(piece.plan) for view, piece in given.items()}
    return CircuitSpec(plans, {}, CircuitOptions(outputs=tuple(given)))


def _numbered(plan: Plan) -> Map:
    """The plan with its columns named by their positions, as relations have them."""
    return Map(plan, columns(plan), tuple(f"c{place}" for place in range(len(plan.fields))))


def over(plan: Plan, source: Plan) -> Plan:
    """A linear plan over another source."""
    if isinstance(plan, Scan) and plan.relation == SOURCE:
        return source
    if plan.is_linear and len(plan.inputs) == 1:
        return plan.with_inputs([over(plan.inputs[0], source)])
    return plan


def added_up(given: Mapping[str, pa.Table]) -> dict[str, list[pa.Table]]:
    """What a circuit gave out, by what it adds to: ``relation <name>`` or ``view <name>``."""
    found: dict[str, list[pa.Table]] = {}
    for name, table in given.items():
        found.setdefault(name.rpartition(" ")[0], []).append(table)
    return found
