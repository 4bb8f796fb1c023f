"""Functions of structs and maps. A kernel works on all fields, keys or values of a column at once.

A map is a list of entries, and an entry is a struct of ``key`` and ``value``. A kernel raises an
error if it would create a map with a key that is NULL or occurs twice.

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
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Rule,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.list_masks import array_with_nulls, null_mask, valid_all
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import common_type

__all__ = ["FUNCTIONS"]


def _make_struct_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    names = [a.value for a in arguments[::2] if isinstance(a, Literal) and isinstance(a.value, str)]
    if not arguments or len(arguments) % 2 or len(names) != len(arguments) // 2:
        raise argument_error(name, arguments, "it takes names, which are constants, and values")
    if len({field_name.casefold() for field_name in names}) < len(names):
        raise argument_error(name, arguments, "a field has the name of another field")
    types = [value.type for value in arguments[1::2]]
    return arguments, pa.struct(list(zip(names, types, strict=True)))


def _make_struct(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    pairs = zip(arguments[1::2], result_type, strict=True)
    columns = [convert(fill_rows(values, rows), field.type) for values, field in pairs]
    return struct_array(result_type, columns, None, rows)


def _field_index(data_type: pa.DataType, name_or_position: object) -> int:
    """Return the index of a field, from 0; -1 if there is no such field.

    Args:
        data_type: The struct.
        name_or_position: The name of the field, in any case; or its position, from 1.
    """
    if isinstance(name_or_position, int):
        return name_or_position - 1 if 1 <= name_or_position <= data_type.num_fields else -1
    names = [field.name for field in data_type]
    if name_or_position in names:
        return names.index(name_or_position)
    folded_name = str(name_or_position).casefold()
    folded = [name.casefold() for name in names]
    return folded.index(folded_name) if folded_name in folded else -1


def _field_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    struct, field_name = arguments
    if not arrow.is_struct(struct.type):
        raise argument_error(name, arguments, "it takes a struct and the name of a field")
    if not isinstance(field_name, Literal) or field_name.value is None:
        raise argument_error(name, arguments, "the name of the field is a constant")
    index = _field_index(struct.type, field_name.value)
    if index < 0:
        known_names = ", ".join(field.name for field in struct.type) or "none"
        raise argument_error(
            name, arguments, f"no field {field_name.value!r}; the struct has: {known_names}"
        )
    index_literal: Expression = Literal(index, pa.int64())
    return (struct, index_literal), struct.type.field(index).type


def _field(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    struct, index_argument = fill_rows(arguments[0], rows), arguments[1]
    index = (
        index_argument.as_py()
        if isinstance(index_argument, pa.Scalar)
        else index_argument[0].as_py()
    )
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
    key_type, value_type = (a.type.value_type for a in arguments)
    if arrow.is_null(key_type):
        key_type = pa.string()
        arguments = (cast_to(arguments[0], pa.list_(key_type)), arguments[1])
    return arguments, pa.map_(key_type, value_type)


def _check_keys(lengths: np.ndarray, keys: pa.Array) -> None:
    """Raise ArrowInvalid if a key is NULL, or occurs twice in one map of ``lengths`` entries."""
    if keys.null_count:
        raise pa.ArrowInvalid("a key of a map is NULL")
    codes = Codecs().codec(keys.type).encode(keys)
    map_rows = np.repeat(np.arange(len(lengths)), lengths)  # the map of each key
    order = np.lexsort((codes, map_rows))
    is_repeated = (map_rows[order][1:] == map_rows[order][:-1]) & (
        codes[order][1:] == codes[order][:-1]
    )
    if is_repeated.any():
        key = keys[int(order[1:][is_repeated][0])]
        raise pa.ArrowInvalid(f"key {key} occurs twice in a map")


def _make_map(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    valid = valid_all(arrays)
    if valid is not None:
        arrays = [array.filter(pa.array(valid)) for array in arrays]
    keys, values = (Lists.of(array) for array in arrays)
    if (keys.lengths != values.lengths).any():
        row = int((keys.lengths != values.lengths).argmax())
        raise pa.ArrowInvalid(f"{keys.lengths[row]} keys and {values.lengths[row]} values of a map")
    _check_keys(keys.lengths, keys.values)
    counts = keys.lengths
    if valid is not None:
        counts = np.zeros(rows, np.int64)
        counts[valid] = keys.lengths
    return list_array(result_type, counts, [keys.values, values.values], valid)


def _map_part(part: int) -> Callable[[Sequence[Values], pa.DataType], Values]:
    """Return a kernel for the list of the keys (part 0) or of the values (part 1) of each map."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        array = arguments[0]
        counts, parts = list_parts(array)
        return list_array(result_type, counts, [parts[part]], valid_all([array]))

    return kernel


