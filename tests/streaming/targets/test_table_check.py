"""A view is written to a table only if the types of their columns are of the same families."""

from __future__ import annotations

import pytest

from streaming.targets.table_check import TableShape, describe_mismatch


@pytest.mark.parametrize(
    ("type_", "column", "is_accepted"),
    [
        ("interval", "TIMESTAMP", True),
        ("interval", "BIGINT", False),
        ("timestamp with time zone", "TIMESTAMP", True),
        ("point", "TEXT", True),
        ("point", "BIGINT", True),  # no known family: the database decides
        ("smallint", "BIGINT", True),
        ("int4", "BOOLEAN", False),
        ("double precision", "BIGINT", True),
        ("bytea", "BIGINT", False),
    ],
)
def test_columns_are_compared_by_the_family_of_their_type(type_, column, is_accepted):
    shape = TableShape({"x": type_}, frozenset(), ())

    assert (describe_mismatch(shape, {"x": column}) is None) == is_accepted
