"""Random SQL in dialect spark, maintained, against Spark after every step.

All queries share one sequence of rows, so that Spark reads the tables once per step.
"""

from __future__ import annotations

import random
from collections import Counter

import pyarrow.parquet as parquet

from circuits import compile_sql
from tests.generators.sql.rows import SCHEMAS, random_steps
from tests.support.random_sql import (
    Database,
    Rows,
    add_delta,
    deltas,
    differ,
    draw_case,
    last_view,
    rows_of,
)

#: Texts that Spark reads and dialect spark refuses; each is a documented difference.
REFUSED = ("nested values",)


def check_queries(spark, folder, seeds: range, steps: int) -> int:
    """Compare the views of these seeds with Spark after each step; return how many there are."""
    from pyspark.errors import PySparkException

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
                    spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {text}")
                expected: Rows = Counter(rows_of(spark.sql(program.query).toArrow()))
            except PySparkException:
                continue  # Spark does not have all combinations
            if number == 0:
                circuits[seed] = compile_sql(program.text, SCHEMAS, dialect="spark")
            if seed in circuits:
                circuit = circuits[seed]
                add_delta(totals[seed], circuit.step(deltas(change))[last_view(circuit)])
                found = totals[seed]
                assert not differ(found, expected), (
                    f"seed {seed}: {program}\nstep {number}, rows {changes[: number + 1]}\n"
                    f"only here {found - expected}, only Spark {expected - found}"
                )
    return len(circuits)
