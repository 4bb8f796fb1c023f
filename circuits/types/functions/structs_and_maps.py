"""Functions of structs and maps. A kernel works on all fields, keys or values of a column at once.

A map is a list of entries, and an entry is a struct of ``key`` and ``value``. A key is in a map at
most once, and is never NULL: making another map is an error.

Cost: O(entries), and O(entries * log) where keys are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow

from circuits.plan.expressions import Expression, Literal
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.nested import Lists, entries_type, list_array, list_parts, struct_array
from circuits.types.functions.argument_rows import fill_rows
from circuits.types.functions.casts import convert
from circuits.types.functions.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Rule,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.lists import is_list, rows_of, valid_all
from circuits.types.functions.type_rules import common_type

__all__ = ["FUNCTIONS"]


def _make_struct_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    names = [a.value for a in arguments[::2] if isinstance(a, Literal) and isinstance(a.value, str)]
    if not arguments or len(arguments) % 2 or len(names) != len(arguments) // 2:
        raise argument_error(name, arguments, "it takes names, which are constants, and values")
    if len({each.casefold() for each in names}) < len(names):
        raise argument_error(name, arguments, "a field has the name of another field")
    fields = [(each, value.type) for each, value in zip(names, arguments[1::2], strict=True)]
    return arguments, pa.struct(fields)


def _make_struct(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = rows_of(arguments)
    pairs = zip(arguments[1::2], result_type, strict=True)
    columns = [convert(fill_rows(values, rows), field.type) for values, field in pairs]
    return struct_array(result_type, columns, None, rows)


def _field_index(data_type: pa.DataType, wanted: object) -> int:
    """Return the place of a field: by its name without case, or by its position from 1."""
    if isinstance(wanted, int):
        return wanted - 1 if 1 <= wanted <= data_type.num_fields else -1
    names = [field.name for field in data_type]
    if wanted in names:
        return names.index(wanted)
    folded = [each.casefold() for each in names]
    return folded.index(wanted.casefold()) if str(wanted).casefold() in folded else -1  # type: ignore[attr-defined]


def _field_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    struct, wanted = arguments
    if not arrow.is_struct(struct.type):
        raise argument_error(name, arguments, "it takes a struct and the name of a field")
    if not isinstance(wanted, Literal) or wanted.value is None:
        raise argument_error(name, arguments, "the name of the field is a constant")
    index = _field_index(struct.type, wanted.value)
    if index < 0:
        known = ", ".join(field.name for field in struct.type) or "none"
        raise argument_error(name, arguments, f"no field {wanted.value!r}; the struct has: {known}")
    place: Expression = Literal(index, pa.int64())
    return (struct, place), struct.type.field(index).type


def _field(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = rows_of(arguments)
    struct, place = fill_rows(arguments[0], rows), arguments[1]
    index = place.as_py() if isinstance(place, pa.Scalar) else place[0].as_py()
    return struct.flatten()[index]


def _map_rule(result: Callable[[pa.DataType], pa.DataType]) -> Rule:
    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 1, 1)
        if not arrow.is_map(arguments[0].type):
            raise argument_error(name, arguments, "it takes a map")
        return arguments, result(arguments[0].type)

    return rule


def _make_map_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    if not all(is_list(a.type) for a in arguments):
        raise argument_error(name, arguments, "it takes a list of keys and a list of values")
    keys, values = (a.type.value_type for a in arguments)
    if arrow.is_null(keys):
        keys = pa.string()
        arguments = (cast_to(arguments[0], pa.list_(keys)), arguments[1])
    return arguments, pa.map_(keys, values)


def _check_keys(counts: np.ndarray, keys: pa.Array) -> None:
    """Raise ArrowInvalid if a key is NULL or twice in a map."""
    if keys.null_count:
        raise pa.ArrowInvalid("a key of a map is NULL")
    codes = Codecs().codec(keys.type).encode(keys)
    owners = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((codes, owners))
    same = (owners[order][1:] == owners[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    if same.any():
        key = keys[int(order[1:][same][0])]
        raise pa.ArrowInvalid(f"key {key} is twice in a map")


def _make_map(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = rows_of(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    valid = valid_all(arrays)
    if valid is not None:
        arrays = [array.filter(pa.array(valid)) for array in arrays]
    keys, values = (Lists.of(array) for array in arrays)
    if (keys.counts != values.counts).any():
        row = int((keys.counts != values.counts).argmax())
        raise pa.ArrowInvalid(f"{keys.counts[row]} keys and {values.counts[row]} values of a map")
    _check_keys(keys.counts, keys.values)
    counts = keys.counts
    if valid is not None:
        counts = np.zeros(rows, np.int64)
        counts[valid] = keys.counts
    return list_array(result_type, counts, [keys.values, values.values], valid)


def _map_part(place: int) -> Callable[[Sequence[Values], pa.DataType], Values]:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        array = arguments[0]
        counts, parts = list_parts(array)
        return list_array(result_type, counts, [parts[place]], valid_all([array]))

    return kernel


def _map_entries(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return arguments[0].cast(result_type)


def _from_entries_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    entry = arguments[0].type.value_type if is_list(arguments[0].type) else pa.null()
    if not arrow.is_struct(entry) or entry.num_fields != 2:
        raise argument_error(name, arguments, "it takes a list of structs with two fields")
    return arguments, pa.map_(entry.field(0).type, entry.field(1).type)


def _from_entries(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    if lists.values.null_count:
        raise pa.ArrowInvalid("an entry of a map is NULL")
    keys, values = lists.values.flatten()
    _check_keys(lists.counts, keys)
    return list_array(result_type, lists.counts, [keys, values], lists.valid)


def _map_size(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    array = arguments[0]
    valid = valid_all([array])
    return pa.array(list_parts(array)[0], mask=None if valid is None else ~valid)


def _key_rule(result: pa.DataType | None) -> Rule:
    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 2, 2)
        value, key = arguments
        if not arrow.is_map(value.type):
            raise argument_error(name, arguments, "it takes a map and a key")
        common = common_type((value.type.key_type, key.type))
        target = pa.map_(common, value.type.item_type)
        return (cast_to(value, target), cast_to(key, common)), result or value.type.item_type

    return rule


def _find_key(arguments: Sequence[Values]) -> tuple[list[pa.Array], np.ndarray, np.ndarray]:
    """Return the arguments as arrays, and for each map the place of its key, and if it has it."""
    rows = rows_of(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    counts, (keys, _) = list_parts(arrays[0])
    codec = Codecs().codec(keys.type)
    codes, wanted = codec.encode(keys), codec.encode(arrays[1])
    owners = np.repeat(np.arange(rows), counts)
    hits = np.flatnonzero(codes == wanted[owners])
    places, found = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    places[owners[hits]], found[owners[hits]] = hits, True
    return arrays, places, found


def _map_value(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    arrays, places, found = _find_key(arguments)
    return list_parts(arrays[0])[1][1].take(pa.array(places, mask=~found))


def _map_contains(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    arrays, _, found = _find_key(arguments)
    valid = valid_all(arrays)
    return pa.array(found, mask=None if valid is None else ~valid)


def _map_concat_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, None)
    if not all(arrow.is_map(a.type) for a in arguments):
        raise argument_error(name, arguments, "it takes maps")
    target = common_type(a.type for a in arguments)
    return tuple(cast_to(a, target) for a in arguments), target


def _map_concat(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = rows_of(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    valid = valid_all(arrays)
    pieces = [list_parts(array) for array in arrays]
    owners = np.concatenate([np.repeat(np.arange(rows), counts) for counts, _ in pieces])
    order = np.argsort(owners, kind="stable")
    if valid is not None:
        order = order[valid[owners[order]]]
    keys, values = (
        pa.concat_arrays([parts[place] for _, parts in pieces]).take(pa.array(order))
        for place in (0, 1)
    )
    counts = np.bincount(owners[order], minlength=rows)
    _check_keys(counts, keys)
    return list_array(result_type, counts, [keys, values], valid)


FUNCTIONS = (
    Function(
        "make_struct",
        "the struct of the fields with the names a, c, … and the values b, d, …",
        _make_struct_rule,
        _make_struct,
    ),
    Function("struct_field", "the field b of the struct a", _field_rule, _field),
    Function("make_map", "the map of the keys a and the values b", _make_map_rule, _make_map),
    Function(
        "map_keys", "the keys of the map a", _map_rule(lambda t: pa.list_(t.key_type)), _map_part(0)
    ),
    Function(
        "map_values",
        "the values of the map a",
        _map_rule(lambda t: pa.list_(t.item_type)),
        _map_part(1),
    ),
    Function("map_entries", "the entries of the map a", _map_rule(entries_type), _map_entries),
    Function(
        "map_from_entries",
        "the map of the entries a: structs of a key and a value",
        _from_entries_rule,
        _from_entries,
    ),
    Function(
        "map_size", "the number of entries of the map a", _map_rule(lambda _: pa.int64()), _map_size
    ),
    Function("map_value", "the value of key b in the map a, or NULL", _key_rule(None), _map_value),
    Function(
        "map_contains", "true if the map a has the key b", _key_rule(pa.bool_()), _map_contains
    ),
    Function("map_concat", "the entries of all maps", _map_concat_rule, _map_concat),
)
