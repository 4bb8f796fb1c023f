"""State: what each arrangement of a circuit holds, in memory or on disk."""

from __future__ import annotations

import re
from typing import Any, Final

from circuits import Circuit
from streaming.sink.metrics import BatchMetrics

__all__ = ["arrangements_of", "arrangements_on_disk"]

_ORDER: Final = re.compile(r"(.*) \[([\d,]*)\]")


def arrangements_of(circuit: Circuit) -> list[dict[str, Any]]:
    """Rows, runs and bytes of each arrangement, for JSON, as of the last commit.

    Empty where the circuit has never been stepped in this process: then its state is elsewhere, or
    there is none.

    Complexity:
        O(arrangements · log rows).
    """
    found: list[dict[str, Any]] = []
    state = circuit.committed
    if not state.steps:
        return found
    for name in state.traces:
        for arrangement in state.trace(name).arrangements:
            runs = arrangement.spine.runs
            found.append(
                {
                    "name": name,
                    "order": list(arrangement.order),
                    "rows": sum(run.rows for run in runs),
                    "runs": len(runs),
                    "bytes": sum(run.nbytes for run in runs),
                }
            )
    return found


def arrangements_on_disk(metrics: BatchMetrics) -> list[dict[str, Any]]:
    """The same by what was written, for a circuit whose cells are on executors.

    >>> metrics = BatchMetrics(0, False, {}, {}, 0, 0, {}, 0, {"stage 1 relation e [1,0]": (3, 99)})
    >>> arrangements_on_disk(metrics)
    [{'name': 'stage 1 relation e', 'order': [1, 0], 'rows': 3, 'runs': None, 'bytes': 99}]
    """
    found = []
    for name, (rows, size) in metrics.arrangements.items():
        ordered = _ORDER.fullmatch(name)
        order = [int(one) for one in ordered[2].split(",") if one] if ordered else []
        what = ordered[1] if ordered else name
        found.append({"name": what, "order": order, "rows": rows, "runs": None, "bytes": size})
    return found
