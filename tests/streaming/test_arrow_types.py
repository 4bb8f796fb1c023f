"""The table of types has unique names, and each consumer of types handles all of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import SchemaError
from circuits.types.arrow_types import DDL_TYPES, SQL_TYPES, Family, family_of, type_row, value_type
from circuits.types.codecs.codec import Codecs
from circuits.types.codecs.intervals import INTERVAL
from circuits.types.ddl import field_of
from circuits.types.functions.casting.interval_texts import cast_intervals
from circuits.types.functions.type_rules import common_type, kernel_type
from streaming.distributed.execution.xxhash import xxhash64
from streaming.errors import FeedError, StreamingError
from streaming.sources.change_feeds.physical_types import physical_type
from streaming.state.parquet import encode_parquet, read_parquet
from streaming.targets.column_types import convert_columns, lake_type
from streaming.targets.dialect import iso_texts

SUPPORTED = [
    *(pa.null(), pa.bool_(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.decimal32(5, 2), pa.decimal64(15, 3), pa.decimal128(38, 4), pa.decimal256(76, 3)),
    *(pa.month_day_nano_interval(), pa.dictionary(pa.int8(), pa.string())),
]
NESTED = [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.int8())]
UNSUPPORTED = [
    pa.dense_union([pa.field("a", pa.int8())]),
]
#: For each function, the types that it refuses, and its error.
REFUSED = {
    physical_type: ({pa.float16(), INTERVAL, *NESTED}, FeedError),
    xxhash64: ({pa.binary_view(), pa.decimal256(76, 3), INTERVAL, *NESTED}, StreamingError),
}


@pytest.mark.parametrize("type_", [*SUPPORTED, *NESTED], ids=str)
def test_every_supported_type_has_a_codec_and_is_handled_by_every_consumer(type_):
    assert family_of(type_) is not Family.UNSUPPORTED
    array = pa.array([None, None], type_)
    codec = Codecs().codec(type_)
    assert codec.decode(codec.encode(array)).type == type_
    assert family_of(kernel_type(type_)) is family_of(value_type(type_))
    values = array.dictionary_decode() if pa.types.is_dictionary(type_) else array
    assert cast_intervals(values, lake_type(type_)).null_count == 2
    assert common_type([type_, pa.null()]) == type_
    for function, argument in ((physical_type, type_), (xxhash64, [array])):
        types, error = REFUSED[function]
        if type_ in types:
            with pytest.raises(error, match="type"):
                function(argument)
        else:
            function(argument)


@pytest.mark.parametrize("type_", UNSUPPORTED, ids=str)
def test_a_type_that_is_not_in_the_table_is_not_a_column_type(type_):
    assert family_of(type_) is Family.UNSUPPORTED
    for column in (type_, pa.list_(type_)):
        with pytest.raises(SchemaError, match="a column cannot be of type"):
            Codecs().codec(column)


def test_parquet_files_keep_intervals_and_targets_have_their_text():
    intervals = [pa.MonthDayNano([14, -3, 5_000]), None, pa.MonthDayNano([0, 0, 0])]
    table = pa.table({"i": pa.array(intervals, INTERVAL)})
    (file,) = encode_parquet(table)
    assert read_parquet(file, "file") == table
    text = convert_columns(table, lake_type, subject="table")["i"]
    assert text.to_pylist() == ["1 year 2 months -3 days 00:00:00.000005", None, "00:00:00"]
    assert iso_texts(table["i"]) == text.to_pylist()


def test_an_interval_in_a_list_or_with_a_part_of_a_microsecond_is_an_error():
    with pytest.raises(SchemaError, match="cannot contain intervals"):
        Codecs().codec(pa.list_(INTERVAL))
    with pytest.raises(SchemaError, match="whole microseconds"):
        Codecs().codec(INTERVAL).encode(pa.array([pa.MonthDayNano([0, 0, 1])]))


def test_a_name_stands_for_one_type():
    rows = [type_row(type_) for type_ in SUPPORTED]
    for names, table in (
        ([name for row in rows for name in row.ddl], DDL_TYPES),
        ([name for row in rows for name in row.sql], SQL_TYPES),
    ):
        assert set(names) <= table.keys()
    for name, type_ in DDL_TYPES.items():
        assert field_of("a", name).type == type_
    assert {"TIMESTAMP", "TIMESTAMPTZ", "VARCHAR", "UBIGINT"} <= SQL_TYPES.keys()
