"""Recomputes a closure from all edges, as a user without incremental recursion would.

Four systems do it: a new circuit that gets all edges in one step, a one-shot query
(`Circuit.query`), DuckDB over a table of its own, and, if it is installed, clingo, whose grounding
computes the closure. The time to load the edges counts for the new circuit and clingo, which load
and compute at once; it does not count for the others.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pyarrow as pa

from benchmarks.cost import Clock
from benchmarks.recomputed import RecomputedQuery
from benchmarks.result import Row
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_datalog

RULES = "depends(x, z) :- e(x, z). depends(x, z) :- e(x, y), depends(y, z)."
SQL = (
    "WITH RECURSIVE depends(x, z) AS (SELECT src, dst FROM e UNION "
    "SELECT e.src, depends.z FROM e JOIN depends ON e.dst = depends.x) "
    "SELECT count(*) FROM depends"
)
SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")])


def compile_closure() -> Circuit:
    """Compile a circuit whose only view is the closure, materialized."""
    return compile_datalog(RULES, {"e": SCHEMA}, materialize=["depends"], threads=1)


def recompute_closure(
    transactions: int, edges: pa.Table, pairs: int, verdict: Verdict
) -> Iterator[Row]:
    """Compute the closure from scratch in each system; yield a row of the table for each.

    Args:
        transactions: The number of transactions so far.
        edges: The edges after them.
        pairs: The true number of pairs of the closure.
        verdict: Collects the answers.
    """
    database = RecomputedQuery({"e": edges}, {}, threads=1)
    systems: dict[str, Callable[[], int]] = {
        "this engine, a new view": lambda: _count_in_new_view(edges),
        "this engine, a query": prepare_query(edges),
        "DuckDB": lambda: database.answer(SQL),
    }
    if find_spec("clingo") is not None:
        systems["clingo"] = lambda: _count_with_clingo(edges)
    for system, answer_of in systems.items():
        gc.collect()
        clock = Clock()
        answer = answer_of()
        cost = clock.read()
        verdict.compare(
            f"{system} after {transactions}", f"the closure after {transactions}", answer
        )
        yield {
            "until": transactions,
            "edges": edges.num_rows,
            "pairs": pairs,
            "system": system,
            "CPU s": cost.cpu,
            "wall s": cost.wall,
        }


def _count_in_new_view(edges: pa.Table) -> int:
    return int(
        compile_datalog(RULES, {"e": SCHEMA}, threads=1).step({"e": edges})["depends"].num_rows
    )


def prepare_query(edges: pa.Table) -> Callable[[], int]:
    """Load the edges into a circuit; return a function that queries it for the closure."""
    circuit = compile_datalog("copy(x, z) :- e(x, z).", {"e": SCHEMA}, materialize=["e"], threads=1)
    circuit.step({"e": edges})
    return lambda: int(circuit.query(RULES).num_rows)


def _count_with_clingo(edges: pa.Table) -> int:
    """Count the pairs of the closure by clingo's grounder."""
    import clingo

    control = clingo.Control(["--warn=none"])
    rows = zip(*(column.to_pylist() for column in edges.columns), strict=True)
    facts = "".join(f"e({x},{z})." for x, z in rows)
    control.add("base", [], facts + "d(X,Z) :- e(X,Z). d(X,Z) :- e(X,Y), d(Y,Z).")
    control.ground([("base", [])])
    return sum(1 for _ in control.symbolic_atoms.by_signature("d", 2))
