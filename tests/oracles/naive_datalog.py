"""The oracle of Datalog programs: models by enumeration, straight from the parsed rules.

A rule holds for an assignment of its variables if its body is true. An atom is true if the row is
in the relation, an ``or`` if some alternative is true, a ``not`` if its items are not. Each
variable is enumerated over the values of the columns in which it occurs; a variable local to an
alternative or a negation is enumerated inside it. There are no joins, orders or plans. That is
slow, so keep relations tiny. Recursive heads begin empty, and all their rules are applied until
nothing changes. NULL is not supported: tests with NULL state their expected rows.
"""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from circuits.datalog.parser import parse
from circuits.datalog.program import (
    And,
    Atom,
    Comparison,
    Equation,
    FunctionCall,
    Items,
    Not,
    Or,
    Rule,
    Term,
    TypedConstant,
    Variable,
    Wildcard,
)

Row = tuple[Any, ...]
Rows = Mapping[str, set[Row]]
Environment = dict[str, Any]

COMPUTED = range(-6, 26)  # the candidate values of variables that occur in no atom
MAX_ITERATIONS = 200  # of a recursion
COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
APPLY = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "negate": operator.neg,
    "mod": lambda a, b: a % b if a >= 0 else -(-a % b),
    "modulo": lambda a, b: a % b if a >= 0 else -(-a % b),
    "quot": lambda a, b: int(a / b),
    "abs": abs,
    "length": len,
    "upper": str.upper,
    "concat": operator.add,
    "starts_with": str.startswith,
    "contains": operator.contains,
    "least": min,
    "greatest": max,
    "re-find": lambda pattern, text: pattern in text,
    "number?": lambda value: isinstance(value, int),
    "string?": lambda value: isinstance(value, str),
}
AGGREGATE = {
    "count": len,
    "count_distinct": lambda values: len(set(values)),
    "count-distinct": lambda values: len(set(values)),
    "sum": lambda values: sum(values) if values else None,
    "avg": lambda values: sum(values) / len(values) if values else None,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
}


def evaluate_program(text: str, relations: Mapping[str, Iterable[Row]]) -> dict[str, set[Row]]:
    """Return the rows of each head."""
    known: dict[str, set[Row]] = {name: set(rows) for name, rows in relations.items()}
    waiting: dict[str, list[Rule]] = defaultdict(list)
    for rule in parse(text).rules:
        waiting[rule.head].append(rule)
    answer: dict[str, set[Row]] = {}
    while waiting:
        component = next_component(waiting)
        group = {head: waiting.pop(head) for head in component}
        answer |= least_fixpoint(group, known)
        known |= answer
    return answer


def next_component(waiting: Mapping[str, list[Rule]]) -> set[str]:
    """Return the smallest set of heads whose rules need only each other and computed relations."""
    needs = {
        head: {a.relation for rule in rules for a in atoms(rule.body)} & waiting.keys()
        for head, rules in waiting.items()
    }
    for _ in waiting:
        needs = {head: n.union(*(needs[other] for other in n)) for head, n in needs.items()}
    head = min(needs, key=lambda name: len(needs[name]))
    return needs[head] | {head}


def least_fixpoint(group: Mapping[str, list[Rule]], known: Rows) -> dict[str, set[Row]]:
    """Apply the rules of all heads to their own results until nothing changes."""
    recursive = any(
        a.relation in group for rules in group.values() for r in rules for a in atoms(r.body)
    )
    before: dict[str, set[Row]] = {head: set() for head in group}
    for _ in range(MAX_ITERATIONS):
        relations = {**known, **before}
        after = {
            head: union_of_rules(rules, [rows_of(rule, relations) for rule in rules], recursive)
            for head, rules in group.items()
        }
        if after == before or not recursive:
            return after
        before = after
    raise AssertionError("the recursion has no fixpoint")


def union_of_rules(rules: list[Rule], rows: list[set[Row]], recursive: bool) -> set[Row]:
    """Return the rows of all rules of a head.

    If a rule of a recursion has a minimum or maximum, only the best row of each key is kept.
    """
    all_rows = set().union(*rows)
    extremes = [
        (column, term.term.function)
        for rule in rules
        for column, term in enumerate(rule.terms)
        if recursive and has_aggregate(term.term) and term.term.function in ("min", "max")
    ]
    if not extremes:
        return all_rows
    column, function = extremes[0]
    best: dict[Row, Any] = {}
    for row in all_rows:
        if row[column] is None:
            continue  # a rule without a binding has no candidate
        key = row[:column] + row[column + 1 :]
        best[key] = AGGREGATE[function]([row[column], best.get(key, row[column])])
    return {(*key[:column], value, *key[column:]) for key, value in best.items()}


