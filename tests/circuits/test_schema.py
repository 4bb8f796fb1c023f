"""Typed schemas against lists and Counters of Python rows."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.errors import SchemaError
from circuits.plan.nodes import Field
from circuits.schema import Schema
from circuits.types.codecs.codec import NULL, Codec, Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.errors import WeightError, WeightOverflowError
from tests.generators.strategies import LAW

COLUMNS = {
    "number": (pa.int64(), st.integers(-2, 2)),
    "small": (pa.int8(), st.integers(-2, 2)),
    "name": (pa.large_string(), st.text("ab", max_size=2)),
    "blob": (pa.binary(), st.binary(max_size=1)),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(datetime.date(2000, 1, 1), datetime.date(2000, 1, 3))),
    "price": (pa.decimal128(9, 1), st.sampled_from([Decimal("0.1"), Decimal("-2.0")])),
    "total": (pa.decimal128(38, 1), st.sampled_from([Decimal("0.1"), Decimal("-2.0")])),
    "ratio": (pa.float64(), st.sampled_from([0.5, -1.0])),
}


def schema(**types: pa.DataType) -> Schema:
    return Schema.of("r", pa.schema(list(types.items())))


def assert_refused(target: Schema, table: pa.Table, words: str, error: type = SchemaError) -> None:
    codecs = Codecs()
    with pytest.raises(error, match=words):
        target.to_zset(table, codecs)
    assert not any(codecs.lengths().values())


@settings(LAW)
@given(st.data())
def test_a_table_is_read_back_as_the_sum_of_its_rows(data):
    names = data.draw(st.lists(st.sampled_from(list(COLUMNS)), unique=True))
    target = schema(**{name: COLUMNS[name][0] for name in names})
    weights = data.draw(st.booleans())
    codecs = Codecs()
    for _ in range(2):
        values = [st.none() | COLUMNS[name][1] for name in names]
        rows = data.draw(st.lists(st.tuples(st.integers(-2, 2), *values), max_size=9))
        order = data.draw(st.permutations([*names, *(["weight"] if weights else [])]))
        arrays = {
            name: pa.array([row[names.index(name) + 1] for row in rows], COLUMNS[name][0])
            for name in names
        }
        arrays["weight"] = pa.array([row[0] for row in rows], pa.int16())
        if not order:
            table = pa.table({"weight": arrays["weight"]}).select([])
        else:
            table = pa.table({name: arrays[name] for name in order})
        expected: Counter = Counter()
        for weight, *row in rows:
            expected[tuple(row)] += weight if weights else 1
        result = target.to_table(target.to_zset(table, codecs), codecs)
        assert result.schema == target.arrow
        result.validate(full=True)
        actual = {tuple(row[name] for name in names): row["weight"] for row in result.to_pylist()}
        assert len(actual) == len(result)
        assert actual == {row: weight for row, weight in expected.items() if weight}


def test_a_schema_has_columns_fields_arity_and_the_schema_of_its_deltas():
    fields = pa.schema([pa.field("a", pa.string(), nullable=False), ("b", pa.int8())])
    target = Schema.of("r", fields)
    assert target.columns == ("a", "b")
    assert target.fields == (Field("a", pa.string(), nullable=False), Field("b", pa.int8()))
    assert target.arity == 2
    assert target.arrow_columns == fields
    assert target.arrow == pa.schema([*fields, ("weight", pa.int64())])
    assert Schema("r", target.fields) == target


def test_rows_that_are_dicts_need_no_weight():
    target, codecs = Schema.of("r", "a string, b bigint"), Codecs()
    assert target.to_zset([{"a": "x"}, {"a": "x", "b": 2}], codecs).weights.tolist() == [1, 1]
    assert target.to_zset([{"a": "x", "weight": -1}], codecs).weights.tolist() == [-1]
    assert not len(target.to_zset([], codecs))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([("weight", pa.int64())], "'weight' is reserved for the weight of a row"),
        ([("a", pa.int64()), ("a", pa.int8())], "occurs twice"),
        (
            [("a", pa.list_view(pa.int8()))],
            "relation 'r': column 'a': a column cannot be of type list_view",
        ),
    ],
)
def test_an_invalid_schema_is_refused(fields, words):
    with pytest.raises(SchemaError, match=words):
        Schema.of("r", pa.schema(fields))


TEXT = schema(a=pa.string(), b=pa.int64())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            {"a": ["x"]},
            r"no column 'b'; its columns: a; the relation needs a, b and may have weight",
        ),
        ({"a": ["x"], "b": [1], "c": [2]}, "surplus or repeated columns"),
        ({"a": ["x"], "b": ["1"]}, "column 'b': the type is string, declared is int64"),
        ({"a": ["x"], "b": [1.0]}, "column 'b': the type is double, declared is int64"),
        ({"a": ["x"], "b": [-(2**63)]}, "column 'b': value -9223372036854775808 of type int64"),
        ({"a": ["x"], "b": pa.array([2**64 - 1], pa.uint64())}, "not every value fits"),
        ({"a": [b"x"], "b": [1]}, "column 'a': the type is binary, declared is string"),
        ({"a": ["x"], "b": [1], "weight": [1.0]}, "column 'weight' is of type double"),
        ({"a": ["x", "y"], "b": [1, 2], "weight": [1, None]}, "holds 1 NULL of 2 values"),
        (
            {"a": ["x"], "b": [1], "weight": pa.array([2**63], pa.uint64())},
            "column 'weight' does not fit int64",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_encoded(table, words):
    assert_refused(TEXT, pa.table(table), words)


def test_a_repeated_column_is_refused():
    table = pa.Table.from_arrays([pa.array(["x"]), pa.array([1]), pa.array([1])], ["a", "b", "b"])
    assert_refused(TEXT, table, "surplus or repeated columns")


def test_weights_out_of_bounds_are_refused():
    numbers = schema(b=pa.int64())
    assert_refused(
        numbers,
        pa.table({"b": [1], "weight": [-(2**63)]}),
        "is less than -9223372036854775807",
        WeightError,
    )
    table = pa.table({"b": [1, 1], "weight": [2**63 - 1, 1]})
    assert_refused(numbers, table, "add up", WeightOverflowError)


@pytest.mark.parametrize("value", [None, "dictionary"])
def test_null_in_a_required_column_is_refused(value):
    target = Schema.of("r", pa.schema([pa.field("a", pa.string(), nullable=False)]))
    column = pa.array(["x", None], pa.string())
    if value == "dictionary":  # the NULL is among the values
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1]), column)
    words = "column 'a' holds 1 NULL of 2 values and is declared not null"
    assert_refused(target, pa.table({"a": column}), words)
    assert len(target.to_zset(pa.table({"a": ["x"]}), Codecs())) == 1


MIDNIGHT = datetime.datetime(2000, 1, 2)
DICTIONARY = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    ("values", "declared", "value"),
    [
        (pa.array([1], pa.int32()), pa.int64(), 1),
        (pa.array([1], pa.uint64()), pa.int8(), 1),
        (pa.array([1], pa.int64()), pa.float64(), 1.0),
        (pa.array([1], pa.int64()), pa.decimal64(3, 1), Decimal("1.0")),
        (pa.array([100], pa.int64()), pa.decimal64(3, -2), Decimal(100)),
        (pa.array([0.5], pa.float32()), pa.float64(), 0.5),
        (pa.array([Decimal("1.50")]), pa.decimal256(60, 1), Decimal("1.5")),
        (pa.array(["x"]), pa.large_string(), "x"),
        (pa.array(["x"], pa.string_view()), pa.string(), "x"),
        (pa.array(["x"]).dictionary_encode(), pa.string(), "x"),
        (pa.array(["x"]), DICTIONARY, "x"),
        (pa.array(["x"]), pa.dictionary(pa.int8(), pa.string_view()), "x"),
        (pa.array(["x"], pa.string_view()).dictionary_encode(), pa.large_string(), "x"),
        (pa.array([1], pa.int8()).dictionary_encode(), pa.int64(), 1),
        (pa.array([b"xy"]), pa.binary(2), b"xy"),
        (pa.array([b"xy"], pa.binary(2)), pa.binary_view(), b"xy"),
        (pa.array([MIDNIGHT.date()]), pa.timestamp("us"), MIDNIGHT),
        (pa.array([MIDNIGHT.date()]), pa.date64(), MIDNIGHT.date()),
        (pa.array([MIDNIGHT], pa.timestamp("us")), pa.timestamp("s"), MIDNIGHT),
        (pa.array([datetime.time(1)], pa.time64("us")), pa.time32("s"), datetime.time(1)),
        (
            pa.array([MIDNIGHT], pa.timestamp("us", "UTC")),
            pa.timestamp("ms", "Asia/Tokyo"),
            MIDNIGHT.replace(tzinfo=datetime.UTC),
        ),
        (pa.nulls(1), pa.decimal128(38, 2), None),
        (pa.nulls(1), DICTIONARY, None),
    ],
)
def test_a_column_of_another_type_is_cast_where_no_value_can_change(values, declared, value):
    target, codecs = schema(a=declared), Codecs()
    for column in (values, pa.chunked_array([], values.type)):
        zset = target.to_zset(pa.table({"a": column}), codecs)
        table = target.to_table(zset, codecs)
        assert table.column("a").to_pylist() == [value] * len(column)
        assert table.schema.field("a").type == declared


@pytest.mark.parametrize(
    ("values", "declared", "words"),
    [
        (pa.array([300]), pa.int8(), "300 not in range"),
        (pa.array([2**53 + 1]), pa.float64(), "9007199254740993 not in range"),
        (pa.array([1]), pa.float16(), "may change values"),
        (pa.array([1000]), pa.decimal64(3, 1), "does not fit in precision"),
        (pa.array([Decimal("0.15")]), pa.decimal64(3, 1), "data loss"),
        (pa.array([0.5]), pa.float32(), "may change values"),
        (pa.array([0.5]), pa.decimal64(3, 1), "may change values"),
        (pa.array([True]), pa.int64(), "may change values"),
        (pa.array([1]), pa.bool_(), "may change values"),
        (pa.array([1]), pa.string(), "may change values"),
        (pa.array(["2000-01-01"]), pa.date32(), "may change values"),
        (pa.array(["x"]), pa.null(), "may change values"),
        (pa.array([[1]]), pa.int64(), "may change values"),
        (pa.array([b"xyz"]), pa.binary(2), "from 3 to 3 bytes"),
        (pa.array([MIDNIGHT]), pa.timestamp("us", "UTC"), "may change values"),
        (pa.array([MIDNIGHT], pa.timestamp("us", "UTC")), pa.timestamp("us"), "may change"),
        (pa.array([MIDNIGHT]), pa.date32(), "may change values"),
        (pa.array([1], pa.timestamp("us")), pa.timestamp("s"), "would lose data: 1"),
        (pa.array([2**60], pa.timestamp("s")), pa.timestamp("ns"), "out of bounds"),
        (pa.array([str(number) for number in range(200)]), DICTIONARY, "not every value fits"),
    ],
)
def test_a_cast_that_may_change_a_value_is_refused(values, declared, words):
    target = schema(a=declared)
    assert_refused(target, pa.table({"a": values}), f"relation 'r': column 'a': .*{words}")


def test_nulls_are_one_value_that_sorts_first():
    zset = schema(a=pa.int64()).to_zset(pa.table({"a": [1, None, None]}), Codecs())
    assert zset.to_dict() == {(NULL,): 2, (1,): 1}


def test_codes_of_another_circuit_are_refused_with_the_name_of_the_column():
    zset = TEXT.to_zset(pa.table({"a": ["x"], "b": [1]}), Codecs())
    with pytest.raises(SchemaError, match=r"relation 'r': column 'a': .*code 0 is outside"):
        TEXT.to_table(zset, Codecs())


PRICES = st.sampled_from([Decimal("0.1"), Decimal(-2), Decimal(10**7)])
TYPES_OF_JOINED = [pa.int64(), pa.string(), pa.decimal128(9, 1), pa.decimal128(38, 1), pa.bool_()]


@given(st.data())
def test_columns_of_one_type_have_the_codes_of_each_column_alone(data):
    values = {pa.int64(): st.integers(-2, 2), pa.string(): st.text("ab", max_size=2)}
    values |= {pa.bool_(): st.booleans()}
    rows = data.draw(st.integers(1, 3))
    columns = {
        f"{name}{number}": pa.array(
            data.draw(
                st.lists(st.none() | values.get(data_type, PRICES), min_size=rows, max_size=rows)
            ),
            data_type,
        )
        for number, data_type in enumerate(TYPES_OF_JOINED)
        for name in "abc"
    }
    codecs = Codecs()
    target, table = schema(**{n: array.type for n, array in columns.items()}), pa.table(columns)
    codes, _ = target.to_codes(table, codecs)
    for column, array in zip(codes, columns.values(), strict=True):
        assert column.tolist() == codecs.codec(array.type).find(array).tolist()
    decoded = target.to_table(target.to_zset(table, codecs), codecs).to_pylist()
    weights = Counter({tuple(row.values())[:-1]: row["weight"] for row in decoded})
    assert weights == Counter(tuple(row.values()) for row in table.to_pylist())


def test_few_rows_take_one_encoding_per_type_and_an_error_names_its_column(monkeypatch):
    encoded = []
    encode = Codec.encode
    monkeypatch.setattr(
        Codec, "encode", lambda codec, array: encoded.append(1) or encode(codec, array)
    )
    codecs = Codecs()
    target = schema(a=pa.int64(), s=pa.string(), b=pa.int64(), t=pa.string(), u=pa.string())
    table = pa.table({"a": [1], "s": ["x"], "b": [2], "t": ["y"], "u": ["z"]})
    target.to_codes(table, codecs, read_columns={0, 1, 3})
    assert len(encoded) == 2
    assert codecs.lengths()["text"] == 2  # nobody reads u
    with pytest.raises(SchemaError, match="column 'b'"):
        target.to_codes(table.set_column(2, "b", pa.array([-(2**63)])), codecs)
    with pytest.raises(SchemaError, match="column 't'"):
        target.to_table(ZSet.from_rows([(1, 0, 2, 99, 0)]), codecs)


def test_tables_of_several_schemas_take_turns():
    target = schema(number=pa.int64(), name=pa.string())
    codecs = Codecs()
    for _ in range(2):
        for table in (
            pa.table({"number": [1], "name": ["x"]}),
            pa.table({"name": ["x"], "weight": [1], "number": [1]}),
            pa.table({"number": pa.array([1], pa.int8()), "name": ["x"]}),
            pa.table(
                {"number": pa.array([1], pa.int8()), "name": pa.array(["x"], pa.string_view())}
            ),
        ):
            assert target.to_zset(table, codecs).to_dict() == {(1, 0): 1}
        with pytest.raises(SchemaError, match="no column 'name'"):
            target.to_zset(pa.table({"number": [1]}), codecs)
        with pytest.raises(SchemaError, match="surplus or repeated columns 'other'"):
            target.to_zset(pa.table({"number": [1], "name": ["x"], "other": [1]}), codecs)
    required = Schema.of("r", "number BIGINT NOT NULL")
    assert required.to_zset(pa.table({"number": [1]}), codecs).to_dict() == {(1,): 1}
    with pytest.raises(SchemaError, match="declared not null"):
        required.to_zset(pa.table({"number": pa.array([None], pa.int64())}), codecs)


@given(
    rows=st.lists(
        st.tuples(
            *(st.sampled_from([None, -3, 0, 7]) for _ in range(3)), st.text("ab", max_size=2)
        ),
        min_size=1,
        max_size=8,
    ),
    cut=st.integers(0, 8),
)
def test_a_table_in_several_chunks_has_the_codes_of_one_chunk(
    rows: list[tuple[int | None, int | None, int | None, str]], cut: int
) -> None:
    target = schema(a=pa.int64(), b=pa.int64(), c=pa.int32(), d=pa.string(), e=pa.string())
    whole = pa.table([*zip(*rows, strict=True), [row[3] for row in rows]], target.arrow_columns)
    parts = pa.concat_tables([whole.slice(0, cut), whole.slice(cut), whole.slice(0, 0)])
    assert target.to_zset(parts, Codecs()) == target.to_zset(whole, Codecs())


def test_columns_of_a_type_in_several_chunks_are_encoded_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[int] = []
    encode = Codec.encode

    def record(codec: Codec, array: pa.Array | pa.ChunkedArray) -> object:
        encoded.append(len(array))
        return encode(codec, array)

    monkeypatch.setattr(Codec, "encode", record)
    target = schema(a=pa.int64(), b=pa.int64(), c=pa.int64())
    rows = pa.table({name: [1, 2] for name in "abc"})
    target.to_zset(pa.concat_tables([rows, rows]), Codecs())
    assert encoded == [12]


def test_a_layout_that_another_thread_replaces_is_not_used_for_this_table():
    schema = Schema.of("r", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table = pa.table({"a": [1], "b": [2]})
    other = pa.table({"b": [2], "a": [1]})
    schema.to_zset(other, Codecs())
    ((other_schema, other_layout),) = schema._last_layout

    class ReplacedSchema:
        def equals(self, another: pa.Schema) -> bool:
            schema._last_layout[:] = [(other_schema, other_layout)]
            return True

    schema.to_zset(table, Codecs())
    ((_, layout),) = schema._last_layout
    schema._last_layout[:] = [(ReplacedSchema(), layout)]
    assert schema.to_zset(table, Codecs()).to_dict() == {(1, 2): 1}
