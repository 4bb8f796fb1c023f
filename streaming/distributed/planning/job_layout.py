"""JobLayout: where the stages and views of a circuit run in the one Spark job of a micro-batch.

::

    level of a stage       the number of exchanges before it: 1 for one that reads only inputs,
                           else one more than the highest level of the stages that it reads
    stage in the driver    it counts or adds up all rows of earlier stages: each task sends it a
                           few numbers
    local view             the cell that computes a row is the only one that can compute an equal
                           row, so its task writes the delta
    exchanged view         its rows are exchanged once more, and the tasks of the level after its
                           highest stage add them up; 1 for a view that reads only inputs

The driver runs a stage only if no other stage reads it, and views read nothing else. A view is
local if it reads one stage, and keeps the columns that determine the cell of a row. Each exchange
costs a Spark stage, also if few rows are exchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from circuits.plan.expressions import Column
from circuits.plan.nodes import Aggregate, Distinct, Filter, Map, Negate, PlanNode, Scan
from circuits.plan.physical_nodes import FinalAggregate, Join
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.stages import Stage, StagePart, Stages

__all__ = ["JobLayout", "plan_job"]


@dataclass(frozen=True)
class JobLayout:
    """The order of the stages and views in a job.

    Attributes:
        levels: The level of each stage; None for those that run in the driver.
        local_views: The views that the tasks of cells write.
        driver_views: The views of stages that run in the driver.
        exchanged_views: The level of each other view.
    """

    levels: tuple[int | None, ...]
    local_views: frozenset[str]
    driver_views: frozenset[str]
    exchanged_views: Mapping[str, int]

    @property
    def last_level(self) -> int:
        """The highest level of a stage or view."""
        return max([level or 0 for level in self.levels] + [*self.exchanged_views.values(), 0])


def plan_job(
    stages: Stages, grids: tuple[Grid, ...], outputs: Collection[str] | None = None
) -> JobLayout:
    """Return the layout of the jobs of a circuit.

    Args:
        stages: The stages.
        grids: The grid of each stage.
        outputs: The views that are published; by default all.

    >>> import pyarrow as pa
    >>> from circuits import compile_sql
    >>> from circuits.runtime.incrementalize import incrementalize
    >>> from streaming.distributed.planning.grid_planning import stage_grid
    >>> from streaming.distributed.planning.stages import cut_stages
    >>> e = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    >>> text = "SELECT x.src, count(*) AS n FROM e x JOIN e y ON x.dst = y.src GROUP BY x.src"
    >>> circuit = compile_sql(text, {"e": e})
    >>> stages = cut_stages(incrementalize(circuit.plans, {"e": circuit.inputs["e"].fields}))
    >>> layout = plan_job(stages, tuple(stage_grid(stage, 4) for stage in stages.stages))
    >>> layout.levels, layout.local_views
    ((1, 2), frozenset({'view'}))
    """
    driver_stages = _find_driver_stages(stages)
    levels: list[int | None] = []
    for stage in stages.stages:
        if stage.number in driver_stages:
            levels.append(None)
            continue
        sources = [part.source for relation in stage.relations for part in relation.parts]
        levels_before = [levels[s] or 0 for s in sources if isinstance(s, int)]
        levels.append(1 + max(levels_before, default=0))
    driver_views, local_views = set(), set()
    exchanged_views: dict[str, int] = {}
    for view, parts in stages.published.items():
        if outputs is not None and view not in outputs:
            continue
        if any(part.source in driver_stages for part in parts):
            driver_views.add(view)
        elif len(parts) == 1 and _is_local(parts[0], stages, grids):
            local_views.add(view)
        else:
            levels_before = [levels[p.source] or 0 for p in parts if isinstance(p.source, int)]
            exchanged_views[view] = 1 + max(levels_before, default=0)
    return JobLayout(
        tuple(levels), frozenset(local_views), frozenset(driver_views), exchanged_views
    )


def _find_driver_stages(stages: Stages) -> set[int]:
    """Return the stages that the driver runs."""
    read_by_stages = {
        part.source
        for stage in stages.stages
        for relation in stage.relations
        for part in relation.parts
    }
    found = {
        stage.number
        for stage in stages.stages
        if stage.is_one_group_of_sums
        and stage.number not in read_by_stages
        and (
            isinstance(stage.plan, FinalAggregate)
            or not any(relation.fields for relation in stage.relations)
        )
        and all(isinstance(p.source, int) for r in stage.relations for p in r.parts)
    }
    while True:  # a view that reads one of them reads only such stages
        mixed = {
            part.source
            for parts in stages.published.values()
            if not all(part.source in found for part in parts)
            for part in parts
        }
        if not found & mixed:
            return found
        found -= mixed


def _is_local(part: StagePart, stages: Stages, grids: tuple[Grid, ...]) -> bool:
    """Return whether equal rows of a part are always computed by the same cell."""
    if not isinstance(part.source, int):
        return False
    stage, grid = stages.stages[part.source], grids[part.source]
    if grid.cells == 1 or stage.view:
        return True
    needed = set(stage.carried[part.operator]) if stage.carried else _columns_of_cell(stage, grid)
    return needed is not None and needed <= _kept_columns(part.plan)


def _columns_of_cell(stage: Stage, grid: Grid) -> set[int] | None:
    """Return the columns of an operator that determine the cell of its rows; None if unknown."""
    plan = stage.plan
    if isinstance(plan, Aggregate):
        return set(range(len(plan.keys)))
    if isinstance(plan, FinalAggregate):
        return set(range(plan.key_count))
    if isinstance(plan, Distinct):
        return set(range(len(plan.fields)))
    if not isinstance(plan, Join) or grid.heavy:
        return None
    columns = {f"v{variable}": column for column, variable in enumerate(plan.head)}
    needed = {
        variable
        for name, share in grid.shares.by_variable.items()
        if share > 1
        for variable in grid.shares.together[name]
    }
    return {columns[name] for name in needed} if needed <= columns.keys() else None


def _kept_columns(plan: PlanNode) -> set[int]:
    """Return the columns of an operator that a linear plan over it has unchanged."""
    return {column for column in _trace_columns(plan) if column is not None}


def _trace_columns(plan: PlanNode) -> list[int | None]:
    """Return, for each column of a plan, the column of the operator that it repeats."""
    match plan:
        case Scan():
            return list(range(len(plan.fields)))
        case Filter() | Negate():
            return _trace_columns(plan.input)
        case Map():
            columns = _trace_columns(plan.input)
            return [
                columns[expression.index] if isinstance(expression, Column) else None
                for expression in plan.expressions
            ]
        case _:
            return [None] * len(plan.fields)
