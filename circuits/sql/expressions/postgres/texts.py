"""Functions of texts as in PostgreSQL.

::

    substring('hello', -1, 4)          he: the positions -1 to 2, of which two exist
    substring('hello' FROM 'l(.)')     l: the group of the pattern; NULL without a match
    concat('a', 1.0::float8, true)     a1t; also concat_ws() and format()
    format('%s is %L', 'a', 'b')       a is 'b'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions import scalar_functions
from circuits.sql.expressions.casts import dialect_text
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.postgres.positions import at_least
from circuits.sql.expressions.scalar_functions import read_literal_as_bytes
from circuits.sql.syntax.parsing import parse_by_name
from circuits.types.arrow_types import is_nested
from circuits.types.functions.type_rules import is_binary, is_text

__all__ = ["READERS", "READERS_BY_NAME"]

# A directive of format(): position, alignment to the left, width, and conversion.
_DIRECTIVE: Final = re.compile(r"%(?:%|(?:(\d+)\$)?(-?)(\d*)([sL]))")
# The parts of a pattern that decide whether a group takes part in each match: an escaped character,
# a set of characters, a parenthesis, a repetition, or an alternative.
_PATTERN_PART: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\((?P<special>\?)?)|(?P<close>\)(?P<optional>[?*{])?)|(?P<or>\|)",
    re.DOTALL,
)


def _read_substring(clause: Clause, node: exp.Substring) -> Expression:
    value, start, *length = scalar_functions.read_substring_arguments(clause, node)
    if is_text(start.type):
        if length:
            raise clause.source.unsupported(
                node, "SUBSTRING with FOR and a pattern", "write a regular expression: FROM '...'"
            )
        return _matching_part(clause, node, value, start)
    first = at_least(clause, node, start, 1)
    if not length:
        return clause.call(node, "substring", value, first)
    end = clause.call(node, "add", start, length[0])
    count = clause.call(node, "subtract", end, first)
    part = clause.call(node, "substring", value, first, at_least(clause, node, count, 0))
    if isinstance(length[0], Literal) and isinstance(length[0].value, int) and length[0].value >= 0:
        return part
    is_negative = clause.call(node, "lt", length[0], integer_literal(0))
    is_given = clause.call(node, "not", clause.call(node, "is_null", part))
    error = clause.call(
        node, "raise_error", string_literal("negative substring length not allowed")
    )
    error = clause.call(node, "cast", error, type=part.type)
    return clause.call(node, "case", clause.call(node, "and", is_given, is_negative), error, part)


def _matching_part(
    clause: Clause, node: exp.Expr, value: Expression, pattern: Expression
) -> Expression:
    """Return the part of a text that matches a pattern, or its first group; else NULL."""
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise clause.source.unsupported(
            node, "SUBSTRING with a pattern that is not a constant", "write a text"
        )
    try:
        group_count = re.compile(pattern.value).groups
    except re.error as error:
        raise clause.source.error(node, f"the pattern {pattern.value!r}: {error}") from None
    if group_count and _is_optional(pattern.value):
        raise clause.source.unsupported(
            node, "a group that may have no match", "make it a part of every match"
        )
    group = integer_literal(min(group_count, 1))
    is_match = clause.call(node, "regexp_matches", value, pattern)
    part = clause.call(node, "regexp_extract", value, pattern, group)
    return clause.call(node, "case", is_match, part, NULL)


def _is_optional(pattern: str) -> bool:
    """Return whether the first group of a pattern may take no part in a match.

    PostgreSQL then returns NULL for it, the engine an empty string. A group inside another one of
    which a part is optional counts as optional.

    >>> [_is_optional(pattern) for pattern in ("(a|b)c", "(a)|b", "(a)?b", "(?:(a)|b)c")]
    [False, True, True, True]
    """
    depth = 0
    group_depth: int | None = None
    is_nested = False
    for part in _PATTERN_PART.finditer(pattern):
        if part["open"]:
            depth += 1
            if group_depth is None and not part["special"]:
                group_depth, is_nested = depth, depth > 1
        elif part["close"]:
            if part["optional"] and (depth == group_depth or is_nested):
                return True
            if depth == group_depth:
                group_depth = 0  # the groups that follow decide nothing
            depth -= 1
        elif part["or"] and (depth == 0 or is_nested):
            return True
    return False


def _to_string(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    """Return a value as the string that concat() and format() write, such as t for true."""
    if is_nested(value.type):
        raise clause.source.unsupported(
            node, f"the text of a {value.type}", "write array_to_string(), or array_cat() for lists"
        )
    if pa.types.is_boolean(value.type):
        is_false = clause.call(node, "not", value)
        true, false = string_literal("t"), string_literal("f")
        return clause.call(node, "case", value, true, is_false, false, NULL)
    if is_text(value.type):
        return value
    return clause.call(node, "cast", dialect_text(clause, node, value), type=pa.string())


def _read_concat(clause: Clause, node: exp.Concat) -> Expression:
    clause.source.allow_arguments(node, "expressions", "safe", "coalesce")
    values = [_to_string(clause, part, clause.read(part)) for part in node.expressions]
    return _join_parts(clause, node, [_or_empty(clause, node, value) for value in values])


def _or_empty(clause: Clause, node: exp.Expr, text: Expression) -> Expression:
    """Return a string, or an empty string for NULL."""
    return clause.call(node, "coalesce", text, string_literal(""))


def _join_parts(clause: Clause, node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else clause.call(node, "concat", *parts)


def _read_concat_ws(clause: Clause, node: exp.Anonymous) -> Expression:
    if len(node.expressions) < 2:
        raise clause.source.error(node, "concat_ws() takes a separator and at least one value")
    separator, *values = map(clause.read, node.expressions)
    texts = [_to_string(clause, node, value) for value in values]
    return clause.call(node, "concat_ws", separator, *texts)


def _read_format(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``format('%s and %2$L', a, b)``; of NULL, %s writes nothing, and %L writes NULL."""
    if not node.expressions:
        raise clause.source.error(node, "format() takes a template and its values")
    template, *values = map(clause.read, node.expressions)
    if not isinstance(template, Literal) or not isinstance(template.value, str):
        raise clause.source.unsupported(
            node, "format() with a template that is not a constant", "write a constant text"
        )
    parts: list[Expression] = []
    end, next_index = 0, 0
    for match in _DIRECTIVE.finditer(template.value):
        parts.append(_template_text(clause, node, template.value[end : match.start()]))
        end = match.end()
        position, is_left, width, conversion = match.groups()
        if not conversion:
            parts.append(string_literal("%"))
            continue
        index = int(position) - 1 if position else next_index
        next_index = index + 1
        if not 0 <= index < len(values):
            count = "is 1 value" if len(values) == 1 else f"are {len(values)} values"
            raise clause.source.error(
                node, f"{match[0]} in format() has no argument: there {count}"
            )
        text = _to_string(clause, node, values[index])
        text = _quote(clause, node, text) if conversion == "L" else _or_empty(clause, node, text)
        parts.append(_pad(clause, node, text, int(width or 0), bool(is_left)))
    parts.append(_template_text(clause, node, template.value[end:]))
    return _join_parts(
        clause, node, [part for part in parts if part != string_literal("")] or parts
    )


