"""Random SQL in dialect spark, maintained, against Spark after every step.

All queries share one sequence of rows, so that Spark reads the tables once per step.
"""

from __future__ import annotations

import random
from collections import Counter

import pyarrow.parquet as parquet
import pytest

from circuits import compile_sql
from tests.generators.sql.rows import SCHEMAS, START, random_steps
from tests.support.random_sql import (
    Database,
    Rows,
    add_delta,
    are_different,
    deltas,
    draw_case,
    last_view,
    rows_of,
    with_time,
)


def check_queries(spark, folder, seeds: range, steps: int) -> int:
    """Compare the views of these seeds with Spark after each step; return how many there are."""
    errors = pytest.importorskip("pyspark.errors")
    protocol = pytest.importorskip("py4j.protocol")
    changes = random_steps(random.Random(seeds.start), steps)
    database = Database(draw_case(0).program)
    circuits, totals = {}, {seed: Counter() for seed in seeds}
    for number, change in enumerate(changes):
        database.change(change)
        for name in SCHEMAS:
            path = f"{folder}/{name}{number}.parquet"
            table = database.connection.sql(f"SELECT * FROM {name}").to_arrow_table()
            parquet.write_table(table.cast(SCHEMAS[name]), path)
            spark.read.parquet(path).createOrReplaceTempView(name)
        for seed in seeds:
            program = draw_case(seed, "spark").program
            try:
                for name, text in program.views:
                    spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {with_time(text, START)}")
                expected: Rows = Counter(
                    rows_of(spark.sql(with_time(program.query, START)).toArrow())
                )
            except (errors.PySparkException, protocol.Py4JJavaError):
                # Spark does not have all combinations, and its optimizer fails for some: "Unable to
                # rewrite domain join", "key not found".
                circuits.pop(seed, None)
                continue
            if number == 0:
                circuits[seed] = compile_sql(program.text, SCHEMAS, dialect="spark")
            if seed in circuits:
                circuit = circuits[seed]
                add_delta(totals[seed], circuit.step(deltas(change), now=START)[last_view(circuit)])
                total = totals[seed]
                assert not are_different(total, expected), (
                    f"seed {seed}: {program}\nstep {number}, rows {changes[: number + 1]}\n"
                    f"only here {total - expected}, only Spark {expected - total}"
                )
    return len(circuits)


@pytest.mark.spark
def test_random_sql_in_dialect_spark_is_what_spark_answers(spark, tmp_path):
    assert check_queries(spark, tmp_path, range(8), steps=2) > 5


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("start", range(1000, 2000, 100))
def test_much_random_sql_in_dialect_spark_is_what_spark_answers(spark, tmp_path, start):
    assert check_queries(spark, tmp_path, range(start, start + 100), steps=3) > 80
