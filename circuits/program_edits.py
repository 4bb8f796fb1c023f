"""Program edits: add views to the text of a program, or remove a view from it.

The result is a `CircuitSpec` of the edited text. The inputs and the views that were there before
stay as they are; a text that would change one of them raises an error. The state moves to a circuit
of the result with `circuits.state.program_change`.

::

    CREATE VIEW v AS ...;  +  CREATE VIEW w AS ...     ->  both statements, one after the other
    SELECT ... (named v)   +  CREATE VIEW w AS ...     ->  CREATE VIEW v AS SELECT ...; and w
    v(x) :- e(x, _)        +  w(x) :- v(x)             ->  both rules

To remove a view, its statement or its rules are cut out of the text, with the comments from there
to the next statement or rule. The rest of the text stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from circuits.circuit_spec import CircuitSpec, SourceText
from circuits.compile import plans_of
from circuits.datalog.parser import parse
from circuits.errors import DatalogError, ProgramChangeError, TextError, UnknownViewError
from circuits.plan.nodes import Scan
from circuits.plan.traversal import iter_nodes
from circuits.sql import Declarations, cut_view, join_statements
from circuits.user_functions import UserFunction, check_functions

__all__ = ["add_views", "check_unread", "remove_view"]

NO_FUNCTIONS: Final[Mapping[str, UserFunction]] = {}
RESTART_HINT: Final = "stop the job and start it with a changed program"


def add_views(
    spec: CircuitSpec,
    text: str,
    *,
    name: str | None = None,
    materialize: Collection[str] = (),
    functions: Mapping[str, UserFunction] = NO_FUNCTIONS,
) -> CircuitSpec:
    """Return a program with further views; they may read all views of the program.

    Args:
        spec: The program.
        text: The views, in the language and the dialect of the program.
        name: The name of the view, if ``text`` is one SELECT; None for other statements and
            for Datalog, which name their views.
        materialize: The new views that are kept whole.
        functions: User-defined functions that the new views call, besides those of the program.

    Raises:
        SqlError, DatalogError: The text is not valid, or names an unknown relation.
        ProgramChangeError: The text adds no view, changes an existing view, or declares an input;
            or the program has no text.

    >>> from circuits import compile_sql
    >>> schemas = {"e": "src bigint, dst bigint"}
    >>> spec = compile_sql("SELECT src FROM e", schemas, name="sources").spec
    >>> added = add_views(spec, "SELECT count(*) AS n FROM sources", name="counts")
    >>> list(added.plans), added.source.text
    (['sources', 'counts'], 'CREATE VIEW "sources" AS\\nSELECT src FROM e;\\n\
CREATE VIEW "counts" AS\\nSELECT count(*) AS n FROM sources')
    """
    source = _source_of(spec)
    if source.language == "sql":
        before, added, declarations = join_statements(
            source.text, text, query_name=source.name, new_name=name, dialect=source.dialect
        )
    else:
        if name is not None:
            raise ProgramChangeError(
                f"name={name!r} is for a SELECT: rules of Datalog name their views; leave name out"
            )
        before, added = _terminated_rules(source.text, spec.functions), text
        declarations = Declarations()
    new_inputs = [
        table.name
        for key, table in declarations.inputs.items()
        if key.casefold() not in {known.casefold() for known in spec.schemas}
    ]
    if new_inputs:
        raise ProgramChangeError(
            f"the text declares {', '.join(new_inputs)}: an input cannot be added while the job "
            f"runs; {RESTART_HINT}"
        )
    all_functions = spec.functions | check_functions(functions)
    edited = replace(source, text=f"{before}{added}")
    try:
        plans = plans_of(edited, spec.schemas, all_functions)
    except TextError as error:
        line = before.count("\n") + 1
        error.add_note(f"lines count from the beginning of the program; the new text is at {line}")
        raise
    new = [view for view in plans if view not in spec.plans]
    unknown = [view for view in materialize if view not in new]
    if unknown:
        raise ProgramChangeError(
            f"materialize: {', '.join(map(repr, unknown))} is not a new view; new views are "
            f"{', '.join(new)}"
        )
    temporary = {view.casefold() for view in declarations.temporary_views}
    options = replace(
        spec.options,
        outputs=[*spec.outputs, *(view for view in new if view.casefold() not in temporary)],
        materialize=[*spec.materialized, *materialize],
    )
    result = CircuitSpec(plans, spec.schemas, options, edited, all_functions)
    _check_rest_is_unchanged(spec, result, ())
    if not new:
        raise ProgramChangeError(
            "the text adds no view: give CREATE VIEW v AS SELECT ..., or rules"
        )
    return result


def remove_view(spec: CircuitSpec, name: str) -> CircuitSpec:
    """Return a program without a view.

    Args:
        spec: The program.
        name: The view.

    Raises:
        UnknownViewError: There is no view of that name.
        ProgramChangeError: Other views read it, it is the only view, or the program has no text.

    >>> from circuits import compile_datalog
    >>> text = "a(x) :- e(x, _). b(x) :- e(_, x). a(x) :- b(x)."
    >>> spec = compile_datalog(text, {"e": "src bigint, dst bigint"}).spec
    >>> remove_view(spec, "a").source.text
    'b(x) :- e(_, x).'
    """
    if name not in spec.plans:
        raise UnknownViewError(
            f"{name!r} is not a view of the program; views are {', '.join(spec.plans)}"
        )
    source = _source_of(spec)
    check_unread(spec, name)
    if len(spec.plans) == 1:
        raise ProgramChangeError(f"{name!r} is the only view: a program has at least one")
    if source.language == "sql":
        text = cut_view(source.text, name, query_name=source.name, dialect=source.dialect)
    else:
        text = _without_rules(source.text, name, spec.functions)
    options = replace(
        spec.options,
        outputs=[view for view in spec.outputs if view != name],
        materialize=[relation for relation in spec.materialized if relation != name],
    )
    edited = replace(source, text=text)
    try:
        plans = plans_of(edited, spec.schemas, spec.functions)
        if plans.keys() == spec.plans.keys() - {name}:
            result = CircuitSpec(plans, spec.schemas, options, edited, spec.functions)
            _check_rest_is_unchanged(spec, result, [name])
            return result
    except TextError:
        pass
    raise ProgramChangeError(
        f"view {name!r} cannot be cut out of the text of the program: {RESTART_HINT}"
    )


def check_unread(spec: CircuitSpec, name: str) -> None:
    """Check that no view reads an input or another view.

    Args:
        spec: The program.
        name: The input or view.

    Raises:
        ProgramChangeError: Views read it.
    """
    readers = [
        view
        for view, plan in spec.plans.items()
        if view != name
        and any(isinstance(node, Scan) and node.relation == name for node in iter_nodes(plan))
    ]
    if readers:
        kind = "view" if name in spec.plans else "input"
        raise ProgramChangeError(
            f"{kind} {name!r} is read by {', '.join(map(repr, readers))}: drop these views first"
        )


def _source_of(spec: CircuitSpec) -> SourceText:
    if spec.source is None:
        raise ProgramChangeError(
            "the views were built from plans and have no text that could be edited: compile them "
            "from SQL or Datalog"
        )
    return spec.source


def _check_rest_is_unchanged(old: CircuitSpec, new: CircuitSpec, removed: Collection[str]) -> None:
    """Raise an error if the inputs or the other views are not the same in both programs."""
    without = {"materialized", *(f"view {name}" for name in removed)}
    for name, fingerprint in old.fingerprints.items():
        if name not in without and new.fingerprints.get(name) != fingerprint:
            raise ProgramChangeError(
                f"the edit would change {name}, which is in use: {RESTART_HINT}"
            )


def _terminated_rules(text: str, functions: Mapping[str, UserFunction]) -> str:
    """Return rules with a dot after the last one."""
    text = text.rstrip()
    try:
        parse(f"{text}\n.", functions)
    except DatalogError:  # it has a dot already
        return f"{text}\n"
    return f"{text}\n.\n"


def _without_rules(text: str, name: str, functions: Mapping[str, UserFunction]) -> str:
    """Return the rules without those of a head."""
    rules = parse(text, functions).rules
    starts = [rule.offset for rule in rules]
    ends = [*starts[1:], len(text)]
    kept = text[: starts[0]]
    for rule, start, end in zip(rules, starts, ends, strict=True):
        if rule.head != name:
            kept += text[start:end]
    return kept.rstrip()
