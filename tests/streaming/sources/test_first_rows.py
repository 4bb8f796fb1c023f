"""The first rows of each partition are read without an exchange of rows."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as f

from streaming.sources.first_rows import take_from_partitions


@pytest.mark.spark
@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_at_most_some_rows_of_each_partition_are_read_in_one_stage(spark, count):
    frame = spark.range(0, 12, 1, 3).union(spark.range(20, 22, 1, 1))
    read = take_from_partitions(frame, count)
    assert read.columns == frame.columns
    partitions = read.select(f.spark_partition_id().alias("p")).toArrow().column("p").to_pylist()
    assert Counter(partitions) == {p: min(n, count) for p, n in enumerate((4, 4, 4, 2))}
    assert set(read.toArrow().column("id").to_pylist()) <= {*range(12), 20, 21}
    assert "Exchange" not in read._jdf.queryExecution().executedPlan().toString()
