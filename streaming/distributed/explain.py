"""Describe a distributed plan as text, stage by stage, as it runs.

For each stage, the text shows

- the operator, and the relations with their sources;
- the grid, with the share of each variable;
- the number of cells that receive and keep a row, and the bytes that are sent for it;
- the expected load of a cell relative to the ideal (all rows divided by all cells), and the loads
  of the cells in the state;
- the rows that cells keep by the lateness of inputs;
- the rows and bytes that the last job has exchanged before the stage;
- the heavy values, with the parts that their rows are split into.

Then follow the views, and the exchanges and Spark jobs of a micro-batch.

The bytes of a row follow from its columns: 8 for a column that is sent as a code, and an assumed
length of texts (`row_bytes`). They do not include the headers of packets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from circuits.plan.fixpoint import Fixpoint
from circuits.plan.frontier import GivenStateBound
from circuits.plan.nodes import Fields
from streaming.distributed.execution.transport import transport_type
from streaming.distributed.planning.grid import Grid, HeavyGroup
from streaming.distributed.planning.job_layout import JobLayout
from streaming.distributed.planning.shares import JoinAtom
from streaming.distributed.planning.stages import Relation, Stage, Stages

__all__ = ["ExchangedRows", "explain_job", "explain_stages", "row_bytes"]

#: Heavy values of a group that are named.
MAX_HEAVY_NAMES: Final = 6
#: The bytes of a code, and of the weight of a row.
CODE_BYTES: Final = 8
#: The assumed bytes of a text, with its offset.
TEXT_BYTES: Final = 20


@dataclass(frozen=True)
class ExchangedRows:
    """The rows that the tasks of a job have sent to each other.

    Attributes:
        rows: The number of rows, with copies, by the number of a stage, or by the name of a view
            after a space.
        bytes: The bytes of these rows.
    """

    rows: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def describe(self, destination: str) -> str:
        """Return the rows and bytes of one destination as text.

        >>> ExchangedRows(Counter({"0": 1200}), Counter({"0": 57000})).describe("0")
        '1,200 rows and 57,000 bytes in the last job'
        """
        rows, size = self.rows[destination], self.bytes[destination]
        return f"{rows:,} rows and {size:,} bytes in the last job"


def explain_stages(
    stages: Stages,
    grids: Sequence[Grid],
    *,
    rows: Mapping[str, float] | None = None,
    loads: Mapping[int, Sequence[int]] = MappingProxyType({}),
    exchanged: ExchangedRows | None = None,
    layout: JobLayout | None = None,
) -> str:
    """Describe the stages of a circuit and their grids.

    Args:
        stages: The stages.
        grids: The grid of each stage.
        rows: The number of rows of each relation, if available; otherwise loads are fractions.
        loads: For each stage the number of rows of each cell, if there is a state.
        exchanged: The rows that the last job has exchanged, if there was one.
        layout: Where the stages run in a job; None if the driver reads all rows.

    >>> import pyarrow as pa
    >>> from circuits import compile_sql
    >>> from circuits.runtime.incrementalize import incrementalize
    >>> from streaming.distributed.planning.grid_planning import stage_grid
    >>> from streaming.distributed.planning.stages import cut_stages
    >>> edges = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    >>> text = "SELECT x.src, count(*) AS n FROM e x JOIN e y ON x.dst = y.src GROUP BY x.src"
    >>> circuit = compile_sql(text, {"e": edges})
    >>> stages = cut_stages(incrementalize(circuit.plans, {"e": circuit.inputs["e"].fields}))
    >>> print(explain_stages(stages, [stage_grid(stage, 4) for stage in stages.stages]))
    2 stages
    stage 0: join r0(v0 = src, v1 = dst), r1(v1 = src)
      r0      from e
      r1      from e
      grid    4 cells: v1 4
      sent    r0: 1 copy of a changed row, 24 bytes
      sent    r1: 1 copy of a changed row, 16 bytes
      load    a cell keeps 25 % of the rows of all atoms, 1.00 times the ideal
    stage 1: aggregate r2 by src
      r2      from stage 0
      grid    4 cells: src 4
      sent    r2: 1 copy of a changed row, 16 bytes
      load    a cell keeps 25 % of the rows of all atoms, 1.00 times the ideal
    view view: from stage 1
    """
    count = len(stages.stages)
    lines = [f"{count} stage{'s' * (count != 1)}"]
    for stage, grid in zip(stages.stages, grids, strict=True):
        in_job = layout is not None and layout.levels[stage.number] is not None
        lines += _describe_stage(stage, grid, rows or {}, in_job=in_job)
        lines += _describe_actual_loads(loads.get(stage.number, ()))
        if exchanged is not None and in_job:
            lines.append(_format_line("moved", exchanged.describe(str(stage.number))))
        lines += [_format_line("heavy", _describe_heavy(heavy, grid)) for heavy in grid.heavy]
    for name, parts in stages.outputs.items():
        lines.append(f"view {name}: {_join_sources([part.source for part in parts])}")
        if exchanged is not None and f" {name}" in exchanged.rows:
            lines.append(_format_line("moved", exchanged.describe(f" {name}")))
    return "\n".join(lines)


def row_bytes(fields: Fields) -> int:
    """Return about how many bytes a row takes in the exchange, with its weight.

    >>> from circuits.plan.nodes import Field
    >>> row_bytes((Field("n", pa.int32()), Field("name", pa.string())))
    36
    """
    is_code = (transport_type(field.type) == pa.int64() for field in fields)
    return CODE_BYTES + sum(CODE_BYTES if code else TEXT_BYTES for code in is_code)


def explain_job(
    layout: JobLayout,
    driver_reason: str | None,
    cell_steps: int = 0,
    open_cell_steps: int = 0,
    exchanged: ExchangedRows | None = None,
) -> str:
    """Describe where the rows of a micro-batch are read, and the exchanges of its job.

    Args:
        layout: Where the stages and views run in a job.
        driver_reason: Why the rows pass through the driver; None if executors read them.
        cell_steps: The number of steps of cells in the jobs of this process.
        open_cell_steps: How many of them found their circuit in the memory of the worker.
        exchanged: The rows that the last job has exchanged, if there was one.

    >>> layout = JobLayout((1, 1, None), frozenset(), frozenset({"n"}), {"pairs": 2})
    >>> print(explain_job(layout, None))
    job: 2 exchanges: before stages 0, 1; before view pairs; in the driver: stage 2
    rows: read by executors, in one Spark job; those of small micro-batches by the driver
    >>> print(explain_job(layout, "input 'p' has options"))
    rows: read by the driver, because input 'p' has options
    jobs: a Spark job for each of 2 stages that has rows; in the driver: stage 2
    >>> print(explain_job(JobLayout((1,), frozenset(), frozenset(), {}), None, 40, 30,
    ...     ExchangedRows(Counter({"0": 1200}), Counter({"0": 57000}))))
    job: 1 exchange: before stage 0
    moved: 1,200 rows and 57,000 bytes in all exchanges of the last job, 48 bytes per row
    rows: read by executors, in one Spark job; those of small micro-batches by the driver
    workers: 30 of 40 steps (75 %) found the circuit of their cell in memory
    """
    if driver_reason is not None:
        stages = sum(level is not None for level in layout.levels)
        text = f"jobs: a Spark job for each of {stages} stage{'s' * (stages != 1)} that has rows"
        if None in layout.levels:
            text += f"; in the driver: {_join_members(layout, None)}"
        return f"rows: read by the driver, because {driver_reason}\n{text}"
    count = layout.last_level
    exchanges = [f"before {_join_members(layout, level)}" for level in range(1, count + 1)]
    if None in layout.levels:
        exchanges.append(f"in the driver: {_join_members(layout, None)}")
    head = f"job: {count} exchange{'s' * (count != 1)}"
    lines = [
        f"{head}: {'; '.join(exchanges)}" if exchanges else head,
        "rows: read by executors, in one Spark job; those of small micro-batches by the driver",
    ]
    if exchanged is not None and exchanged.rows.total():
        rows, size = exchanged.rows.total(), exchanged.bytes.total()
        lines.insert(
            1,
            f"moved: {rows:,} rows and {size:,} bytes in all exchanges of the last job, "
            f"{size / rows:.0f} bytes per row",
        )
    if cell_steps:
        share = f"{open_cell_steps / cell_steps:.0%}".replace("%", " %")
        lines.append(
            f"workers: {open_cell_steps} of {cell_steps} steps ({share}) found the circuit of "
            "their cell in memory"
        )
    return "\n".join(lines)


def _join_members(layout: JobLayout, level: int | None) -> str:
    """Return the stages and views of a level as text."""
    stages = [str(number) for number, other in enumerate(layout.levels) if other == level]
    views = [view for view, other in layout.exchanged_views.items() if other == level]
    named = (("stage", stages), ("view", views))
    texts = [
        f"{kind}{'s' * (len(names) != 1)} {', '.join(names)}" for kind, names in named if names
    ]
    return " and ".join(texts)


def _describe_stage(
    stage: Stage, grid: Grid, rows: Mapping[str, float], *, in_job: bool
) -> list[str]:
    operator = type(stage.plan).__name__.lower().removeprefix("final")
    if stage.is_partial:
        operator = f"partial {operator}"
    fields = {relation.name: relation.fields for relation in stage.relations}
    if stage.atoms:
        atoms = ", ".join(_describe_atom(atom, fields[atom.relation]) for atom in grid.shares.atoms)
        lines = [f"stage {stage.number}: {operator} {atoms}"]
    elif stage.is_recursive:
        assert isinstance(stage.plan, Fixpoint)
        names = ", ".join(stage.plan.names)
        how = f"in one cell, because {stage.one_cell_reason}"
        if stage.carried:
            how = f"by {_describe_carried(stage)}, which no iteration changes"
        lines = [f"stage {stage.number}: recursion of {names} {how}"]
    else:
        if stage.view:
            operator = f"rows of view {stage.view!r},"
        grouped = " and ".join(
            f"{atom.relation} by {_describe_keys(atom, fields[atom.relation])}"
            for atom in grid.shares.atoms
        )
        lines = [f"stage {stage.number}: {operator} {grouped}"]
    for relation in stage.relations:
        lines.append(_format_line(relation.name, _describe_sources(relation)))
    shares = [
        f"{_variable_name(stage, grid, name, fields)} {share}"
        for name, share in grid.shares.by_variable.items()
        if share > 1
    ]
    cells = f"{grid.cells} cell{'s' * (grid.cells != 1)}"
    if stage.is_one_group_of_sums:
        cells += f", in the driver{' if it reads the rows' * in_job}"
    lines.append(_format_line("grid", f"{cells}: {' × '.join(shares)}" if shares else cells))
    for relation in stage.relations:
        copies = grid.shares.copies(relation.name)
        count = f"{copies:.3g} cop{'y' if copies == 1 else 'ies'} of a changed row"
        size = f"{copies * row_bytes(relation.fields):,.0f} bytes"
        if copies == grid.cells > 1:
            size += ", a broadcast to all cells"
        lines.append(
            _format_line("sent", f"{relation.name}: {count}, {size}{_heavy_copies(grid, relation)}")
        )
    lines.append(_format_line("load", _describe_expected_load(grid, rows)))
    lines += [_format_line("drops", _describe_bound(bound)) for bound in stage.bounds]
    return lines


def _describe_bound(bound: GivenStateBound) -> str:
    """Return which rows cells drop; the name of a bound is the condition of those that they keep.

    >>> _describe_bound(GivenStateBound("ts >= watermark of e", 0))
    'all rows but those with ts >= watermark of e'
    """
    relation, _, condition = bound.name.rpartition(": ")
    return f"all rows {f'of {relation} ' * bool(relation)}but those with {condition}"


def _format_line(label: str, text: str) -> str:
    return f"  {label:<7} {text}"


def _describe_atom(atom: JoinAtom, fields: Fields) -> str:
    bound = ", ".join(f"{name} = {fields[k].name}" for name, k in atom.columns.items())
    return f"{atom.relation}({bound})"


def _describe_keys(atom: JoinAtom, fields: Fields) -> str:
    """Return the names of the columns that assign the rows of a relation to cells."""
    return ", ".join(fields[key].name for key in atom.columns.values()) or "nothing"


def _describe_carried(stage: Stage) -> str:
    """Return the names of the carried columns, and of those with the same values in relations."""
    names = [
        [operator.fields[column].name for column in columns]
        for operator, columns in zip(stage.operators, stage.carried, strict=True)
    ]
    return ", ".join(" = ".join(dict.fromkeys(same)) for same in zip(*names, strict=True))


def _variable_name(stage: Stage, grid: Grid, name: str, fields: Mapping[str, Fields]) -> str:
    together = grid.shares.together[name]
    if stage.atoms:
        return "+".join(together)
    if stage.is_recursive:
        return _describe_carried(stage)
    atom = grid.shares.atoms[0]
    return "+".join(fields[atom.relation][atom.columns[other]].name for other in together)


def _describe_sources(relation: Relation) -> str:
    return _join_sources([part.source for part in relation.parts])


def _join_sources(sources: Sequence[str | int | None]) -> str:
    names = {
        source: f"stage {source}" if isinstance(source, int) else source or "constants"
        for source in sources
    }
    return f"from {', '.join(names.values())}"


def _heavy_copies(grid: Grid, relation: Relation) -> str:
    """Describe the additional copies that heavy values cause; empty if their rows are not known."""
    atoms = [n for n, atom in enumerate(grid.shares.atoms) if atom.relation == relation.name]
    factor = max((grid.replication_factor(n) for n in atoms), default=1.0)
    return f", and up to {factor:.2f} times as many for heavy values" if factor > 1.005 else ""


def _describe_expected_load(grid: Grid, rows: Mapping[str, float]) -> str:
    atoms = grid.shares.atoms
    has_sizes = all(atom.relation in rows for atom in atoms)
    sizes = [rows[atom.relation] if has_sizes else atom.rows for atom in atoms]
    stored = sum(
        size * grid.shares.replication(atom) * grid.replication_factor(number)
        for number, (atom, size) in enumerate(zip(atoms, sizes, strict=True))
    )
    total = sum(sizes)
    if not total:
        return "nothing is kept yet"
    ratio = f"{stored / total:.2f} times the ideal"
    if has_sizes:
        return f"a cell keeps {stored / grid.cells:,.0f} of {total:,.0f} rows of all atoms, {ratio}"
    return (
        f"a cell keeps {100 * stored / total / grid.cells:.3g} % of the rows of all atoms, {ratio}"
    )


def _describe_actual_loads(loads: Sequence[int]) -> list[str]:
    """Describe the actual number of rows in the cells, as opposed to the expected load."""
    total = sum(loads)
    if not total:
        return []
    times = f"{max(loads) * len(loads) / total:.2f} times the mean"
    return [
        _format_line("kept", f"{total:,} rows in all cells, {max(loads):,} in the fullest, {times}")
    ]


def _describe_heavy(heavy: HeavyGroup, grid: Grid) -> str:
    names = ", ".join(heavy.texts[:MAX_HEAVY_NAMES]) or f"{len(heavy.hashes)} values"
    remaining = len(heavy.texts) - MAX_HEAVY_NAMES
    names += f" and {remaining:,} more" if remaining > 0 else ""
    atom_texts = []
    for number, (atom, count) in enumerate(zip(grid.shares.atoms, heavy.splits, strict=True)):
        if heavy.variable in atom.columns:
            fractions = heavy.row_fractions
            fraction = f"{100 * fractions[number]:.3g} % of its rows " if fractions else ""
            placement = f"split into {count}" if count > 1 else "sent to all"
            atom_texts.append(f"atom {number} {atom.relation}: {fraction}{placement}")
    variable = "+".join(grid.shares.together[heavy.variable])
    return f"{variable} = {names}; {'; '.join(atom_texts)}"