def _template_text(clause: Clause, node: exp.Expr, text: str) -> Expression:
    """Return the text between two directives of format(), in which no % may occur."""
    if "%" in text:
        raise clause.source.unsupported(
            node, f"{text[text.index('%') :]!r} in format()", "there are %s, %L and %%"
        )
    return string_literal(text)


def _quote(clause: Clause, node: exp.Expr, text: Expression) -> Expression:
    """Return a string as a literal of SQL; of NULL, the word NULL."""
    quote, backslash = string_literal("'"), string_literal("\\")
    doubled = clause.call(node, "replace", text, quote, string_literal("''"))
    escaped = clause.call(node, "replace", doubled, backslash, string_literal("\\\\"))
    prefix = clause.call(
        node,
        "case",
        clause.call(node, "contains", text, backslash),
        string_literal("E'"),
        quote,
    )
    literal = clause.call(node, "concat", prefix, escaped, quote)
    return clause.call(node, "coalesce", literal, string_literal("NULL"))


def _pad(clause: Clause, node: exp.Expr, text: Expression, width: int, is_left: bool) -> Expression:
    """Pad a string with blanks to a width, on the right if ``is_left``; a longer one is kept."""
    if not width:
        return text
    size, blank = integer_literal(width), string_literal(" ")
    is_short = clause.call(node, "lt", clause.call(node, "length", text), size)
    padded = clause.call(node, "rpad" if is_left else "lpad", text, size, blank)
    return clause.call(node, "case", is_short, padded, text)


