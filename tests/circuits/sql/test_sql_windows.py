"""Window functions of SQL against DuckDB: random ones, and the forms of other engines."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.runtime.operators import window as window_module
from tests.circuits.sql.test_sql_circuits import LAW, check
from tests.generators.sql_generator import Writer


@st.composite
def windowed(draw):
    """A SELECT with window functions over one table, or over a join."""
    writer = Writer(draw)
    source, scope = writer.source(0)
    where = f" WHERE {writer.condition(scope, 0, ())}" if writer.chance(20) else ""
    return writer.windowed(source, where, scope)[0]


# The cost of a segment decides between its two paths; the first one makes all steps read segments.
@settings(LAW, max_examples=150)
@given(st.data(), st.sampled_from([-(10**9), 16]))
def test_maintained_window_functions_are_what_duckdb_answers(data, overhead):
    with mock.patch.object(window_module, "SEGMENT_OVERHEAD_ROWS", overhead):
        check(data, windowed())
