"""Datalog programs as logical plans, one per head.

``plan_datalog`` parses the text, resolves names, checks safety and orders the heads. The plan of a
head is the Distinct of the Union of its rules. A head that uses another head scans it by name, so
each plan has only the rules of its head. Heads that use each other are one fixpoint
(`circuits.datalog.recursion`).

Aggregates are over a set [1]: the distinct bindings of all variables that the body binds by name
(not ``_``, not the local variables of an ``or`` or a ``not``). The other terms of the head are the
keys of the groups. ``count()`` counts the bindings, ``count(x)`` the bindings in which ``x`` is not
NULL, ``count_distinct(x)`` the values of ``x``; ``sum(x)`` adds ``x`` once per binding. Without
keys there is always one row, as in SQL; without bindings it has count 0 and NULL for other
aggregates. Each rule aggregates separately.

A column is named by its alias; without one by the variable of the first rule, by the aggregate, or
``c`` and its index. Names are made unique and are never ``weight``, the column of the weights.

References:
    [1] Jordan, Scholz, Subotić. Soufflé: On Synthesis of Program Analyzers. CAV 2016 (aggregates
        over the bindings of a body).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

import pyarrow as pa

from circuits.datalog.body import BodyPlanner, Projection, plan_union
from circuits.datalog.parser import parse
from circuits.datalog.program import (
    FunctionCall,
    HeadTerm,
    Rule,
    Term,
    TypedConstant,
    Variable,
    variables_of,
    walk,
)
from circuits.datalog.recursion import plan_recursion
from circuits.datalog.recursive_min_max import candidate_rule, distinct_modes
from circuits.datalog.safety import check_safety, resolve_names
from circuits.datalog.scope import bound_variables, rename_local_variables
from circuits.datalog.source import DatalogSource
from circuits.datalog.stratification import stratify
from circuits.datalog.terms import AGGREGATES, build_expression, call_function, is_built_in
from circuits.errors import FunctionError
from circuits.plan.expression_text import column_names
from circuits.plan.expressions import Expression, Literal
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Field,
    Map,
    PlanNode,
    Values,
    columns,
)
from circuits.types.functions import aggregate_type, common_type
from circuits.user_functions import UserFunction

__all__ = ["plan_datalog"]

WEIGHT_COLUMN: Final = "weight"


def plan_datalog(
    text: str,
    relations: Mapping[str, tuple[Field, ...]],
    functions: Mapping[str, UserFunction] | None = None,
) -> dict[str, PlanNode]:
    """Return the plans of a Datalog program.

    Args:
        text: Rules ``head(terms) :- body.``; see `circuits.datalog.grammar`.
        relations: The columns of each input relation.
        functions: The user-defined functions by lower-case name. Their calls are expressions of
            the plans; `circuits.plan.user_call_placement` makes nodes of them.

    Returns:
        A plan per head, each after the heads that it scans. Rows have weight 1.

    Raises:
        DatalogError: The text is not a program; a name is unknown or has another arity; a variable
            is unbound; types do not fit; a recursion is not monotone. Message, line and column
            say where.
        FunctionError: A user-defined function has the name of a built-in one.

    Complexity:
        O(len(text)), except for ors that are distributed, see `circuits.datalog.disjunctions`.

    >>> e = {"e": (Field("src", pa.int64()), Field("dst", pa.int64()))}
    >>> plans = plan_datalog("hop(a, c) :- e(a, b), e(b, c). far(a, count()) :- hop(a, _).", e)
    >>> list(plans), [field.name for field in plans["far"].fields]
    (['hop', 'far'], ['a', 'count'])
    """
    for name in functions or ():
        if is_built_in(name) or name in AGGREGATES:
            raise FunctionError(
                f"user-defined function {name!r} has the name of a built-in function of Datalog: "
                "choose another name"
            )
    program = parse(text, functions)
    program = resolve_names(program, {name: len(fields) for name, fields in relations.items()})
    check_safety(program)
    fields_by_relation = dict(relations)
    plans: dict[str, PlanNode] = {}
    heads = program.heads
    for stratum in stratify(program):
        if stratum.recursive:
            modes = distinct_modes(program, stratum.heads)
            plans |= plan_recursion(stratum.heads, program, fields_by_relation, modes, _plan_rules)
        else:
            (head,) = stratum.heads
            plans[head] = _plan_head(heads[head], BodyPlanner(fields_by_relation, program.source))
        fields_by_relation |= {head: plans[head].fields for head in stratum.heads}
    return plans


def _plan_head(rules: Sequence[Rule], body_planner: BodyPlanner) -> PlanNode:
    """Return the plan of one head."""
    plan = _plan_rules(rules, body_planner, rules[0])
    if len(rules) == 1 and _is_aggregation(rules[0]):
        return plan  # one row per group is distinct already
    return Distinct(plan)


def _plan_rules(rules: Sequence[Rule], body_planner: BodyPlanner, first: Rule) -> PlanNode:
    """Return the plan of rows that rules of one head derive, with their multiplicity.

    Args:
        rules: Some of the head's rules.
        body_planner: Plans their bodies.
        first: The first of all rules of the head, which names the columns.
    """
    source = body_planner.source
    names = _column_names(first, source)
    facts = [rule for rule in rules if _is_fact(rule)]
    projections: list[Projection] = []
    if facts:
        values = _plan_facts(facts, names, source)
        projections.append(Projection(values, columns(values)))
    for rule in rules:
        if _is_fact(rule):
            continue
        # The fixpoint of a recursion takes the minimum or maximum itself.
        planned_rule = candidate_rule(rule) if rule.head in body_planner.recursive else rule
        if _is_aggregation(planned_rule):
            projections.append(_plan_aggregation(planned_rule, body_planner))
        else:
            projections += _plan_projection(planned_rule, body_planner)
    return plan_union(projections, names, source, rules[0].offset)


def _is_fact(rule: Rule) -> bool:
    return not rule.body and all(isinstance(term.term, TypedConstant) for term in rule.terms)


def _plan_facts(rules: Sequence[Rule], names: Sequence[str], source: DatalogSource) -> Values:
    """Return facts as constant rows, each column in its common type."""
    rows = [[cast(TypedConstant, term.term) for term in rule.terms] for rule in rules]
    fields, value_columns = [], []
    for index, name in enumerate(names):
        constants = [row[index] for row in rows]
        try:
            column_type = common_type([constant.type for constant in constants])
        except FunctionError as error:
            raise source.error(f"column {name!r}: {error}", constants[-1].offset) from None
        fields.append(Field(name, column_type))
        # Like a cast of SQL, the conversion of an integer to a float rounds.
        safe = not pa.types.is_floating(column_type)
        scalars = (pa.scalar(constant.value, constant.type) for constant in constants)
        value_columns.append([scalar.cast(column_type, safe=safe).as_py() for scalar in scalars])
    distinct_rows = dict.fromkeys(zip(*value_columns, strict=True) if names else [()])
    return Values(tuple(fields), tuple(distinct_rows))


def _plan_projection(rule: Rule, body_planner: BodyPlanner) -> list[Projection]:
    """Plan a rule without aggregates: the terms of the head over each alternative of the body."""
    terms = [term.term for term in rule.terms]
    body = rename_local_variables(rule.body)
    projections = []
    for bindings in body_planner.plan_alternatives(body, list(variables_of(*terms))):
        values = [build_expression(term, bindings.variables, body_planner.source) for term in terms]
        projections.append(Projection(bindings.plan, values))
    return projections


def _plan_aggregation(rule: Rule, body_planner: BodyPlanner) -> Projection:
    """Plan a rule with aggregates: distinct bindings, keys and arguments, groups, head terms."""
    source = body_planner.source
    bound = bound_variables(rule.body)
    names = [name for name in variables_of(*rule.body) if name in bound]
    alternatives = [
        Projection(bindings.plan, [bindings.variables[name] for name in names])
        for bindings in body_planner.plan_alternatives(rename_local_variables(rule.body), names)
    ]
    distinct_bindings = Distinct(plan_union(alternatives, names, source, rule.offset))
    scope = dict(zip(names, columns(distinct_bindings), strict=True))
    keys = list(dict.fromkeys(t.term for t in rule.terms if not _has_aggregate(t.term)))
    keys = [key for key in keys if not isinstance(key, TypedConstant)]
    calls = list(dict.fromkeys(
        node
        for term in rule.terms
        for node in walk(term)
        if isinstance(node, FunctionCall) and node.function in AGGREGATES
    ))  # fmt: skip
    inputs = [build_expression(key, scope, source) for key in keys]
    aggregates = []
    for call in calls:
        argument = _aggregate_argument(call, source)
        column: int | None = None
        if argument is not None:
            column = len(inputs)
            inputs.append(build_expression(argument, scope, source))
        argument_type = None if column is None else inputs[column].type
        aggregates.append(_aggregate_call(call, column, argument_type, source))
    input_names = column_names(inputs, distinct_bindings.fields)
    group_inputs = Map(distinct_bindings, tuple(inputs), input_names)
    named_aggregates = tuple(call.named_by_text(group_inputs.fields) for call in aggregates)
    groups = Aggregate(group_inputs, tuple(range(len(keys))), named_aggregates)
    columns_by_term: dict[Term, Expression] = dict(
        zip([*keys, *calls], columns(groups), strict=True)
    )
    values = [_rewrite_over_groups(t.term, columns_by_term, rule, source) for t in rule.terms]
    return Projection(groups, values)


def _aggregate_argument(call: FunctionCall, source: DatalogSource) -> Term | None:
    """Return the term to aggregate; None if bindings are counted."""
    match call.arguments:
        case () | (FunctionCall(function="*"),) if call.function == "count":
            return None
        case (argument,):
            return argument
        case _:
            number = len(call.arguments)
            raise source.error(f"{call.function} takes 1 term, not {number}", call.offset)


def _aggregate_call(
    call: FunctionCall,
    column: int | None,
    argument_type: pa.DataType | None,
    source: DatalogSource,
) -> AggregateCall:
    distinct = call.function in ("count_distinct", "count-distinct")
    function = "count" if distinct else call.function
    try:
        result = aggregate_type(function, argument_type)
    except FunctionError as error:
        raise source.error(str(error), call.offset) from None
    return AggregateCall(function, column, result, "", distinct)


def _rewrite_over_groups(
    term: Term, columns_by_term: Mapping[Term, Expression], rule: Rule, source: DatalogSource
) -> Expression:
    """Return a head term over the columns of the groups: keys, aggregates, functions of them."""
    if (column := columns_by_term.get(term)) is not None:
        return column
    match term:
        case TypedConstant():
            return Literal(term.value, term.type)
        case FunctionCall():
            arguments = [
                _rewrite_over_groups(a, columns_by_term, rule, source) for a in term.arguments
            ]
            return call_function(term.function, arguments, source, term.offset)
        case Variable():
            raise source.error(
                f"variable {term.name!r} in a rule of {rule.head!r} is in a term with an "
                f"aggregate, but is not a column to group by; make it one, or aggregate it",
                term.offset,
            )
        case _:
            raise source.error("a pattern is an argument of re-find(/.../, x) only", term.offset)


def _is_aggregation(rule: Rule) -> bool:
    return any(_has_aggregate(term.term) for term in rule.terms)


def _has_aggregate(term: Term) -> bool:
    return any(isinstance(n, FunctionCall) and n.function in AGGREGATES for n in walk(term))


def _column_names(rule: Rule, source: DatalogSource) -> list[str]:
    """Return the names of the columns of a head."""
    aliases = [term.alias for term in rule.terms if term.alias is not None]
    for term in rule.terms:
        if term.alias == WEIGHT_COLUMN:
            message = f"{WEIGHT_COLUMN!r} is the name of the weights; choose another alias"
            raise source.error(message, term.offset)
        if term.alias is not None and aliases.count(term.alias) > 1:
            message = f"two columns of {rule.head!r} are called {term.alias!r}; rename one"
            raise source.error(message, term.offset)
    used = {WEIGHT_COLUMN, *aliases}
    names: list[str] = []
    for index, term in enumerate(rule.terms):
        name = term.alias
        if name is None:
            default = _default_name(term, index)
            name, number = default, 2
            while name in used:
                name, number = f"{default}_{number}", number + 1
            used.add(name)
        names.append(name)
    return names


def _default_name(term: HeadTerm, index: int) -> str:
    match term.term:
        case Variable(name=name):
            return name
        case FunctionCall(function=function) if function in AGGREGATES:
            return function.replace("-", "_")
        case _:
            return f"c{index}"
