"""Drawings of a graph: a tree per view, and a Mermaid flowchart of all operators.

Both show what runs: one line, or box, per operator, with the rows that it has put out and the time
that it has taken over all steps. An operator that several others read is drawn once.
"""

from __future__ import annotations

from collections.abc import Iterator

from circuits.plan.expressions import Call, Column, Expression
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    Fields,
    Filter,
    FinalAggregate,
    Fixpoint,
    Join,
    Map,
    Order,
    PartialAggregate,
    RecursiveDistinct,
    RecursiveReference,
    Scan,
    TopK,
    Values,
)
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph, Node
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator

__all__ = ["mermaid", "tree"]


def tree(state: CircuitVersion) -> str:
    """A tree per view, then the plan of each join."""
    graph = state.graph
    lines = []
    seen: set[int] = set()
    for name, number in graph.views.items():
        lines.append(name)
        lines.extend(_branch(state, number, "", True, seen))
    relations = state.relations()
    for node in graph.nodes:
        if isinstance(node.operator, JoinOperator):
            lines += ["", f"{node.name}: {node.operator.delta_query.explain(relations)}"]
    return "\n".join(lines)


def mermaid(state: CircuitVersion) -> str:
    """A flowchart; paste it where Mermaid is drawn."""
    graph = state.graph
    lines = ["flowchart TD"]
    for number, node in enumerate(graph.nodes):
        if isinstance(node.operator, Integrate):
            continue
        text = f"{label(graph, node)}\n{_done(state, number)}".replace('"', "#quot;").replace(
            "\n", "<br/>"
        )
        lines.append(f'    n{number}["{text}"]')
        lines += [f"    n{below} --> n{number}" for below in dict.fromkeys(node.inputs)]
    for index, (name, number) in enumerate(graph.views.items()):
        quoted = name.replace('"', "#quot;")
        lines += [f'    v{index}(["{quoted}"])', f"    n{number} --> v{index}"]
    return "\n".join(lines)


def label(graph: Graph, node: Node) -> str:
    """What an operator does, in a line."""
    plan = node.plan
    match plan:
        case Scan(relation):
            checked = graph.checked_inputs.get(relation)
            options = "" if checked is None else f" with {checked.options}"
            return f"input {relation}({', '.join(f.name for f in plan.fields)}){options}"
        case Values(_, rows):
            return f"values: {len(rows)} rows"
        case Filter(below, predicate):
            return f"filter {text(predicate, below.fields)}"
        case Map(below, expressions):
            return f"map {', '.join(text(e, below.fields) for e in expressions) or '()'}"
        case Aggregate(below, keys, calls):
            found = ", ".join(_called(c, below.fields) for c in calls)
            by = ", ".join(below.fields[k].name for k in keys)
            return f"aggregate {found}" + (f" by {by}" if by else "")
        case PartialAggregate(below, kept, calls):
            found = ", ".join(_called(c, below.fields) for c in calls)
            return f"spread {found} by {', '.join(f.name for f in below.fields[:kept])}"
        case FinalAggregate(below, keys, spread):
            found = ", ".join(_called(c, spread.input.fields) for c in spread.aggregates)
            by = ", ".join(field.name for field in below.fields[:keys])
            return f"totals {found}" + (f" by {by}" if by else "")
        case TopK(below, keys, order, limit, offset):
            by = ", ".join(below.fields[k].name for k in keys)
            first = "all" if limit is None else str(limit)
            after = f" after {offset}" if offset else ""
            ordered = ", ".join(_ordered(o, below.fields) for o in order) or "any"
            return f"top {first}{after} in order {ordered}" + (f" per {by}" if by else "")
        case Fixpoint(names, _, _, index):
            return f"recursion of {', '.join(names)}: {names[index]}"
        case RecursiveReference(name, fields):
            return f"rows of {name} so far ({', '.join(f.name for f in fields)})"
        case RecursiveDistinct(below, cut):
            if cut.column is not None:
                return f"{cut.kind}({below.fields[cut.column].name}) by the other columns"
            return "each row once" if cut.kind == "set" else "all rows"
        case Join() if isinstance(node.operator, JoinOperator):
            return str(node.operator.query)
    return type(plan).__name__.lower()


def text(expression: Expression, fields: Fields) -> str:
    """An expression with the names of the columns."""
    match expression:
        case Column(index):
            return fields[index].name
        case Call(function, arguments, type):
            inner = ", ".join(text(a, fields) for a in arguments)
            return (
                f"{function}({inner} as {type})" if "cast" in function else f"{function}({inner})"
            )
    return str(expression)


def _branch(
    state: CircuitVersion, number: int, indent: str, last: bool, seen: set[int]
) -> Iterator[str]:
    graph = state.graph
    node = graph.nodes[number]
    again = number in seen and bool(node.inputs)
    name = "" if isinstance(node.plan, Scan) else f"{node.name} "
    line = f"{indent}{'└─ ' if last else '├─ '}{name}{label(graph, node)}"
    yield f"{line}  (drawn above)" if again else f"{line}  [{_done(state, number)}]"
    if again:
        return
    seen.add(number)
    deeper = indent + ("   " if last else "│  ")
    below = list(dict.fromkeys(node.inputs))
    for place, inner in enumerate(below):
        yield from _branch(state, inner, deeper, place == len(below) - 1, seen)


def _done(state: CircuitVersion, number: int) -> str:
    rows, seconds = (state.rows[number], state.seconds[number]) if state.rows else (0, 0.0)
    return f"rows {rows:,}, {seconds * 1e3:.2f} ms"


def _called(call: AggregateCall, fields: Fields) -> str:
    argument = "*" if call.argument is None else fields[call.argument].name
    return f"{call.function}({'distinct ' if call.distinct else ''}{argument})"


def _ordered(order: Order, fields: Fields) -> str:
    direction = " desc" if order.descending else ""
    return f"{fields[order.column].name}{direction}{' nulls first' if order.nulls_first else ''}"
