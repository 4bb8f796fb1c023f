"""``concat_ws``: texts joined by a separator, without those that are NULL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import row_count
from circuits.types.functions.function import Function, Values
from circuits.types.functions.length_limits import (
    MAX_STRING_BYTES,
    byte_lengths,
    check_lengths,
    upper_bound,
)
from circuits.types.functions.signatures import Signature

__all__ = ["FUNCTIONS"]


def _join(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    separator, *parts = arguments
    if not parts:
        return pc.if_else(
            pc.is_valid(separator), pa.scalar("", result_type), pa.scalar(None, result_type)
        )
    rows = row_count(arguments)
    separator_bytes = len(parts) * upper_bound(separator, rows)
    if separator_bytes + sum(upper_bound(part, rows) for part in parts) > MAX_STRING_BYTES:
        lengths = [byte_lengths(part, rows) for part in parts]
        lengths.append(len(parts) * byte_lengths(separator, rows))
        check_lengths(np.sum(lengths, axis=0))
    parts = [pc.cast(part, result_type) for part in parts]
    # Arrow's result lacks rows whose parts are all NULL, so such a row gets an empty first part.
    has_no_part = reduce(pc.and_, map(pc.is_null, parts))
    parts[0] = pc.if_else(has_no_part, pa.scalar("", result_type), parts[0])
    return pc.binary_join_element_wise(
        *parts, pc.cast(separator, result_type), null_handling="skip"
    )


# In a signature, t is a text; parameters after | are optional, and * repeats the last one.
FUNCTIONS = (
    Function(
        "concat_ws",
        "the other arguments that are not NULL, with a between them",
        Signature("t|t*", pa.string()),
        _join,
    ),
)
