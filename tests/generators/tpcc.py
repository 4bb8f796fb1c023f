"""Rows of the TPC-C schema: a small, seeded stand-in for its nine tables.

The columns and their types are those of the specification. Values repeat and some are NULL, so that
groups, joins and set operations have ties, and outer joins have rows without a partner.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

__all__ = ["TABLES", "order_processing"]

_MONEY: Final = pa.decimal128(12, 2)
_INT: Final = pa.int32()
_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us")
_FLOAT: Final = pa.float64()

#: The columns of each table, with their types.
TABLES: Final[dict[str, dict[str, pa.DataType]]] = {
    "warehouse": {
        "w_id": _INT, "w_name": _TEXT, "w_city": _TEXT, "w_state": _TEXT, "w_zip": _TEXT,
        "w_tax": pa.decimal128(4, 4), "w_ytd": _MONEY,
    },
    "district": {
        "d_id": _INT, "d_w_id": _INT, "d_name": _TEXT, "d_city": _TEXT, "d_state": _TEXT,
        "d_tax": pa.decimal128(4, 4), "d_ytd": _MONEY, "d_next_o_id": _INT,
    },
    "customer": {
        "c_id": _INT, "c_d_id": _INT, "c_w_id": _INT, "c_first": _TEXT, "c_middle": _TEXT,
        "c_last": _TEXT, "c_city": _TEXT, "c_state": _TEXT, "c_since": _TIME, "c_credit": _TEXT,
        "c_discount": pa.decimal128(4, 4), "c_balance": _MONEY, "c_ytd_payment": _FLOAT,
        "c_payment_cnt": _INT,
    },
    "history": {
        "h_c_id": _INT, "h_c_d_id": _INT, "h_c_w_id": _INT, "h_d_id": _INT, "h_w_id": _INT,
        "h_date": _TIME, "h_amount": _MONEY, "h_data": _TEXT,
    },
    "new_order": {"no_o_id": _INT, "no_d_id": _INT, "no_w_id": _INT},
    "oorder": {
        "o_id": _INT, "o_d_id": _INT, "o_w_id": _INT, "o_c_id": _INT, "o_carrier_id": _INT,
        "o_ol_cnt": _INT, "o_all_local": pa.bool_(), "o_entry_d": _TIME,
    },
    "order_line": {
        "ol_o_id": _INT, "ol_d_id": _INT, "ol_w_id": _INT, "ol_number": _INT, "ol_i_id": _INT,
        "ol_delivery_d": _TIME, "ol_quantity": _INT, "ol_amount": _MONEY, "ol_dist_info": _TEXT,
    },
    "item": {"i_id": _INT, "i_im_id": _INT, "i_name": _TEXT, "i_price": _MONEY, "i_data": _TEXT},
    "stock": {
        "s_i_id": _INT, "s_w_id": _INT, "s_quantity": _INT, "s_ytd": _FLOAT, "s_order_cnt": _INT,
        "s_data": _TEXT,
    },
}  # fmt: skip

_ROWS: Final = {
    "warehouse": 3, "district": 8, "customer": 24, "history": 20, "new_order": 10, "oorder": 30,
    "order_line": 60, "item": 12, "stock": 24,
}  # fmt: skip
_FIRST_TIME_US: Final = 1_167_609_600_000_000  # 2007-01-01
_WORDS: Final = ("BAR", "OUGHT", "able", "Pri", "original", "a_b", "100%", "")


def order_processing(seed: int) -> dict[str, pa.Table]:
    """Return the rows of each table."""
    random = np.random.default_rng(seed)
    tables = {}
    for name, columns in TABLES.items():
        count = _ROWS[name]
        arrays = [_column(random, column, type, count) for column, type in columns.items()]
        tables[name] = pa.table(dict(zip(columns, arrays, strict=True)))
    return tables


def _column(random: np.random.Generator, name: str, type: pa.DataType, count: int) -> pa.Array:
    if name in ("w_id", "i_id", "c_id", "o_id"):
        return pa.array(np.arange(1, count + 1), type)
    mask = random.random(count) < (0.0 if name.endswith("_id") else 0.12)
    if name == "o_carrier_id":
        mask = random.random(count) < 0.3
    if pa.types.is_integer(type):
        limit = 4 if name.endswith(("w_id", "d_id")) else 13 if name.endswith("_id") else 6
        return pa.array(random.integers(1, limit, count), type, mask=mask)
    if pa.types.is_string(type):
        return pa.array(random.choice(_WORDS, count), type, mask=mask)
    if pa.types.is_boolean(type):
        return pa.array(random.random(count) < 0.5, type, mask=mask)
    if pa.types.is_timestamp(type):
        hours = random.integers(0, 24 * 400, count) * 3600 * 1_000_000
        return pa.array(_FIRST_TIME_US + hours, type, mask=mask)
    if pa.types.is_floating(type):
        return pa.array(random.integers(-8, 9, count) / 4, type, mask=mask)
    scaled = pa.array(random.integers(-20, 60, count) / 8, pa.float64(), mask=mask)
    if type.scale == 4:
        scaled = pa.array(random.integers(0, 6, count) / 16, pa.float64(), mask=mask)
    return scaled.cast(type, safe=False)
