"""Name resolution and safety: each name exists, and each variable is bound where it is used.

``resolve_names`` finds the relation or function of each name and checks arities. ``check_safety``
checks that the program has a finite result [1]:

- The body binds each variable of the head, of a comparison, a condition and a computed term.
- A variable of a negation is bound outside of it, or occurs at least twice in it. A local variable
  that occurs once means "some value", but is usually a misspelling; ``_`` says it clearly.
- Aggregates are in heads only, and not inside of each other.

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
    Atom,
    Comparison,
    Condition,
    Equation,
    FunctionCall,
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
    children,
    variables_of,
    walk,
)
from circuits.datalog.scope import bound_variables
from circuits.datalog.source import DatalogSource
from circuits.datalog.terms import AGGREGATES, MIN_MAX, is_function

__all__ = ["check_safety", "resolve_items", "resolve_names"]


def resolve_names(program: Program, arities: Mapping[str, int]) -> Program:
    """Resolve all names; an atom with the name of a function becomes a condition.

    Args:
        program: The result of the parser.
        arities: The arity of each input relation.

    Raises:
        DatalogError: A name is unknown, an arity is wrong, or a head is an input relation.
    """
    source, all_arities = program.source, dict(arities)
    for rule in program.rules:
        if rule.head in arities:
            message = f"head {rule.head!r} is an input relation; give the head another name"
            raise source.error(message, rule.offset)
        if all_arities.setdefault(rule.head, len(rule.terms)) != len(rule.terms):
            raise source.error(
                f"this rule gives {rule.head!r} {len(rule.terms)} columns, an earlier one "
                f"{all_arities[rule.head]}; all rules of a head have the same number",
                rule.offset,
            )
    return replace(
        program,
        rules=tuple(
            replace(rule, body=resolve_items(rule.body, all_arities, source))
            for rule in program.rules
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
            f"give a term for each, _ for any value",
            atom.offset,
        )
    if atom.relation in AGGREGATES:
        raise source.error(
            f"the aggregate {atom.relation!r} is in a body; aggregates are allowed in heads "
            f"only, so give it a separate rule and use its head",
            atom.offset,
        )
    if is_function(atom.relation, source):
        return Condition(
            FunctionCall(atom.relation, atom.terms, offset=atom.offset), offset=atom.offset
        )
    similar = get_close_matches(atom.relation, arities, 1)
    hint = (
        f"did you mean {similar[0]!r}?"
        if similar
        else f"relations: {', '.join(sorted(arities)) or 'none'}"
    )
    raise source.error(f"unknown relation {atom.relation!r}; {hint}", atom.offset)


def check_safety(program: Program) -> None:
    """Check the rules of safety that the module lists.

    Raises:
        DatalogError: A variable is not bound; an aggregate or ``_`` is in a wrong place.
    """
    for rule in program.rules:
        _check_places(rule, program.source)
        bound = bound_variables(rule.body)
        _check_items(rule.body, bound, rule, program.source)
        for variable in variables_of(*rule.terms).values():
            if variable.name not in bound:
                raise _unbound_error(variable, rule, program.source, " of the head")


def _check_items(items: Items, bound: frozenset[str], rule: Rule, source: DatalogSource) -> None:
    """Check a conjunction; ``bound`` are the variables that it or an outer conjunction binds."""
    for item in items:
        match item:
            case And():
                _check_items(item.items, bound, rule, source)
            case Or():
                for alternative in item.alternatives:
                    _check_items(
                        alternative, bound | bound_variables(alternative, bound), rule, source
                    )
            case Not():
                _check_negation(item, bound, rule, source)
            case Atom() | Comparison() | Equation() | Condition():
                for variable in variables_of(item).values():
                    if variable.name not in bound:
                        raise _unbound_error(variable, rule, source)


def _check_negation(
    negation: Not, bound: frozenset[str], rule: Rule, source: DatalogSource
) -> None:
    bound_inside = bound | bound_variables(negation.items, bound)
    occurrences = Counter(node.name for node in walk(negation) if isinstance(node, Variable))
    for name, variable in variables_of(negation).items():
        if name not in bound and occurrences[name] == 1:
            raise source.error(
                f"variable {name!r} in a rule of {rule.head!r} occurs only in this negation, "
                f"once; bind it outside of the not, or write _ for any value",
                variable.offset,
            )
    _check_items(negation.items, bound_inside, rule, source)


def _unbound_error(
    variable: Variable, rule: Rule, source: DatalogSource, where: str = ""
) -> Exception:
    name = variable.name
    ors = [node for node in walk(*rule.body) if isinstance(node, Or)]
    problem = "is not bound"
    if not rule.body:
        problem = "is in a fact"
    elif any(
        name in bound_variables(alternative) for node in ors for alternative in node.alternatives
    ):
        problem = "is bound by some alternatives of an or, not by all"
    return source.error(
        f"variable {name!r}{where} in a rule of {rule.head!r} {problem}; "
        f"bind it by an atom, or by {name} = ... of bound variables",
        variable.offset,
    )


def _check_places(rule: Rule, source: DatalogSource) -> None:
    """Check that wildcards are in atoms, patterns in re-find, and aggregates in heads."""

    def check_node(
        node: SyntaxNode, parent: SyntaxNode | None, in_head: bool, outer_aggregate: str | None
    ) -> None:
        parent_function = parent.function if isinstance(parent, FunctionCall) else None
        if isinstance(node, Wildcard) and not isinstance(parent, Atom):
            message = (
                f"_ in a rule of {rule.head!r} has no value here; it is allowed in body atoms only"
            )
            raise source.error(message, node.offset)
        if isinstance(node, Pattern) and parent_function != "re-find":
            message = "a pattern is an argument of re-find(/.../, x) only"
            raise source.error(message, node.offset)
        if isinstance(node, FunctionCall):
            if node.function in AGGREGATES:
                check_aggregate(node, in_head, outer_aggregate)
                outer_aggregate = node.function
            elif node.function == "*":
                if parent_function != "count":
                    message = "* alone is an argument of count(*) only"
                    raise source.error(message, node.offset)
            elif not is_function(node.function, source):
                raise source.error(f"unknown function {node.function!r}", node.offset)
        for child in children(node):
            check_node(child, node, in_head, outer_aggregate)

    def check_aggregate(node: FunctionCall, in_head: bool, outer_aggregate: str | None) -> None:
        if node.function in MIN_MAX and len(node.arguments) > 1:
            function = {"min": "least", "max": "greatest"}[node.function]
            message = f"{node.function} is an aggregate of one term; of several use {function}"
            raise source.error(message, node.offset)
        if not in_head or not rule.body:
            raise source.error(
                f"the aggregate {node.function!r} is in a {'fact' if in_head else 'body'}; "
                "aggregates are allowed in heads of rules only",
                node.offset,
            )
        if outer_aggregate is not None:
            raise source.error(
                f"{node.function} is within {outer_aggregate}; give the inner aggregate "
                f"a separate rule",
                node.offset,
            )

    for term in rule.terms:
        check_node(term, None, True, None)
    for item in rule.body:
        check_node(item, None, False, None)
