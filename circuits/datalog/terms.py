"""Terms as typed expressions over columns.

The functions are those of `circuits.types.functions`, and some of Clojure:

- ``quot`` is ``int_divide``; ``rem`` and ``mod`` are ``modulo``. As in SQL, the result of ``mod``
  has the sign of the dividend; in Clojure it has that of the divisor.
- ``number?`` and ``string?`` test the type of a column, so all its values but NULL give the same
  result. For NULL they are false.
- ``re-find`` takes patterns without special characters, except ``^`` at the start and ``$`` at the
  end. Any other pattern raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from circuits.datalog.program import FunctionCall, Pattern, Term, TypedConstant, Variable
from circuits.datalog.source import DatalogSource
from circuits.errors import EvaluationError, FunctionError
from circuits.plan.expressions import Expression, Literal
from circuits.types.functions import FUNCTIONS, call
from circuits.types.functions.type_rules import is_number, is_text
from circuits.user_functions import call_user_function

__all__ = [
    "AGGREGATES",
    "ALIASES",
    "COMPARISONS",
    "MIN_MAX",
    "build_comparison",
    "build_expression",
    "call_function",
    "is_built_in",
    "is_function",
]

AGGREGATES: Final = frozenset(
    {"count", "count_distinct", "count-distinct", "sum", "avg", "min", "max"}
)
#: The aggregates that may be recursive.
MIN_MAX: Final = frozenset({"min", "max"})
ALIASES: Final[Mapping[str, str]] = {
    "quot": "int_divide",
    "rem": "modulo",
    "mod": "modulo",
}
COMPARISONS: Final[Mapping[str, str]] = {
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
}
TYPE_TESTS: Final[Mapping[str, Callable[[pa.DataType], bool]]] = {
    "number?": is_number,
    "string?": is_text,
}
# A pattern without special characters, except ^ at its start and $ at its end.
LITERAL_PATTERN: Final = re.compile(
    r"(?P<start>\^?)(?P<text>(?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])*)(?P<end>\$?)"
)


def is_function(name: str, source: DatalogSource) -> bool:
    """Return whether a function has this name, built-in or of the user.

    >>> source = DatalogSource("")
    >>> is_function("add", source), is_function("quot", source), is_function("nothing", source)
    (True, True, False)
    """
    return is_built_in(name) or name.casefold() in source.functions


def is_built_in(name: str) -> bool:
    """Return whether a built-in function has this name."""
    return name in FUNCTIONS or name in ALIASES or name in TYPE_TESTS or name == "re-find"


def build_expression(
    term: Term, variables: Mapping[str, Expression], source: DatalogSource
) -> Expression:
    """Return the expression of a term whose variables are all bound.

    Raises:
        DatalogError: A function does not take these arguments.
    """
    match term:
        case Variable():
            return variables[term.name]
        case TypedConstant():
            return Literal(term.value, term.type)
        case FunctionCall(function="re-find"):
            return _build_pattern_match(term, variables, source)
        case FunctionCall():
            arguments = [
                build_expression(argument, variables, source) for argument in term.arguments
            ]
            return call_function(term.function, arguments, source, term.offset)
        case _:
            raise source.error("a pattern is an argument of re-find(/.../, x) only", term.offset)


def call_function(
    function: str, arguments: list[Expression], source: DatalogSource, offset: int
) -> Expression:
    """Return a call of a function.

    Raises:
        DatalogError: The function does not exist or does not take these arguments.
    """
    try:
        if function in TYPE_TESTS:
            if len(arguments) != 1:
                raise FunctionError(f"{function} takes 1 argument, not {len(arguments)}")
            if not TYPE_TESTS[function](arguments[0].type):
                return Literal(False, pa.bool_())
            return call("not", call("is_null", arguments[0]))
        user_function = source.functions.get(function.casefold())
        if user_function is not None:
            return call_user_function(function.casefold(), user_function, arguments)
        return call(ALIASES.get(function, function), *arguments)
    # Building a call folds constants, so it can fail like an evaluation.
    except (FunctionError, EvaluationError, pa.ArrowException) as error:
        raise source.error(str(error), offset) from None


def build_comparison(
    op: str, left: Expression, right: Expression, source: DatalogSource, offset: int
) -> Expression:
    """Return the expression of ``left op right``.

    Raises:
        DatalogError: Values of these types do not compare, or one side is NULL.
    """
    for side in (left, right):
        if isinstance(side, Literal) and side.value is None:
            raise source.error("a comparison with null is never true; use is_null(x)", offset)
    return call_function(COMPARISONS[op], [left, right], source, offset)


def _build_pattern_match(
    term: FunctionCall, variables: Mapping[str, Expression], source: DatalogSource
) -> Expression:
    match term.arguments:
        case (Pattern() as pattern, text):
            match = LITERAL_PATTERN.fullmatch(pattern.text)
        case _:
            raise source.error("re-find takes a pattern and a text: re-find(/an/, x)", term.offset)
    if match is None:
        raise source.error(
            f"pattern /{pattern.text}/ has special characters; only ^ at its start and $ at its "
            f"end are supported: use like(x, '%an_') or several conditions",
            pattern.offset,
        )
    needle = Literal(re.sub(r"\\(.)", r"\1", match["text"]), pa.string())
    anchors = match["start"] + match["end"]
    function = {"^": "starts_with", "$": "ends_with", "^$": "eq"}.get(anchors, "contains")
    return call_function(
        function, [build_expression(text, variables, source), needle], source, term.offset
    )
