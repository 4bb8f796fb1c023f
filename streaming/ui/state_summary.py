"""State summary: rows, runs and bytes of each arrangement of a circuit, in memory or on disk."""

from __future__ import annotations

import re
from typing import Any, Final

from circuits import Circuit
from circuits.runtime.state_names import arrangement_sizes
from streaming.sink.metrics import BatchMetrics

__all__ = ["arrangements_of", "arrangements_on_disk"]

_NAME_WITH_ORDER: Final = re.compile(r"(.*)\[([\d,]*)\]")


def arrangements_of(circuit: Circuit) -> list[dict[str, Any]]:
    """Return rows, runs and bytes of each arrangement, for JSON, as of the last commit.

    The list is empty if this process has never stepped the circuit: its state is then in another
    process, or there is none.

    Complexity:
        O(operators · views + arrangements · log rows).
    """
    state = circuit.committed
    if not state.steps:
        return []
    return [
        {
            "name": size.part.name,
            "kind": size.part.kind,
            "label": size.part.description,
            "views": list(size.views),
            "order": list(size.order),
            "rows": sum(size.runs),
            "runs": len(size.runs),
            "bytes": size.bytes,
        }
        for size in arrangement_sizes(state)
    ]


def arrangements_on_disk(metrics: BatchMetrics) -> list[dict[str, Any]]:
    """Return rows and bytes from the metrics of written state, for a circuit on executors.

    >>> metrics = BatchMetrics(0, False, {}, {}, 0, 0, {}, 0, {"stage 1 r0[1,0]": (3, 99)})
    >>> [(entry["name"], entry["order"], entry["bytes"]) for entry in arrangements_on_disk(metrics)]
    [('stage 1 r0', [1, 0], 99)]
    """
    arrangements = []
    for full_name, (rows, size) in metrics.arrangements.items():
        match = _NAME_WITH_ORDER.fullmatch(full_name)
        order = [int(column) for column in match[2].split(",") if column] if match else []
        entry = {
            "name": match[1] if match else full_name,
            "kind": "",
            "label": "",
            "views": [],
            "order": order,
            "rows": rows,
            "runs": None,
            "bytes": size,
        }
        arrangements.append(entry)
    return arrangements
