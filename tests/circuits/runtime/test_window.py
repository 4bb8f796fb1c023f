"""Window functions: the law of the operator, frames against a naive oracle, and counted work."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.plan.nodes import Field, Order, Scan
from circuits.plan.window import Frame, Window, WindowCall
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.windows import window as window_module
from circuits.runtime.operators.windows.window import WindowOperator
from circuits.types.codecs.codec import NULL, Codecs
from dbsp_wcoj import Relations, ZSet
from dbsp_wcoj.kernels.storage.row_ranges import read_ranges
from dbsp_wcoj.storage import row_ranges
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.values.bitcast import values_of
from tests.generators.plans import encode, windows
from tests.oracles.naive_plan import bag, evaluate_plan

INT = pa.int64()
ROWS = Scan("r", (Field("k", INT), Field("t", INT), Field("x", INT)))
LAW = settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# A cost of a row interval with which every step reads intervals, or whole partitions.
ALWAYS_INTERVALS, NEVER_INTERVALS = -(10**9), 10**9
SMALL = st.sampled_from([None, 0, 1, 2, 3, 5])
TIMES = st.one_of(st.none(), st.integers(0, 12))
CONTEXT = StepContext(False, Relations().stage({}))


def rows_of(plan: Window, zset: ZSet) -> Counter[tuple[object, ...]]:
    """Return the rows of a result as Python values."""
    columns = []
    for field, codes in zip(plan.fields, zset.row_array, strict=True):
        if pa.types.is_floating(field.type):
            values = values_of(codes, np.dtype(np.float64)).tolist()
        else:
            values = codes.tolist()
        pairs = zip(codes.tolist(), values, strict=True)
        columns.append([None if code == NULL else value for code, value in pairs])
    rows = zip(*columns, strict=True)
    return bag(dict(zip(rows, zset.weight_array.tolist(), strict=True)))


def step(operator: WindowOperator, delta: ZSet) -> ZSet:
    change, staged = operator.prepare([delta], CONTEXT)
    if staged is not None:
        staged.commit()
    return change


@st.composite
def running_extremes(draw: st.DrawFn) -> Window:
    """A window of running mins and maxes, with or without another function of nearby rows."""
    calls = []
    for place in range(draw(st.integers(1, 2))):
        mode = draw(st.sampled_from(["rows", "range"]))
        frame = Frame(mode, None, draw(st.integers(-2, 2)))
        function, column = draw(st.sampled_from(["min", "max"])), draw(st.integers(1, 2))
        calls.append(WindowCall(function, (column,), INT, f"w{place}", frame))
    if draw(st.booleans()):
        calls.append(WindowCall("lag", (2,), INT, "near", number=draw(st.integers(-2, 2))))
    order = Order(draw(st.integers(1, 2)), draw(st.booleans()), draw(st.booleans()))
    return Window(ROWS, draw(st.sampled_from([(), (0,)])), (order,), tuple(calls))


def check_law(
    data: st.DataObject,
    overhead: int,
    *,
    least_weight: int,
    plans: st.SearchStrategy[Window] | None = None,
) -> None:
    """Σ prepare(d_t) = evaluate(Σ d_t) = the oracle, after every step."""
    plan = data.draw(windows(ROWS, fractions=True) if plans is None else plans)
    operator = WindowOperator(plan, Codecs())
    inputs, output = ZSet.empty(3), ZSet.empty(len(plan.fields))
    total: Counter[tuple[object, ...]] = Counter()
    row = st.tuples(st.sampled_from([None, 1]), TIMES, SMALL)
    # A load, then small changes of it, some of which delete rows of the load.
    for number in range(data.draw(st.integers(1, 5))):
        present = st.sampled_from(sorted(total, key=repr)) if total else row
        most = 3 if number else 16
        rows = data.draw(st.lists(st.one_of(row, present), min_size=1, max_size=most))
        amounts = []
        for changed_row in rows:
            least = max(-2, least_weight - total[changed_row])
            amounts.append(data.draw(st.integers(least, 2).filter(bool)))
            total[changed_row] += amounts[-1]
        delta = encode(rows, amounts)
        inputs += delta
        with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", overhead):
            output += step(operator, delta)
        assert output == operator.evaluate([inputs])
        expected = evaluate_plan(plan, {"r": {row: w for row, w in total.items() if w}})
        assert rows_of(plan, output) == expected


intervals_or_partitions = given(st.data(), st.sampled_from([ALWAYS_INTERVALS, NEVER_INTERVALS]))


@LAW
@intervals_or_partitions
def test_summed_deltas_are_the_window_of_the_summed_input(data, overhead):
    check_law(data, overhead, least_weight=0)


@LAW
@intervals_or_partitions
def test_rows_of_negative_weight_are_ignored_until_they_are_positive(data, overhead):
    check_law(data, overhead, least_weight=-2)


@settings(LAW, max_examples=120)
@given(st.data())
def test_running_extremes_keep_the_law(data):
    check_law(data, ALWAYS_INTERVALS, least_weight=0, plans=running_extremes())


@settings(LAW, max_examples=40)
@given(st.data())
def test_running_extremes_keep_the_law_with_rows_of_negative_weight(data):
    overhead = data.draw(st.sampled_from([ALWAYS_INTERVALS, NEVER_INTERVALS]))
    check_law(data, overhead, least_weight=-2, plans=running_extremes())


@st.composite
def group_frames(draw: st.DrawFn) -> Window:
    """A window of frames of mode GROUPS, with or without a frame of another mode."""
    bound, calls = st.integers(-2, 2), []
    for place, mode in enumerate(
        draw(st.sampled_from([["groups"], ["groups", "range"], ["groups", "rows"]]))
    ):
        start, end = sorted([draw(bound), draw(bound)])
        exclude = draw(st.sampled_from(["none", "none", "group", "ties"]))
        function = draw(st.sampled_from(["sum", "count", "min", "first_value", "last_value"]))
        is_running = exclude == "none" and draw(st.booleans())
        frame = Frame(mode, None if is_running else start, end, exclude)
        calls.append(WindowCall(function, (2,), INT, f"w{place}", frame))
    order = Order(draw(st.integers(1, 2)), draw(st.booleans()), draw(st.booleans()))
    return Window(ROWS, draw(st.sampled_from([(), (0,)])), (order,), tuple(calls))


@settings(LAW, max_examples=150)
@given(st.data())
def test_frames_of_groups_keep_the_law(data):
    check_law(data, ALWAYS_INTERVALS, least_weight=0, plans=group_frames())


MIXED_FRAMES = [
    (Frame("rows", -1, 0), Frame("range", 0, 2)),
    (Frame("groups", 0, 1), Frame("range", -1, 0)),
    (Frame("rows", 0, 1), Frame("groups", -1, 0)),
]


@pytest.mark.parametrize("frames", MIXED_FRAMES)
@pytest.mark.parametrize("load", [[0, 1, 2, None], [None, 3, 50, 60]])
def test_frames_by_position_and_by_value_in_one_window(load, frames):
    calls = [WindowCall("sum", (1,), INT, frame.mode, frame) for frame in frames]
    operator = WindowOperator(Window(ROWS, (), (Order(2),), tuple(calls)), Codecs())
    inputs, output = ZSet.empty(3), ZSet.empty(5)

    for rows in ([(1, 1, x) for x in load], [(1, 5, 3)], [(1, 7, None)], [(1, 9, 58)]):
        inputs += encode(rows, [1] * len(rows))
        with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", ALWAYS_INTERVALS):
            output += step(operator, encode(rows, [1] * len(rows)))
        assert output == operator.evaluate([inputs])


NUMBERS = np.arange(1, 301)
LOADED = ZSet.from_columns([np.zeros(300, np.int64), 10 * NUMBERS, NUMBERS * 7 % 1000])
# Near these deleted rows `RowRanges.neighbour` goes further back than from 305.
FAR_CHANGE = encode(
    [(0, 305, -1), (0, 605, -2), *((0, t, t // 10 * 7) for t in (700, 710, 720))],
    [1, 1, -1, -1, -1],
)


@pytest.mark.parametrize(
    "calls",
    [
        [WindowCall("lead", (2,), INT, "w", number=10)],
        [
            WindowCall("min", (2,), INT, "m", Frame("rows", None, 0)),
            WindowCall("lead", (2,), INT, "w", number=10),
        ],
    ],
    ids=["lead", "running min and lead"],
)
def test_a_later_change_whose_interval_begins_before_an_earlier_one(calls):
    plan = Window(ROWS, (0,), (Order(1),), tuple(calls))
    operator = WindowOperator(plan, Codecs())
    output = step(operator, LOADED) + step(operator, FAR_CHANGE)
    assert output == operator.evaluate([LOADED + FAR_CHANGE])
    assert states_of(operator) == states_of(loaded_operator(plan, LOADED + FAR_CHANGE))


@pytest.mark.parametrize("order", [Order(1, d, n) for d in (False, True) for n in (False, True)])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("frame", [Frame("range", 0, 5), Frame("range", -5, 0)])
@pytest.mark.parametrize("changed", [0, 3, None])
def test_a_change_near_the_greatest_number_reaches_the_rows_near_it(order, sign, frame, changed):
    call = WindowCall("sum", (2,), INT, "w", frame)
    operator = WindowOperator(Window(ROWS, (0,), (order,), (call,)), Codecs())
    greatest = 2**63 - 1
    near = [(0, sign * (greatest - distance), distance) for distance in (0, 3, 4, 8, 9)]
    load = encode([*near, (0, None, 1), *((0, t, t) for t in range(100))], [1] * 106)
    time = None if changed is None else sign * (greatest - changed)
    delta = encode([(0, time, 70)], [1])
    output = step(operator, load)
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", ALWAYS_INTERVALS):
        output += step(operator, delta)
    assert output == operator.evaluate([load + delta])


@pytest.mark.parametrize("distinct", [False, True])
def test_only_sums_of_affected_rows_must_fit(distinct):
    call = WindowCall("sum", (2,), INT, "w", Frame("rows", -2, 0), distinct=distinct)
    operator = WindowOperator(Window(ROWS, (0,), (Order(1),), (call,)), Codecs())
    amounts = {200: -6 * 10**18, 210: 6 * 10**18, 220: 6 * 10**18 - 1, 230: -6 * 10**18 + 2}
    load = encode([(0, t, amounts.get(t, 0)) for t in range(10, 410, 10)], [1] * 40)
    # This change also reads the rows at 210 and 220, but not all rows of their frames.
    change = encode([(0, 235, 0)], [1])

    output = step(operator, load)
    with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", ALWAYS_INTERVALS):
        output += step(operator, change)
    assert output == operator.evaluate([load + change])


@st.composite
def wide_windows(draw: st.DrawFn) -> Window:
    """A window of frames of one mode that reach up to 12 rows, groups or values far."""
    mode, calls = draw(st.sampled_from(["rows", "range", "groups"])), []
    for place in range(draw(st.integers(1, 3))):
        function = draw(
            st.sampled_from(["lag", "lead", "min", "max", "sum", "count", "first_value", "rank"])
        )
        if function == "rank":
            calls.append(WindowCall("rank", (), INT, f"w{place}"))
        elif function in ("lag", "lead"):
            calls.append(
                WindowCall(function, (2,), INT, f"w{place}", number=draw(st.integers(0, 12)))
            )
        else:
            start, end = sorted(draw(st.lists(st.integers(-12, 12), min_size=2, max_size=2)))
            frame = Frame(mode, None if draw(st.booleans()) else start, end)
            calls.append(WindowCall(function, (2,), INT, f"w{place}", frame))
    return Window(ROWS, (0,), (Order(1, draw(st.booleans()), draw(st.booleans())),), tuple(calls))


def random_rows(random: np.random.Generator, size: int, greatest_time: int) -> ZSet:
    """Return rows of three partitions; few of them are equal."""
    return ZSet.from_columns(
        [
            random.integers(0, 3, size),
            random.integers(0, greatest_time, size),
            random.integers(0, 100, size),
        ]
    )


def states_of(operator: WindowOperator) -> list[ZSet]:
    return [trace.to_zset() for trace in operator.traces]


def loaded_operator(plan: Window, rows: ZSet) -> WindowOperator:
    operator = WindowOperator(plan, Codecs())
    step(operator, rows)
    return operator


@settings(LAW, max_examples=100)
@given(wide_windows(), st.integers(0, 2**32), st.sampled_from([60, 400, 4000]))
def test_many_changes_of_hundreds_of_rows_keep_the_law(plan, seed, greatest_time):
    random = np.random.default_rng(seed)
    operator = WindowOperator(plan, Codecs())
    inputs, output = ZSet.empty(3), ZSet.empty(len(plan.fields))
    # Several loads leave several runs in the traces. Later steps delete neighbouring rows, too.
    for size in (400, 60, 15, 40, 6):
        delta = random_rows(random, size, greatest_time)
        if len(inputs):
            first = random.integers(0, len(inputs), 3)
            deleted = np.unique(first[:, np.newaxis] + np.arange(random.integers(1, 15)))
            deleted = deleted[deleted < len(inputs)]
            delta -= ZSet(inputs.row_array[:, deleted], inputs.weight_array[deleted])
        inputs += delta
        with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", ALWAYS_INTERVALS):
            output += step(operator, delta)
        assert output == operator.evaluate([inputs])
    assert states_of(operator) == states_of(loaded_operator(plan, inputs))


STRING = pa.string()
TEXT_ROWS = Scan(
    "r", (Field("k", INT), Field("t", INT), Field("s", STRING), Field("x", INT), Field("u", STRING))
)
PREFIX = "https://www.example.com/path/"  # longer than the sort columns of a string
TEXTS = [PREFIX + "a", PREFIX + "b", PREFIX + "c", "short"]


@st.composite
def text_windows(draw: st.DrawFn) -> Window:
    """A window whose results depend on the order of rows that are equal in the order."""
    calls = []
    for place in range(draw(st.integers(1, 3))):
        function = draw(
            st.sampled_from(
                ["row_number", "lag", "lead", "first_value", "last_value", "sum", "min"]
            )
        )
        column, type_ = draw(st.sampled_from([(2, STRING), (3, INT), (4, STRING)]))
        bounds = sorted(draw(st.lists(st.integers(-2, 2), min_size=2, max_size=2)))
        frame = Frame("rows", None if draw(st.booleans()) else bounds[0], bounds[1])
        if function == "row_number":
            calls.append(WindowCall(function, (), INT, f"w{place}"))
        elif function in ("lag", "lead"):
            number = draw(st.integers(0, 3))
            calls.append(WindowCall(function, (column,), type_, f"w{place}", number=number))
        elif function in ("sum", "min"):
            calls.append(WindowCall(function, (3,), INT, f"w{place}", frame))
        else:
            calls.append(WindowCall(function, (column,), type_, f"w{place}", frame))
    order = Order(draw(st.sampled_from([1, 1, 1, 2])), draw(st.booleans()), draw(st.booleans()))
    return Window(TEXT_ROWS, draw(st.sampled_from([(), (0,)])), (order,), tuple(calls))


def codecs_of(texts: list[str]) -> Codecs:
    """Return codecs that have encoded these strings in this order."""
    codecs = Codecs()
    codecs.codec(STRING).encode(pa.array(texts, STRING))
    return codecs


def encode_texts(codecs: Codecs, rows: list[tuple[object, ...]], weights: list[int]) -> ZSet:
    columns = [
        codecs.codec(field.type).encode(pa.array(values, field.type))
        for field, values in zip(TEXT_ROWS.fields, zip(*rows, strict=True), strict=True)
    ]
    return ZSet.from_columns(columns, np.array(weights, np.int64))


def decode_texts(codecs: Codecs, plan: Window, zset: ZSet) -> Counter[tuple[object, ...]]:
    columns = [
        codecs.codec(field.type).decode(codes).to_pylist()
        for field, codes in zip(plan.fields, zset.row_array, strict=True)
    ]
    return Counter(dict(zip(zip(*columns, strict=True), zset.weight_array.tolist(), strict=True)))


@settings(LAW, max_examples=200)
@given(text_windows(), st.data(), st.sampled_from([ALWAYS_INTERVALS, NEVER_INTERVALS]))
def test_ties_of_long_strings_do_not_depend_on_the_codes(plan, data, overhead):
    codecs = [codecs_of(TEXTS), codecs_of(TEXTS[::-1])]
    operators = [WindowOperator(plan, each) for each in codecs]
    inputs, outputs = [ZSet.empty(5)] * 2, [ZSet.empty(len(plan.fields))] * 2
    total: Counter[tuple[object, ...]] = Counter()
    text = st.sampled_from(TEXTS)
    row = st.tuples(st.sampled_from([0, 1]), st.integers(0, 2), text, st.integers(0, 2), text)
    for number in range(data.draw(st.integers(1, 4))):
        present = st.sampled_from(sorted(total)) if total else row
        rows = data.draw(
            st.lists(st.one_of(row, present), min_size=1, max_size=2 if number else 16, unique=True)
        )
        weights = [data.draw(st.integers(-min(total[r], 2), 2).filter(bool)) for r in rows]
        total.update(dict(zip(rows, weights, strict=True)))
        for place, operator in enumerate(operators):
            delta = encode_texts(codecs[place], rows, weights)
            inputs[place] += delta
            with mock.patch.object(window_module, "INTERVAL_OVERHEAD_ROWS", overhead):
                outputs[place] += step(operator, delta)
            assert outputs[place] == operator.evaluate([inputs[place]])
        first, second = (
            decode_texts(each, plan, output) for each, output in zip(codecs, outputs, strict=True)
        )
        assert first == second


SUM = ("sum", (2,))
BEFORE = Frame("rows", -9, 0)
NEAR_CALLS = {
    "lag": WindowCall("lag", (2,), INT, "w"),
    "lead": WindowCall("lead", (2,), INT, "w", number=3),
    "bounded rows": WindowCall(*SUM, INT, "w", BEFORE),
    "rows behind": WindowCall("max", (2,), INT, "w", Frame("rows", 1, 8)),
    "bounded range": WindowCall("min", (2,), INT, "w", Frame("range", -50, 0)),
    "without the row": WindowCall(*SUM, INT, "w", Frame("rows", -4, 4, "current row")),
    "groups": WindowCall(*SUM, INT, "w", Frame("groups", -3, 2)),
    "groups behind": WindowCall("max", (2,), INT, "w", Frame("groups", 1, 3)),
    "first value": WindowCall("first_value", (2,), INT, "w", Frame("range", None, 0)),
    "last value": WindowCall("last_value", (2,), INT, "w", Frame("range", None, 0)),
    "distinct": WindowCall("count", (2,), INT, "w", BEFORE, distinct=True),
}
TOTAL_CALLS = {
    "row number": WindowCall("row_number", (), INT, "w"),
    "rank": WindowCall("rank", (), INT, "w"),
    "dense rank": WindowCall("dense_rank", (), INT, "w"),
    "running sum": WindowCall(*SUM, INT, "w", Frame("range", None, 0)),
    "running count": WindowCall("count", (), INT, "w", Frame("rows", None, 0)),
    "running average": WindowCall("avg", (2,), pa.float64(), "w", Frame("range", None, -20)),
}
EXTREME_CALLS = {
    "running min": WindowCall("min", (2,), INT, "w", Frame("range", None, 0)),
    "running max of rows": WindowCall("max", (2,), INT, "w", Frame("rows", None, 2)),
    "running max of a range": WindowCall("max", (2,), INT, "w", Frame("range", None, -20)),
}


class CountedReads:
    """Counts the rows that window operators read from their traces."""

    def __init__(self) -> None:
        self.rows = 0

    def __enter__(self) -> CountedReads:
        self._patches = [
            mock.patch.object(row_ranges, "read_ranges", self._counted_ranges),
            mock.patch.object(window_module, "prefix_lookup", self._counted_lookup),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *error: object) -> None:
        for patch in self._patches:
            patch.stop()

    def _counted_ranges(self, *arguments: np.ndarray) -> None:
        self.rows += arguments[4].shape[1]
        read_ranges(*arguments)

    def _counted_lookup(self, *arguments: object, **options: object) -> object:
        read = prefix_lookup(*arguments, **options)
        self.rows += read.rows.shape[1]
        return read


SIZE, CHANGES = 100_000, 100


def operator_with_rows(call: WindowCall, size: int = SIZE) -> WindowOperator:
    """Return an operator with one partition of many rows, at times 0, 10, 20, ..."""
    operator = WindowOperator(Window(ROWS, (0,), (Order(1),), (call,)), Codecs())
    numbers = np.arange(size)
    step(operator, ZSet.from_columns([np.zeros(size, np.int64), 10 * numbers, numbers % 7]))
    return operator


def changes_from(first: int, distance: int) -> ZSet:
    """Delete every ``distance``-th row from ``first`` on, and insert a row 5 later than each."""
    places = first + distance * np.arange(CHANGES // 2)
    rows = [np.zeros(CHANGES, np.int64), 10 * np.tile(places, 2), np.tile(places % 7, 2)]
    rows[1][: len(places)] += 5
    return ZSet.from_columns(rows, np.repeat(np.array([1, -1]), CHANGES // 2))


@pytest.mark.parametrize("call", NEAR_CALLS.values(), ids=NEAR_CALLS.keys())
def test_a_change_reads_the_rows_near_it_and_not_its_partition(call):
    operator = operator_with_rows(call)

    for first in (2, 3, 4):
        with CountedReads() as reads:
            step(operator, changes_from(first, 1990))
        assert 0 < reads.rows < 100 * CHANGES


@pytest.mark.parametrize(
    ("call", "first"),
    [
        (NEAR_CALLS["lag"], 2),
        (NEAR_CALLS["bounded rows"], 2),
        (TOTAL_CALLS["running sum"], 10 * SIZE - 2000),
        (EXTREME_CALLS["running min"], 2),
    ],
    ids=["lag", "bounded rows", "running sum", "running min"],
)
def test_a_change_of_a_partition_of_a_million_rows_reads_few_of_them(call, first):
    operator = operator_with_rows(call, 10 * SIZE)

    with CountedReads() as reads:
        step(operator, changes_from(first, 39))

    assert 0 < reads.rows < 2500


@pytest.mark.parametrize("call", EXTREME_CALLS.values(), ids=EXTREME_CALLS.keys())
def test_a_change_of_a_running_extreme_reads_the_rows_near_it(call):
    operator = operator_with_rows(call)

    # The first changes are in front, where they change the extreme up to the next equal value.
    for changes in (changes_from(0, 1), changes_from(60, 1900), changes_from(SIZE - 1999, 39)):
        with CountedReads() as reads:
            step(operator, changes)
        assert 0 < reads.rows < 100 * CHANGES


@pytest.mark.parametrize("weight", [1, -1])
def test_a_better_value_reads_the_rows_that_it_changes(weight):
    call = EXTREME_CALLS["running min"]
    operator = operator_with_rows(call)
    nine_rows = ZSet.from_columns([np.zeros(9, np.int64), 10 * np.arange(0, 9), np.arange(-9, 0)])
    step(operator, nine_rows)
    # A value that is better than all behind it, up to a row that is better again.
    better = ZSet.from_rows([(0, 5003, -20), (0, 9003, -21)])
    step(operator, better)

    change = ZSet.from_rows([(0, 1003, -15), (0, 7003, -15)], [1, 1])
    step(operator, change)
    with CountedReads() as reads:
        output = step(operator, change if weight > 0 else -change)

    # Another row of the same value has no effect; without any, the rows to the next record have.
    assert len(output) == (2 if weight > 0 else 802)
    assert reads.rows < 10 * len(output) + 100


@pytest.mark.parametrize("call", TOTAL_CALLS.values(), ids=TOTAL_CALLS.keys())
def test_a_change_of_the_last_rows_reads_these_and_not_the_rows_before(call):
    operator = operator_with_rows(call)

    for number in range(3):
        with CountedReads() as reads:
            step(operator, changes_from(SIZE - 2000 + number, 39))
        assert 0 < reads.rows < 2500


def test_a_session_whose_rows_have_gaps_of_their_own_is_computed_around_a_change():
    circuit = compile_sql(
        """SELECT k, SESSION_START(ts, gap) AS start, SESSION_END(ts, gap) AS stop, count(*) AS n
           FROM t GROUP BY k, SESSION(ts, gap)""",
        {"t": "k BIGINT, ts BIGINT, gap BIGINT"},
    )
    numbers = np.arange(SIZE)
    times = 10 * numbers + numbers // 1000 * 1000  # sessions of a thousand rows
    circuit.step(
        {"t": pa.table({"k": numbers * 0, "ts": times, "gap": np.where(numbers % 2, 15, 25)})}
    )

    with CountedReads() as reads:
        delta = circuit.step({"t": [{"k": 0, "ts": 110_015, "gap": 12}]})["view"]

    assert sorted(row["n"] * row["weight"] for row in delta.to_pylist()) == [-1000, 1001]
    assert 0 < reads.rows < 2500


@pytest.mark.slow
@settings(LAW, max_examples=5000)
@given(st.data(), st.sampled_from([0, 0, -1]))
def test_many_windows_keep_the_law(data, least_weight):
    check_law(data, ALWAYS_INTERVALS, least_weight=least_weight)
