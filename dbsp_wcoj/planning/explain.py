"""The text of ``DeltaQuery.explain``: the plan that runs, and the work that it has counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dbsp_wcoj.execution.bound_terms import BoundTerm
from dbsp_wcoj.formulas import PARTIAL
from dbsp_wcoj.planning.agm import agm_bound
from dbsp_wcoj.query import Query
from dbsp_wcoj.storage.trace import Trace

__all__ = ["arrangement_name", "describe_runs", "explain"]


def explain(
    query: Query,
    formula: str,
    terms: Sequence[BoundTerm],
    traces: Mapping[str, Trace],
    *,
    names: Sequence[str],
    arrangements: bool = True,
) -> str:
    """Describe a view: its terms with their variable orders, and its arrangements with their runs.

    ``bind a b | c`` is a variable order; the join lists the values of a and b, and sums over those
    of c. ``e[1,0]:2`` is the relation ``e`` sorted by column 1, then 0; the join binds 2 columns.

    Args:
        query: The query.
        formula: The name of the formula in the first line; with ``auto`` further lines, which say
            how steps choose a formula.
        terms: The terms that have been planned.
        traces: The relations, by name.
        names: The relation that each atom reads; for a reduced relation not that of the query.
        arrangements: False to leave out the arrangements.
    """
    sizes = [_rows(traces, name) for name in names]
    agm = agm_bound(query, sizes)
    formula_name, *choices = formula.splitlines()
    lines = [
        str(query),
        f"formula {formula_name}, {len(terms)} terms planned",
        *choices,
        f"AGM bound {agm.bound:,.0f} rows at sizes {', '.join(f'{n:,}' for n in sizes)}"
        f" (cover {', '.join(f'{x:g}' for x in agm.cover)})",
    ]
    for bound_term in terms:
        term, physical = bound_term.term, bound_term.physical
        plan = physical.plan
        emitted = " ".join(plan.order[: plan.emitted_levels])
        summed = " ".join(plan.order[plan.emitted_levels :])
        factors = []
        for factor, planned in zip(term.factors, plan.factors, strict=True):
            name = f"D{term.target - 1}" if factor == PARTIAL else names[factor.atom]
            version = "" if factor == PARTIAL else f"{factor.version} "
            factors.append(f"{version}{arrangement_name(name, planned.order)}:{planned.depth}")
        proposals, intersections = physical.counters.sum(axis=0).tolist()
        lines += [
            f"  {term}",
            f"    bind  {emitted} | {summed}".rstrip(),
            f"    read  {', '.join(factors)}",
        ]
        if plan.comparisons:
            lines.append(f"    where {', '.join(map(str, plan.comparisons))}")
        lines.append(
            f"    ran {physical.execution_count:,} times: {proposals:,} proposals, "
            f"{intersections:,} intersections"
        )
    if not arrangements:
        return "\n".join(lines)
    lines.append("arrangements")
    for name, trace in traces.items():
        for arrangement in trace.arrangements:
            runs = describe_runs([run.rows for run in arrangement.spine.runs])
            size = arrangement.spine.nbytes
            full_name = arrangement_name(name, arrangement.order)
            lines.append(f"  {full_name}  {runs}; {size:,} bytes")
    return "\n".join(lines)


def arrangement_name(name: str, order: Iterable[int]) -> str:
    """Return the name of the arrangement of a trace in a column order.

    >>> arrangement_name("e", (1, 0))
    'e[1,0]'
    """
    return f"{name}[{','.join(map(str, order))}]"


def describe_runs(rows: Sequence[int]) -> str:
    """Describe the runs of an arrangement by the number of rows of each.

    >>> describe_runs([1000, 10]), describe_runs([1]), describe_runs([])
    ('2 runs: 1,000 + 10 rows', '1 run: 1 row', 'no runs')
    """
    if not rows:
        return "no runs"
    runs = "1 run" if len(rows) == 1 else f"{len(rows)} runs"
    counts = " + ".join(f"{count:,}" for count in rows)
    return f"{runs}: {counts} {'row' if counts == '1' else 'rows'}"


def _rows(traces: Mapping[str, Trace], name: str) -> int:
    trace = traces.get(name)
    if trace is None or not trace.arrangements:
        return 0
    return trace.arrangements[0].spine.rows
