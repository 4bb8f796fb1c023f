"""Semijoins and antijoins that compare columns by other conditions than equality.

The physical plan computes only the keys of the matching rows (`circuits.plan.rewrite.semijoins`),
so no other column of the subquery may reach a join or a dictionary of row ids.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.plan.physical_nodes import Join, RowIdEncode

SCHEMAS = {
    "items": pa.schema(
        [
            ("orderkey", pa.int64()),
            ("supplier", pa.int64()),
            ("price", pa.int64()),
            ("tax", pa.int64()),
            ("comment", pa.string()),
        ]
    )
}
ROWS = [
    {"orderkey": order, "supplier": supplier, "price": 10 * n, "tax": n, "comment": f"text {n}"}
    for n, (order, supplier) in enumerate([(1, 1), (1, 1), (1, 2), (2, 1), (3, 4), (3, 5), (4, 4)])
]


@pytest.mark.parametrize("negation", ["", "NOT "])
def test_exists_with_an_inequality_keeps_only_the_compared_columns(negation: str) -> None:
    circuit = compile_sql(
        f"SELECT a.orderkey, a.supplier, a.comment FROM items a WHERE {negation}EXISTS (SELECT * "
        "FROM items b WHERE b.orderkey = a.orderkey AND b.supplier <> a.supplier AND b.tax >= 1)",
        SCHEMAS,
    )

    output = circuit.step({"items": ROWS})["view"]

    comments = sorted(output["comment"].to_pylist())
    matching = ["text 0", "text 1", "text 2", "text 4", "text 5"]
    assert comments == (["text 3", "text 6"] if negation else matching)
    plans = [node.plan for node in circuit.graph.nodes]
    matched = [p for p in plans if isinstance(p, Join) and p.comparisons]
    assert matched
    assert all(len(plan.fields) == 2 for plan in matched)
    encoded = [field.name for p in plans if isinstance(p, RowIdEncode) for field in p.input.fields]
    assert "tax" not in encoded and "price" not in encoded