def rows_of(rule: Rule, known: Rows) -> set[Row]:
    bindings = list(solutions(rule.body, {}, known))
    terms = [term.term for term in rule.terms]
    if not any(has_aggregate(term) for term in terms):
        return {tuple(value(term, b) for term in terms) for b in bindings}
    keys = [term for term in terms if not has_aggregate(term)]
    groups: dict[Row, list[Environment]] = defaultdict(list)
    if all(isinstance(key, TypedConstant) for key in keys):
        groups[tuple(value(key, {}) for key in keys)] = []
    for binding in bindings:
        groups[tuple(value(key, binding) for key in keys)].append(binding)
    return {
        tuple(aggregate_value(term, dict(zip(keys, key, strict=True)), group) for term in terms)
        for key, group in groups.items()
    }


def has_aggregate(term: Term) -> bool:
    return isinstance(term, FunctionCall) and (
        term.function in AGGREGATE or any(map(has_aggregate, term.arguments))
    )


def aggregate_value(term: Term, keys: Mapping[Term, Any], group: list[Environment]) -> Any:
    if term in keys:
        return keys[term]
    if isinstance(term, TypedConstant):
        return term.value
    assert isinstance(term, FunctionCall)
    if term.function not in AGGREGATE:
        return APPLY[term.function](*(aggregate_value(a, keys, group) for a in term.arguments))
    if term.arguments in ((), (FunctionCall("*", ()),)):
        return len(group)
    return AGGREGATE[term.function]([value(term.arguments[0], binding) for binding in group])


def is_true(item: Any, environment: Environment, known: Rows) -> bool:
    match item:
        case Atom() if item.relation in known:
            return any(
                all(
                    isinstance(term, Wildcard) or value(term, environment) == cell
                    for term, cell in zip(item.terms, row, strict=True)
                )
                for row in known[item.relation]
            )
        case Atom():
            return bool(value(FunctionCall(item.relation, item.terms), environment))
        case Comparison() | Equation():
            left, right = value(item.left, environment), value(item.right, environment)
            return bool(COMPARE[item.op](left, right))
        case And():
            return all(is_true(part, environment, known) for part in item.items)
        case Or():
            return any(has_solution(branch, environment, known) for branch in item.alternatives)
        case Not():
            return not has_solution(item.items, environment, known)
    raise AssertionError(item)


def has_solution(items: Items, environment: Environment, known: Rows) -> bool:
    """Return whether the items are true for some values of their local variables."""
    return any(True for _ in solutions(items, environment, known))


def solutions(items: Items, environment: Environment, known: Rows) -> Iterator[Environment]:
    """Yield the values of all variables for which the items are true."""
    local = sorted(bound_variables(items) - environment.keys())
    values = [domain(name, items, known) for name in local]
    for choice in itertools.product(*values):
        extended = {**environment, **dict(zip(local, choice, strict=True))}
        if all(is_true(item, extended, known) for item in items):
            yield extended


def bound_variables(items: Items) -> set[str]:
    """Return the variables of a conjunction.

    Those of an ``or`` count only if all its alternatives have them; those of a ``not`` do not.
    """
    names: set[str] = set()
    for item in items:
        match item:
            case Or():
                names |= set.intersection(*map(bound_variables, item.alternatives))
            case And():
                names |= bound_variables(item.items)
            case Atom():
                names |= {name for term in item.terms for name in names_of(term)}
            case Comparison() | Equation():
                names |= set(names_of(item.left)) | set(names_of(item.right))
    return names


def domain(name: str, items: Items, known: Rows) -> set[Any]:
    """Return the candidate values of a variable: those of its columns, or `COMPUTED`, too."""
    flat = [part for item in items for part in (item.items if isinstance(item, And) else [item])]
    columns = [
        {row[position] for row in known[atom.relation]}
        for atom in [item for item in flat if isinstance(item, Atom)] or atoms(items)
        if atom.relation in known
        for position, term in enumerate(atom.terms)
        if isinstance(term, Variable) and term.name == name
    ]
    if any(isinstance(item, Atom) and name in names_of_atom(item) for item in flat):
        return set.intersection(*columns)
    return set().union(COMPUTED, *columns)


def names_of_atom(atom: Atom) -> set[str]:
    return {term.name for term in atom.terms if isinstance(term, Variable)}


def atoms(items: Items) -> list[Atom]:
    """Return all atoms of the items, those of alternatives and negations included."""
    all_atoms: list[Atom] = []
    for item in items:
        match item:
            case Atom():
                all_atoms.append(item)
            case Not() | And():
                all_atoms += atoms(item.items)
            case Or():
                all_atoms += [atom for branch in item.alternatives for atom in atoms(branch)]
    return all_atoms


def names_of(term: Term) -> list[str]:
    if isinstance(term, FunctionCall):
        return [name for argument in term.arguments for name in names_of(argument)]
    return [term.name] if isinstance(term, Variable) else []


def value(term: Term, environment: Environment) -> Any:
    match term:
        case Variable():
            return environment[term.name]
        case TypedConstant():
            return term.value
        case FunctionCall():
            return APPLY[term.function](*(value(a, environment) for a in term.arguments))
        case _:
            return term.text  # a pattern