def _map_entries(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return arguments[0].cast(result_type)


def _from_entries_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    entry_type = arguments[0].type.value_type if is_list(arguments[0].type) else pa.null()
    if not arrow.is_struct(entry_type) or entry_type.num_fields != 2:
        raise argument_error(name, arguments, "it takes a list of structs with two fields")
    return arguments, pa.map_(entry_type.field(0).type, entry_type.field(1).type)


def _from_entries(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    lists = Lists.of(arguments[0])
    if lists.values.null_count:
        raise pa.ArrowInvalid("an entry of a map is NULL")
    keys, values = lists.values.flatten()
    _check_keys(lists.lengths, keys)
    return list_array(result_type, lists.lengths, [keys, values], lists.valid)


def _from_entries_or_null(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """As `_from_entries`, but NULL for a list in which an entry is NULL."""
    array = fill_rows(arguments[0], row_count(arguments))
    lists = Lists.of(array)
    if lists.values.null_count:
        has_null = np.zeros(len(array), np.bool_)
        has_null[lists.owners[null_mask(lists.values)]] = True
        array = array.take(pa.array(np.arange(len(array)), mask=has_null))
    return _from_entries([array], result_type)


def _map_size(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    counts, _ = list_parts(arguments[0])
    return array_with_nulls(counts, valid_all([arguments[0]]))


def _key_rule(result: pa.DataType | None) -> Rule:
    """Return the rule of a function of a map and a key.

    Args:
        result: The type of the result; None for the type of the map's values.
    """

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 2, 2)
        map_argument, key = arguments
        if not arrow.is_map(map_argument.type):
            raise argument_error(name, arguments, "it takes a map and a key")
        value_type = map_argument.type.item_type
        key_type = common_type((map_argument.type.key_type, key.type))
        typed = cast_to(map_argument, pa.map_(key_type, value_type)), cast_to(key, key_type)
        return typed, result or value_type

    return rule


def _find_key(arguments: Sequence[Values]) -> tuple[list[pa.Array], np.ndarray, np.ndarray]:
    """Look up a key in each map.

    Returns:
        The map and the key as arrays; the position of each map's entry among all entries, 0 if
        there is none; and a mask of the maps that have the key.
    """
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    counts, (keys, _) = list_parts(arrays[0])
    codec = Codecs().codec(keys.type)
    codes, wanted_codes = codec.encode(keys), codec.encode(arrays[1])
    map_rows = np.repeat(np.arange(rows), counts)
    matches = np.flatnonzero(codes == wanted_codes[map_rows])
    positions, has_key = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    positions[map_rows[matches]], has_key[map_rows[matches]] = matches, True
    return arrays, positions, has_key


def _map_value(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    (maps, _), positions, has_key = _find_key(arguments)
    _, (_, values) = list_parts(maps)
    return values.take(pa.array(positions, mask=~has_key))


def _map_contains(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    arrays, _, has_key = _find_key(arguments)
    return array_with_nulls(has_key, valid_all(arrays))


def _map_concat_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, None)
    if not all(arrow.is_map(a.type) for a in arguments):
        raise argument_error(name, arguments, "it takes maps")
    target = common_type(a.type for a in arguments)
    return tuple(cast_to(a, target) for a in arguments), target


def _map_concat(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    valid = valid_all(arrays)
    counts, keys, values = _all_entries(arrays, valid)
    _check_keys(counts, keys)
    return list_array(result_type, counts, [keys, values], valid)


def _all_entries(
    arrays: Sequence[pa.Array], valid: np.ndarray | None
) -> tuple[np.ndarray, pa.Array, pa.Array]:
    """Return the entries of several maps in each row: their counts, keys and values.

    Args:
        arrays: The maps.
        valid: A mask of the rows to keep; None to keep all. Other rows have no entries.
    """
    maps = [list_parts(array) for array in arrays]
    rows = len(arrays[0])
    map_rows = np.concatenate([np.repeat(np.arange(rows), counts) for counts, _ in maps])
    order = np.argsort(map_rows, kind="stable")
    if valid is not None:
        order = order[valid[map_rows[order]]]
    keys, values = (
        pa.concat_arrays([parts[part] for _, parts in maps]).take(pa.array(order))
        for part in (0, 1)
    )
    return np.bincount(map_rows[order], minlength=rows), keys, values


def _map_merge(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Join the entries of maps; a key has its last value, at the position of its first entry."""
    rows = row_count(arguments)
    arrays = [fill_rows(values, rows) for values in arguments]
    counts, keys, values = _all_entries(arrays, None)
    codes = Codecs().codec(keys.type).encode(keys)
    map_rows = np.repeat(np.arange(rows), counts)
    order = np.lexsort((codes, map_rows))  # stable: the entries of a key stay in their order
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(codes[order]) != 0) | (np.diff(map_rows[order]) != 0)
    is_last = np.append(is_first[1:], is_first[:1])
    first, last = order[is_first], order[is_last]  # the first and last entry of each key
    by_position = np.argsort(first)
    first, last = first[by_position], last[by_position]
    parts = [keys.take(pa.array(first)), values.take(pa.array(last))]
    merged_counts = np.bincount(map_rows[first], minlength=rows)
    are_all_null = np.logical_and.reduce([null_mask(array) for array in arrays])
    valid = ~are_all_null if are_all_null.any() else None
    return list_array(result_type, merged_counts, parts, valid)


def _histogram_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    if not is_list(arguments[0].type) or arrow.is_null(arguments[0].type.value_type):
        raise argument_error(name, arguments, "it takes a list of values of a type")
    return arguments, pa.map_(arguments[0].type.value_type, pa.uint64())


def _histogram(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    """Count the equal neighbours of each list; NULL for a list without values."""
    lists = Lists.of(fill_rows(arguments[0], row_count(arguments)))
    is_valid = lists.values.is_valid().to_numpy(zero_copy_only=False)
    values, map_rows = lists.values.filter(pa.array(is_valid)), lists.owners[is_valid]
    codes = Codecs().codec(values.type).encode(values)
    is_first = np.ones(len(codes), np.bool_)
    is_first[1:] = (codes[1:] != codes[:-1]) | (map_rows[1:] != map_rows[:-1])
    starts = np.flatnonzero(is_first)
    counts = pa.array(np.diff(np.append(starts, len(codes))), pa.uint64())
    lengths = np.bincount(map_rows[starts], minlength=len(lists.lengths))
    return list_array(result_type, lengths, [values.take(pa.array(starts)), counts], lengths > 0)


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
        "map_from_entries_or_null",
        "the map of the entries a: structs of a key and a value; NULL if an entry is NULL",
        _from_entries_rule,
        _from_entries_or_null,
    ),
    Function(
        "map_size", "the number of entries of the map a", _map_rule(lambda _: pa.int64()), _map_size
    ),
    Function("map_value", "the value of key b in the map a, or NULL", _key_rule(None), _map_value),
    Function(
        "map_contains", "true if the map a has the key b", _key_rule(pa.bool_()), _map_contains
    ),
    Function("map_concat", "the entries of all maps", _map_concat_rule, _map_concat),
    Function(
        "map_merge",
        "the entries of all maps; the last one of a key counts, and NULL has none",
        _map_concat_rule,
        _map_merge,
    ),
    Function(
        "sorted_list_histogram",
        "the map from each value of the sorted list a to its number; NULL without values",
        _histogram_rule,
        _histogram,
    ),
)
