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

COMPUTED = range(-6, 26)  # where variables that stand in no atom are looked for
ROUNDS = 200  # of a recursion
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
    """The rows of each head."""
    known: dict[str, set[Row]] = {name: set(rows) for name, rows in relations.items()}
    waiting: dict[str, list[Rule]] = defaultdict(list)
    for rule in parse(text).rules:
        waiting[rule.head].append(rule)
    answer: dict[str, set[Row]] = {}
    while waiting:
        component = lowest(waiting)
        group = {head: waiting.pop(head) for head in component}
        answer |= least(group, known)
        known |= answer
    return answer


def lowest(waiting: Mapping[str, list[Rule]]) -> set[str]:
    """Return the smallest set of heads whose rules need only each other and computed relations."""
    needs = {
        head: {a.relation for rule in rules for a in atoms(rule.body)} & waiting.keys()
        for head, rules in waiting.items()
    }
    for _ in waiting:
        needs = {head: n.union(*(needs[other] for other in n)) for head, n in needs.items()}
    head = min(needs, key=lambda name: len(needs[name]))
    return needs[head] | {head}


def least(group: Mapping[str, list[Rule]], known: Rows) -> dict[str, set[Row]]:
    """Apply the rules of all heads to their own results until nothing changes."""
    recursive = any(
        a.relation in group for rules in group.values() for r in rules for a in atoms(r.body)
    )
    found: dict[str, set[Row]] = {head: set() for head in group}
    for _ in range(ROUNDS):
        now = {**known, **found}
        after = {
            head: merged(rules, [rows_of(rule, now) for rule in rules], recursive)
            for head, rules in group.items()
        }
        if after == found or not recursive:
            return after
        found = after
    raise AssertionError("no end")


def merged(rules: list[Rule], rows: list[set[Row]], recursive: bool) -> set[Row]:
    """All rows; if one rule of a recursion has a minimum or maximum, that of all of them."""
    every = set().union(*rows)
    extremes = [
        (place, term.term.function)
        for rule in rules
        for place, term in enumerate(rule.terms)
        if recursive and aggregates(term.term) and term.term.function in ("min", "max")
    ]
    if not extremes:
        return every
    place, function = extremes[0]
    best: dict[Row, Any] = {}
    for row in every:
        if row[place] is None:
            continue  # a rule without a binding has no candidate
        key = row[:place] + row[place + 1 :]
        best[key] = AGGREGATE[function]([row[place], best.get(key, row[place])])
    return {(*key[:place], value, *key[place:]) for key, value in best.items()}


def rows_of(rule: Rule, known: Rows) -> set[Row]:
    bindings = list(solutions(rule.body, {}, known))
    terms = [term.term for term in rule.terms]
    if not any(aggregates(term) for term in terms):
        return {tuple(value(term, b) for term in terms) for b in bindings}
    keys = [term for term in terms if not aggregates(term)]
    groups: dict[Row, list[Environment]] = defaultdict(list)
    if all(isinstance(key, TypedConstant) for key in keys):
        groups[tuple(value(key, {}) for key in keys)] = []
    for binding in bindings:
        groups[tuple(value(key, binding) for key in keys)].append(binding)
    return {
        tuple(grouped(term, dict(zip(keys, key, strict=True)), group) for term in terms)
        for key, group in groups.items()
    }


def aggregates(term: Term) -> bool:
    return isinstance(term, FunctionCall) and (
        term.function in AGGREGATE or any(map(aggregates, term.arguments))
    )


def grouped(term: Term, keys: Mapping[Term, Any], group: list[Environment]) -> Any:
    if term in keys:
        return keys[term]
    if isinstance(term, TypedConstant):
        return term.value
    assert isinstance(term, FunctionCall)
    if term.function not in AGGREGATE:
        return APPLY[term.function](*(grouped(a, keys, group) for a in term.arguments))
    if term.arguments in ((), (FunctionCall("*", ()),)):
        return len(group)
    return AGGREGATE[term.function]([value(term.arguments[0], binding) for binding in group])


def true(item: Any, environment: Environment, known: Rows) -> bool:
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
            return all(true(part, environment, known) for part in item.items)
        case Or():
            return any(some(branch, environment, known) for branch in item.alternatives)
        case Not():
            return not some(item.items, environment, known)
    raise AssertionError(item)


def some(items: Items, environment: Environment, known: Rows) -> bool:
    """Return whether the items are true for some values of their local variables."""
    return any(True for _ in solutions(items, environment, known))


def solutions(items: Items, environment: Environment, known: Rows) -> Iterator[Environment]:
    """The values of all variables for which the items are true."""
    local = sorted(shared(items) - environment.keys())
    values = [domain(name, items, known) for name in local]
    for choice in itertools.product(*values):
        extended = {**environment, **dict(zip(local, choice, strict=True))}
        if all(true(item, extended, known) for item in items):
            yield extended


def shared(items: Items) -> set[str]:
    """Variables of a conjunction; of an or only what all its alternatives have; none of a not."""
    found: set[str] = set()
    for item in items:
        match item:
            case Or():
                found |= set.intersection(*(shared(branch) for branch in item.alternatives))
            case And():
                found |= shared(item.items)
            case Atom():
                found |= {name for term in item.terms for name in names_of(term)}
            case Comparison() | Equation():
                found |= set(names_of(item.left)) | set(names_of(item.right))
    return found


def domain(name: str, items: Items, known: Rows) -> set[Any]:
    """The values of the columns that a variable stands in; any, if it may be computed."""
    flat = [part for item in items for part in (item.items if isinstance(item, And) else [item])]
    columns = [
        {row[place] for row in known[atom.relation]}
        for atom in [item for item in flat if isinstance(item, Atom)] or atoms(items)
        if atom.relation in known
        for place, term in enumerate(atom.terms)
        if isinstance(term, Variable) and term.name == name
    ]
    if any(isinstance(item, Atom) and name in names_of_atom(item) for item in flat):
        return set.intersection(*columns)
    return set().union(COMPUTED, *columns)


def names_of_atom(atom: Atom) -> set[str]:
    return {term.name for term in atom.terms if isinstance(term, Variable)}


def atoms(items: Items) -> list[Atom]:
    found: list[Atom] = []
    for item in items:
        match item:
            case Atom():
                found.append(item)
            case Not() | And():
                found += atoms(item.items)
            case Or():
                found += [atom for branch in item.alternatives for atom in atoms(branch)]
    return found


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
