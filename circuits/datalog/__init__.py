"""The Datalog front end: text to logical plans, ``plan_datalog``.

A program is a list of rules. In ::

    grand(a, c) :- parent(a, b), parent(b, c).

``grand(a, c)`` is the head: it names the relation that the rule defines, and its columns. The atoms
after ``:-`` are the body: each binding of the variables that makes the body true derives a row of
the head. Rules with the same head add their rows. *Head* also means the relation that they define.

The modules, in the order in which a text passes through them::

    parser (grammar)    text to a syntax tree (program)
    safety              resolves names, checks arities and that every variable is bound
    stratification      orders the heads: each after those that it uses
    scope               renames the local variables of a rule
    disjunctions        replaces an or, where needed, by one body for each alternative
    body (terms)        bodies to joins, filters and semijoins
    planner             heads and aggregates
    recursion           heads that use each other
    recursive_min_max   min and max in such heads

Set semantics: no head has a row twice. NULL follows SQL: NULL equals no value, so it joins no row,
and no comparison with it is true.
"""

from circuits.datalog.planner import plan_datalog

__all__ = ["plan_datalog"]
