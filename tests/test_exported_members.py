"""The public names are a promise: adding or losing one is a decision, made here."""

from __future__ import annotations

import dbsp_wcoj
from dbsp_wcoj import errors

PUBLIC = [
    "ArityError",
    "ColumnTypeError",
    "DbspWcojError",
    "DeltaQuery",
    "Dictionary",
    "Encoded",
    "Formula",
    "FormulaError",
    "PreparedStep",
    "Query",
    "QuerySyntaxError",
    "Relations",
    "RelationsStep",
    "Stats",
    "Trace",
    "UnknownRelationError",
    "UnsafeVariableError",
    "VariableOrderError",
    "WeightError",
    "WeightOverflowError",
    "ZSet",
    "generic_join",
    "generic_join_chunks",
    "warm_up",
]


def test_the_exported_names_are_exactly_the_promised_ones_and_sorted():
    assert list(dbsp_wcoj.__all__) == PUBLIC == sorted(PUBLIC)


def test_every_exported_name_exists_and_is_documented():
    for name in PUBLIC:
        assert getattr(dbsp_wcoj, name).__doc__, name


def test_every_error_of_the_tree_is_exported_and_is_a_dbsp_wcoj_error():
    for name in errors.__all__:
        assert name in PUBLIC
        assert issubclass(getattr(dbsp_wcoj, name), dbsp_wcoj.DbspWcojError)
