"""``dbsp-wcoj estimate``: within 1.5 times of runs over all rows."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from circuits import compile_sql
from streaming.cli.app import app
from streaming.cli.commands.estimate import measure_samples
from streaming.cli.estimation.distinct_values import estimate_distinct_values
from streaming.cli.estimation.generated_rows import values_of
from streaming.cli.estimation.growth import extrapolate, slope_of
from streaming.cli.estimation.measure import estimate_parts, measure
from streaming.cli.estimation.samples import PlannedInput, Samples
from streaming.errors import EventsError

EDGES = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")])
ORDERS = pa.schema([("nr", pa.int64()), ("customer", pa.int64()), ("city", pa.string())])
CUSTOMERS = pa.schema([("id", pa.int64()), ("country", pa.string())])
SHOP = {"orders": ORDERS, "customers": CUSTOMERS}
TRIANGLES = (
    "SELECT count(*) AS n FROM e x JOIN e y ON y.src = x.dst "
    "JOIN e z ON z.src = x.src AND z.dst = y.dst"
)
BY_COUNTRY = (
    "SELECT country, city, count(*) AS n FROM orders JOIN customers ON id = customer GROUP BY 1, 2"
)
# Text, schemas, planned rows, distinct values.
CASES = {
    "triangles": (TRIANGLES, {"e": EDGES}, {"e": 40_000}, {"e": {"src": 4000, "dst": 4000}}),
    "a join of two tables": (
        BY_COUNTRY,
        SHOP,
        {"orders": 40_000, "customers": 8000},
        {"orders": {"customer": 8000, "city": 20}, "customers": {"country": 15}},
    ),
    "many groups": (
        "SELECT customer, max(nr) AS m, count(DISTINCT city) AS c FROM orders GROUP BY customer",
        {"orders": ORDERS},
        {"orders": 40_000},
        {"orders": {"customer": 10_000, "city": 20}},
    ),
    "few groups": (
        "SELECT city, sum(nr) AS s FROM orders GROUP BY city",
        {"orders": ORDERS},
        {"orders": 40_000},
        {"orders": {"city": 50}},
    ),
    "pairs, which grow with the square": (
        "SELECT DISTINCT a.src AS a, b.src AS b FROM e a JOIN e b ON a.dst = b.dst",
        {"e": EDGES},
        {"e": 6000},
        {"e": {"dst": 100}},
    ),
}
SAMPLE_ROWS = 2000


@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_within_half_as_much_again_of_a_run_over_all_rows(case: str) -> None:
    text, schemas, rows, distinct = CASES[case]
    inputs = {
        name: PlannedInput(schema, rows[name], None, distinct.get(name, {}))
        for name, schema in schemas.items()
    }
    compile_views = partial(compile_sql, text, schemas)
    estimated = estimate_parts(
        measure_samples(compile_views, inputs, batch=100, sample=SAMPLE_ROWS)
    )

    all_rows = Samples(inputs, max_rows=10**9, few=1, seed=7)
    steps = [all_rows.step(1.0, 100) for _ in range(3)]
    real = measure(compile_views(), 1.0, all_rows.tables(1.0), steps)
    real_parts = {**real.arrangements, **real.dictionaries}
    real_bytes = sum(part.bytes for part in real_parts.values())
    assert real_bytes / 1.5 < estimated.bytes < real_bytes * 1.5
    assert real.work / 1.5 < estimated.work < real.work * 1.5
    for part in estimated.parts:
        if part.bytes > 0.1 * estimated.bytes:
            real_part = real_parts[part.name]
            assert real_part.rows / 1.5 < part.rows < real_part.rows * 1.5, part.name


def test_a_sample_in_a_file_gives_its_skew(tmp_path) -> None:
    rng = np.random.default_rng(3)
    src = np.minimum(rng.zipf(1.6, 30_000), 2000)
    table = pa.table({"src": src, "dst": rng.integers(0, 20_000, 30_000)}).cast(EDGES)
    pq.write_table(table.slice(0, 6000), tmp_path / "e.parquet")
    arguments = ["estimate", TRIANGLES, "--source", f"e={tmp_path}/e.parquet", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--rows", "e=30_000", "--sample", "6000"])
    assert result.exit_code == 0, result.output
    estimated = json.loads(result.stdout)
    real = measure(compile_sql(TRIANGLES, {"e": table.schema}), 1.0, {"e": table}, [])
    real_bytes = sum(part.bytes for part in real.arrangements.values())
    assert real_bytes / 1.5 < estimated["bytes"] < real_bytes * 1.5
    assert estimated["rows"] == {"e": 30_000}
    assert {part["name"] for part in estimated["parts"]} >= {"e[0,1]", "e[1,0]"}


def test_the_text_names_state_views_and_the_share_of_filters() -> None:
    text = "CREATE TABLE e (src BIGINT, name VARCHAR); SELECT name, src FROM e WHERE name = 'x'"
    arguments = ["estimate", text, "--rows", "e=1e6", "--sample", "1000", "--materialize", "e"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for part in ("1,000,000 rows", "e.rows[0,1]", "text dictionary", "A step of 1,000 rows"):
        assert part in result.stdout
    assert "0 % of the generated rows pass" in result.stdout


@pytest.mark.parametrize(("cents", "is_uncertain"), [(95_000, True), (0, False)])
def test_a_growth_that_few_rows_show_is_called_uncertain(cents, is_uncertain, tmp_path) -> None:
    rng = np.random.default_rng(7)
    keys = {name: rng.integers(0, 3000, 2000) for name in ("payer", "payee")}
    table = pa.table({**keys, "cents": rng.integers(1, 100_000, 2000)})
    pq.write_table(table, tmp_path / "pay.parquet")
    text = (
        "SELECT x.payer, y.payee, count(*) AS n FROM pay x JOIN pay y ON x.payee = y.payer "
        f"WHERE x.cents > {cents} AND y.cents > {cents} GROUP BY 1, 2"
    )
    arguments = ["estimate", text, "--source", f"pay={tmp_path}/pay.parquet", "--rows", "pay=1e6"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert ("is uncertain, because it has only" in result.stdout) == is_uncertain


def zipf(values, exponent):
    """Return the shares of values whose frequencies follow a power law."""
    shares = np.arange(1, values + 1) ** -float(exponent)
    return shares / shares.sum()


PLANNED_ROWS = 400_000
# The names of 400,000 rows.
NAMES = {
    "equally frequent": lambda rng: rng.integers(0, 100_000, PLANNED_ROWS),
    "few": lambda rng: rng.integers(0, 2000, PLANNED_ROWS),
    "all different": lambda rng: rng.permutation(PLANNED_ROWS),
    "a power law": lambda rng: np.minimum(rng.zipf(1.5, PLANNED_ROWS), 10**9),
    "a bounded power law": lambda rng: rng.choice(200_000, PLANNED_ROWS, p=zipf(200_000, 0.8)),
    "half of the rows have few": lambda rng: np.where(
        rng.random(PLANNED_ROWS) < 0.5,
        rng.integers(0, 100, PLANNED_ROWS),
        rng.integers(0, 100_000, PLANNED_ROWS),
    ),
}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("columns", ["name", "name, kind"])
def test_groups_are_estimated_from_a_small_sample(names, columns, tmp_path) -> None:
    rng = np.random.default_rng(3)
    text = pa.array(NAMES[names](rng)).cast(pa.string())
    table = pa.table({"name": text, "kind": rng.integers(0, 2, PLANNED_ROWS)})
    pq.write_table(table.slice(0, 10_000), tmp_path / "t.parquet")
    query = f"SELECT {columns}, count(*) AS n FROM t GROUP BY {columns}"
    arguments = ["estimate", query, "--source", f"t={tmp_path}/t.parquet", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--rows", f"t={PLANNED_ROWS}"])
    assert result.exit_code == 0, result.output
    estimated = json.loads(result.stdout)
    real = measure(compile_sql(query, {"t": table.schema}), 1.0, {"t": table}, [])
    real_parts = {**real.arrangements, **real.dictionaries}
    real_bytes = sum(part.bytes for part in real_parts.values())
    assert real_bytes / 1.5 < estimated["bytes"] < real_bytes * 1.5
    for part in estimated["parts"]:
        rows = real_parts[part["name"]].rows
        assert rows / 1.5 < part["rows"] < rows * 1.5, part
        assert part["low_rows"] * 0.95 < rows < part["high_rows"] * 1.05, part


@pytest.mark.parametrize("groups", [10_000, 10**9])
def test_a_total_that_the_sample_does_not_determine_has_limits(groups, tmp_path) -> None:
    groups_of_rows = np.random.default_rng(3).integers(0, groups, 2000)
    pq.write_table(pa.table({"g": groups_of_rows}), tmp_path / "t.parquet")
    text = "SELECT g, count(*) AS n FROM t WHERE g >= 0 GROUP BY g"
    arguments = ["estimate", text, "--source", f"t={tmp_path}/t.parquet", "--rows", "t=1e6"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    # With 10,000 groups, a million rows have 10,000 groups; the sample of 2,000 has about 1,800.
    assert ("All may be between" in result.stdout) == (groups == 10_000)


@given(st.lists(st.integers(1, 9), max_size=30), st.floats(0.001, 1))
def test_the_number_of_values_is_between_its_limits(occurrences, fraction) -> None:
    values = estimate_distinct_values(np.array(occurrences, np.int64), fraction)
    assert len(occurrences) <= values.low <= values.estimate <= values.high
    if fraction == 1:
        assert values.high == len(occurrences)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--rows e=NUMBER is missing"),
        (["--rows", "e=many"], "--rows 'e=many': write NAME=NUMBER"),
        (["--rows", "e=0"], "--rows 'e=0': the number must be 1 or more"),
        (["--rows", "e=5", "--rows", "f=5"], "--rows f: no such name; relations: e"),
        (["--rows", "e=5", "--distinct", "e.x=5"], "--distinct e.x: no such name"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], message: str) -> None:
    command = ["estimate", "SELECT src FROM e", "--source", "e=schema=src long"]
    result = CliRunner().invoke(app, [*command, *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_type_without_generated_values_is_named() -> None:
    with pytest.raises(EventsError, match=r"column 'm': no values of type map.* are generated"):
        values_of(pa.field("m", pa.map_(pa.string(), pa.int64())), np.arange(3))


def test_generated_values_have_the_type_of_their_column() -> None:
    fields = [
        *(pa.int8(), pa.uint64(), pa.float32(), pa.bool_(), pa.decimal128(5, 2), pa.date32()),
        *(pa.timestamp("ns", "UTC"), pa.time64("us"), pa.large_string(), pa.binary()),
        *(pa.list_(pa.int32()), pa.struct([("a", pa.string()), ("b", pa.int64())])),
    ]
    for type in fields:
        values = values_of(pa.field("x", type), np.arange(1000))
        assert values.type == type and len(values) == 1000 and not values.null_count


def test_a_power_law_is_found_and_small_slopes_are_rounded() -> None:
    sizes = [1.0, 2.0, 4.0]
    assert slope_of(sizes, [5, 5.05, 5.1]) == 0
    assert slope_of(sizes, [5, 10.1, 19.9]) == 1
    assert extrapolate(sizes, [3, 12, 48], 40.0) == pytest.approx(4800)
    assert slope_of(sizes, [0, 0, 7]) == 1  # a single point says nothing


@pytest.mark.parametrize("keys", [("nr",), ("nr", "customer")])
def test_generated_changes_have_each_key_once(keys):
    orders = PlannedInput(ORDERS, 3000, distinct={"nr": 50, "customer": 4}, keys=keys)
    samples = Samples({"orders": orders}, max_rows=1000, few=10)
    for rows in (*samples.tables(1.0).values(), *samples.step(1.0, 500).values()):
        drawn = rows.select(keys).to_pylist()
        assert len(drawn) == len({tuple(row.values()) for row in drawn}) > 0


def test_a_file_with_fewer_rows_than_a_small_input_needs_is_refused():
    table = pa.table({"nr": [1, 2, 3], "customer": [1, 1, 2], "city": ["a", "a", "b"]})
    samples = Samples({"orders": PlannedInput(ORDERS, 8, table)}, max_rows=1000, few=10)
    message = "file of 'orders' has 3 rows, and 8 are needed.*--rows orders=3"
    with pytest.raises(EventsError, match=message):
        samples.tables(1.0)
