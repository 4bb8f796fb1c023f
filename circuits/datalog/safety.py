"""Name resolution and safety: every name is known and every variable is bound.

``resolve_names`` finds the relation or function of every name and checks arities; ``check_safety``
checks that each variable is bound where it is used [1]:

- a variable of a head, a comparison, a condition or a computed term is bound by the body;
- a variable of a negation is bound outside of it, or is joined within it: a variable that occurs
  once there would mean "some value", but is more often a mistake; ``_`` means "some value";
- aggregates are in heads only and not within each other.

References:
    [1] Abiteboul, Hull, Vianu. Foundations of Databases, 1995, section 12.2 (range restriction).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from circuits.datalog.program import (
    And,
    Apply,
    Atom,
    Comparison,
    Condition,
    Equation,
    Item,
    Items,
    Not,
    Or,
    Pattern,
    Program,
    Rule,
    SyntaxNode,
    Variable,
    Wildcard,
    parts,
    variables_of,
    walk,
)
from circuits.datalog.scope import bound_variables
from circuits.datalog.source import DatalogSource
from circuits.datalog.terms import AGGREGATES, is_function

__all__ = ["check_safety", "resolve_items", "resolve_names"]


def resolve_names(program: Program, arities: Mapping[str, int]) -> Program:
    """Resolve every name; an atom that names a function becomes a condition.

    Args:
        program: The result of the parser.
        arities: The arity of each input relation.

    Raises:
        DatalogError: An unknown name, an arity that does not fit, a head that is an input.
    """
    source, known = program.source, dict(arities)
    for rule in program.rules:
        if rule.head in arities:
            message = f"head {rule.head!r} is an input relation; give the head another name"
            raise source.error(message, rule.offset)
        if known.setdefault(rule.head, len(rule.terms)) != len(rule.terms):
            raise source.error(
                f"this rule gives {rule.head!r} {len(rule.terms)} columns, an earlier one "
                f"{known[rule.head]}; all rules of a head have the same number",
                rule.offset,
            )
    return replace(
        program,
        rules=tuple(
            replace(rule, body=resolve_items(rule.body, known, source)) for rule in program.rules
        ),
    )


def resolve_items(items: Items, arities: Mapping[str, int], source: DatalogSource) -> Items:
    """Resolve the names of body items; see `resolve_names`."""

    def resolve(item: Item) -> Item:
        match item:
            case Atom():
                return _resolve_atom(item, arities, source)
            case Not() | And():
                return replace(item, items=tuple(map(resolve, item.items)))
            case Or():
                alternatives = tuple(tuple(map(resolve, a)) for a in item.alternatives)
                return replace(item, alternatives=alternatives)
            case _:
                return item

    return tuple(map(resolve, items))


def _resolve_atom(atom: Atom, arities: Mapping[str, int], source: DatalogSource) -> Item:
    arity = arities.get(atom.relation)
    if arity == len(atom.terms):
        return atom
    if arity is not None:
        raise source.error(
            f"{atom.relation!r} has {arity} columns, not {len(atom.terms)}; "
            f"give a term for each, _ for those that do not matter",
            atom.offset,
        )
    if atom.relation in AGGREGATES:
        raise source.error(
            f"the aggregate {atom.relation!r} is in a body; aggregates are allowed in heads "
            f"only, so give it a separate rule and use its head",
            atom.offset,
        )
    if is_function(atom.relation):
        return Condition(Apply(atom.relation, atom.terms, offset=atom.offset), offset=atom.offset)
    close = get_close_matches(atom.relation, arities, 1)
    hint = (
        f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(arities)) or 'none'}"
    )
    raise source.error(f"there is no relation or rule {atom.relation!r}; {hint}", atom.offset)


def check_safety(program: Program) -> None:
    """Check that every variable is bound where it is used; see the module.

    Raises:
        DatalogError: A variable is not bound; an aggregate or ``_`` is in a wrong place.
    """
    for rule in program.rules:
        _check_places(rule, program.source)
        known = bound_variables(rule.body)
        _check_items(rule.body, known, rule, program.source)
        for variable in variables_of(*rule.terms).values():
            if variable.name not in known:
                raise _unbound_error(variable, rule, program.source, " of the head")


def _check_items(items: Items, known: frozenset[str], rule: Rule, source: DatalogSource) -> None:
    """Check a conjunction whose variables ``known`` are bound, by itself or from outside."""
    for item in items:
        match item:
            case And():
                _check_items(item.items, known, rule, source)
            case Or():
                for alternative in item.alternatives:
                    _check_items(
                        alternative, known | bound_variables(alternative, known), rule, source
                    )
            case Not():
                _check_negation(item, known, rule, source)
            case Atom() | Comparison() | Equation() | Condition():
                for variable in variables_of(item).values():
                    if variable.name not in known:
                        raise _unbound_error(variable, rule, source)


def _check_negation(
    negation: Not, known: frozenset[str], rule: Rule, source: DatalogSource
) -> None:
    inside = known | bound_variables(negation.items, known)
    places = Counter(node.name for node in walk(negation) if isinstance(node, Variable))
    for name, variable in variables_of(negation).items():
        if name not in known and places[name] == 1:
            raise source.error(
                f"variable {name!r} in a rule of {rule.head!r} occurs only in this negation, "
                f"once; bind it outside of the not, or write _ for any value",
                variable.offset,
            )
    _check_items(negation.items, inside, rule, source)


def _unbound_error(
    variable: Variable, rule: Rule, source: DatalogSource, where: str = ""
) -> Exception:
    name = variable.name
    ors = [node for node in walk(*rule.body) if isinstance(node, Or)]
    why = "is not bound"
    if not rule.body:
        why = "is in a fact"
    elif any(
        name in bound_variables(alternative) for node in ors for alternative in node.alternatives
    ):
        why = "is bound by some alternatives of an or, not by all"
    return source.error(
        f"variable {name!r}{where} in a rule of {rule.head!r} {why}; "
        f"bind it by an atom, or by {name} = ... of bound variables",
        variable.offset,
    )


def _check_places(rule: Rule, source: DatalogSource) -> None:
    """Check that wildcards are in atoms, patterns in re-find, and aggregates in heads."""

    def check_node(
        node: SyntaxNode, parent: SyntaxNode | None, head: bool, aggregate: str | None
    ) -> None:
        if isinstance(node, Wildcard) and not isinstance(parent, Atom):
            message = (
                f"_ in a rule of {rule.head!r} has no value here; it is allowed in body atoms only"
            )
            raise source.error(message, node.offset)
        if isinstance(node, Pattern) and not (
            isinstance(parent, Apply) and parent.function == "re-find"
        ):
            raise source.error("a pattern is an argument of re-find(/.../, x) only", node.offset)
        if isinstance(node, Apply):
            one_of_many = node.function in ("min", "max") and len(node.arguments) > 1
            if node.function in AGGREGATES:
                if one_of_many:
                    way = {"min": "least", "max": "greatest"}[node.function]
                    message = f"{node.function} is an aggregate of one term; of several use {way}"
                    raise source.error(message, node.offset)
                if not head or not rule.body:
                    raise source.error(
                        f"the aggregate {node.function!r} is in a {'fact' if head else 'body'}; "
                        "aggregates are allowed in heads of rules only",
                        node.offset,
                    )
                if aggregate is not None:
                    raise source.error(
                        f"{node.function} is within {aggregate}; give the inner aggregate "
                        f"a separate rule",
                        node.offset,
                    )
                aggregate = node.function
            elif not is_function(node.function) and node.function != "*":
                raise source.error(f"there is no function {node.function!r}", node.offset)
            elif node.function == "*" and not (
                isinstance(parent, Apply) and parent.function == "count"
            ):
                raise source.error("* alone is an argument of count(*) only", node.offset)
        for part in parts(node):
            check_node(part, node, head, aggregate)

    for term in rule.terms:
        check_node(term, None, True, None)
    for item in rule.body:
        check_node(item, None, False, None)