def _quoting_reader(null: Expression | None) -> Reader:
    """Return the reader of a function that writes a value as a literal of SQL.

    Args:
        null: The result for NULL; if it is None, the result is the word NULL.
    """

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 1:
            raise clause.source.error(node, f"{node.name}() takes 1 argument")
        value = clause.read(node.expressions[0])
        quoted = _quote(clause, node, _to_string(clause, node, value))
        if null is None:
            return quoted
        return clause.call(node, "case", clause.call(node, "is_null", value), null, quoted)

    return read


def _refuse_matches(clause: Clause, node: exp.Expr) -> Expression:
    raise clause.source.unsupported(
        node,
        "regexp_matches(), which makes rows, with these arguments",
        "write a constant pattern without optional groups, and no flag but 'g'; regexp_like() is "
        "a condition",
    )


def _read_pattern_position(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``regexp_instr(text, pattern)``, from 1; 0 without a match."""
    if len(node.expressions) != 2:
        raise clause.source.unsupported(
            node, f"regexp_instr() with {len(node.expressions)} arguments", "give a text, a pattern"
        )
    return clause.call(node, "regexp_position", *map(clause.read, node.expressions))


def _read_byte(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``get_byte(bytes, position)``; positions count from 0."""
    values = [clause.read(part) for part in node.expressions]
    values[:1] = [read_literal_as_bytes(clause, node, value) for value in values[:1]]
    if len(values) != 2 or not (is_binary(values[0].type) or pa.types.is_null(values[0].type)):
        raise clause.source.error(node, "get_byte() takes bytes and a position")
    return clause.call(node, "get_byte", *values)


def _read_digest(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``sha256(bytes)`` and its relatives, and ``digest(x, 'sha256')``: bytes, not a text."""
    name, values = node.name.lower(), [clause.read(part) for part in node.expressions]
    algorithm = values[-1] if name == "digest" and len(values) == 2 else None
    if isinstance(algorithm, Literal):
        name = str(algorithm.value).lower()
        values = values[:1]
    elif name != "digest":  # a literal argument of digest() is a text
        values = [read_literal_as_bytes(clause, node, value) for value in values]
    if len(values) != 1 or name not in _DIGESTS:
        names = ", ".join(_DIGESTS)
        raise clause.source.unsupported(
            node, f"{node.name}() with these arguments", f"give one value, and one of {names}"
        )
    bits = [integer_literal(_DIGESTS[name])] if _DIGESTS[name] else []
    function = "sha2" if bits else name
    return clause.call(node, "from_hex", clause.call(node, function, *values, *bits))


def _read_part(clause: Clause, node: exp.SplitPart) -> Expression:
    """Read ``split_part(text, separator, n)``; an empty separator leaves the text whole."""
    clause.source.allow_arguments(node, "this", "delimiter", "part_index")
    text, separator, number = (clause.read(node.args[name]) for name in _PART_ARGUMENTS)
    part = clause.call(node, "split_part", text, separator, number)
    if isinstance(separator, Literal) and separator.value:
        return part
    is_whole = clause.call(node, "in", number, integer_literal(1), integer_literal(-1))
    nothing = clause.call(node, "substring", text, integer_literal(1), integer_literal(0))
    whole = clause.call(node, "case", is_whole, text, nothing)
    is_empty = clause.call(node, "eq", separator, string_literal(""))
    return clause.call(node, "case", is_empty, whole, part)


_PART_ARGUMENTS: Final = ("this", "delimiter", "part_index")


def _read_length(clause: Clause, node: exp.Length) -> Expression:
    value = clause.read(node.this)
    if not is_binary(value.type):
        return scalar_functions.length_of(clause, node, value)
    clause.source.allow_arguments(node, "this", "binary", "encoding")
    return clause.call(node, "octet_length", value)


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Concat: _read_concat,
    exp.Length: _read_length,
    exp.SplitPart: _read_part,
    exp.Substring: _read_substring,
}


#: The number of bits of a digest of the family sha2; 0 for others.
_DIGESTS: Final = {"md5": 0, "sha1": 0, "sha224": 224, "sha256": 256, "sha384": 384, "sha512": 512}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    **dict.fromkeys(("digest", "sha224", "sha256", "sha384", "sha512"), _read_digest),
    "concat_ws": _read_concat_ws,
    "format": _read_format,
    "get_byte": _read_byte,
    "quote_literal": _quoting_reader(NULL),
    "quote_nullable": _quoting_reader(None),
    "regexp_instr": _read_pattern_position,
    "regexp_matches": _refuse_matches,
}
_PARSED_BY_NAME: Final = ("digest", "regexp_instr", "sha224", "sha256", "sha384", "sha512")
parse_by_name(_PARSED_BY_NAME, is_spark_dialect=False)
