"""Operators and literals of bits, patterns, bytes and time zones, and OVERLAY."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.named_functions import coerce
from circuits.sql.expressions.spark.arithmetic import cast_to_type_of
from circuits.sql.expressions.spark.numbers import shift

__all__ = ["READERS"]


def _bit_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Binary) -> Expression:
        clause.source.allow_arguments(node, "this", "expression", "padside")
        sides = [clause.read(node.left), clause.read(node.right)]
        if all(arrow.is_boolean(side.type) for side in sides):
            raise clause.source.unsupported(node, "a bit operator of conditions", "use AND or OR")
        value = clause.call(node, function, *sides)
        return cast_to_type_of(clause, node, value, *sides) if clause.source.is_spark else value

    return read


def _shift_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Binary) -> Expression:
        clause.source.allow_arguments(node, "this", "expression", "requires_int128")
        sides = [clause.read(node.left), clause.read(node.right)]
        if clause.source.is_spark:
            return shift(clause, node, function, sides)
        return clause.call(node, function + "_checked", *sides)

    return read


def _read_complement(clause: Clause, node: exp.BitwiseNot) -> Expression:
    (value,) = clause.read_arguments(node, "this")
    complement = clause.call(node, "bit_not", value)
    return (
        cast_to_type_of(clause, node, complement, value) if clause.source.is_spark else complement
    )


def _pattern_reader(function: str, *, options: str = "") -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expression", "full_match")
        sides = [clause.read(node.this), clause.read(node.args["expression"])]
        if clause.source.is_spark:
            sides = coerce(clause, node, sides, "tt")
        name = function
        if function == "similar_to" and clause.source.dialect == "duckdb":
            name = "regexp_full_match"  # in DuckDB, % and _ are not special there
        option_arguments = (string_literal(options),) if options else ()
        return clause.call(node, name, *sides, *option_arguments)

    return read


def _read_hex(clause: Clause, node: exp.HexString) -> Expression:
    clause.source.allow_arguments(node, "this", "is_integer")
    digits = str(node.this)
    if node.args.get("is_integer"):
        return integer_literal(int(digits, 16))
    return Literal(bytes.fromhex("0" * (len(digits) % 2) + digits), pa.binary())


def _read_raw(clause: Clause, node: exp.RawString) -> Expression:
    clause.source.allow_arguments(node, "this")
    return string_literal(str(node.this))


def _read_escaped_text(clause: Clause, node: exp.ByteString) -> Expression:
    """Read ``E'a\\n'``, a text whose escapes sqlglot has replaced; Spark has no such literal."""
    if clause.source.is_spark:
        raise clause.source.unsupported(node, "a text with E before it", "leave out the E")
    clause.source.allow_arguments(node, "this", "is_bytes")
    text = str(node.this)
    # In DuckDB, an escape such as \\xC3 is a byte of UTF-8.
    has_byte = any(character > "\x7f" and character not in clause.source.text for character in text)
    if has_byte or "\0" in text:
        raise clause.source.unsupported(
            node, "an escape of a byte that is no character of ASCII", "write the character"
        )
    return string_literal(text)


def _read_overlay(clause: Clause, node: exp.Overlay) -> Expression:
    parts = list(clause.read_arguments(node, "this", "expression", "from_", "for_"))
    if arrow.is_binary(parts[0].type) and clause.source.is_spark:
        return clause.call(node, "bytes_overlay", *parts)
    if any(arrow.is_binary(part.type) for part in parts):
        raise clause.source.unsupported(node, "OVERLAY of bytes", "decode them to text")
    if clause.source.is_spark:
        parts = coerce(clause, node, parts, "ttii")
    return clause.call(node, "overlay", *parts)


def _read_position(clause: Clause, node: exp.StrPosition) -> Expression:
    clause.source.allow_arguments(node, "this", "substr", "position")
    parts = [clause.read(node.this), clause.read(node.args["substr"])]
    start = node.args.get("position")
    if start is None:
        if clause.source.is_spark:
            parts = coerce(clause, node, parts, "tt")
        return clause.call(node, "position", *parts)
    parts = [parts[1], parts[0], clause.read(start)]  # locate(part, text, start)
    if clause.source.is_spark:
        parts = coerce(clause, node, parts, "tti")
    return clause.call(node, "locate", *parts)


def _read_zone(clause: Clause, node: exp.AtTimeZone) -> Expression:
    """Read AT TIME ZONE: from the local time of a zone to a moment with a zone, or back."""
    value, zone = clause.read_arguments(node, "this", "zone")
    data_type = value.type
    if not arrow.is_timestamp(data_type):
        raise clause.source.unsupported(
            node, f"AT TIME ZONE of {data_type}", "cast it to a timestamp"
        )
    if data_type.tz is None:
        # A local time that occurs twice is the earlier moment in Spark, the later one in DuckDB.
        function = "from_zone" if clause.source.is_spark else "from_zone_latest"
        moment = clause.call(node, function, value, zone)
        return clause.call(node, "cast", moment, type=pa.timestamp("us", "UTC"))
    return clause.call(node, "to_zone", value, zone)


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.AtTimeZone: _read_zone,
    exp.BitwiseAnd: _bit_reader("bit_and_of"),
    exp.BitwiseLeftShift: _shift_reader("shift_left"),
    exp.BitwiseNot: _read_complement,
    exp.BitwiseOr: _bit_reader("bit_or_of"),
    exp.BitwiseRightShift: _shift_reader("shift_right"),
    exp.BitwiseXor: _bit_reader("bit_xor_of"),
    exp.ByteString: _read_escaped_text,
    exp.HexString: _read_hex,
    exp.Overlay: _read_overlay,
    exp.RawString: _read_raw,
    exp.RegexpILike: _pattern_reader("regexp_matches", options="i"),
    exp.RegexpLike: _pattern_reader("regexp_matches"),
    exp.SimilarTo: _pattern_reader("similar_to"),
    exp.StrPosition: _read_position,
}
