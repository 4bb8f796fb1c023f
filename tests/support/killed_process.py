"""A process that is killed with SIGKILL, and what it reads and writes: rows, files and a target.

The process dies at a call to the file system or a target, before, during or after it (`Plan`); or
its parent kills it after some time (`run_process`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa

from streaming import ViewDelta
from streaming.state.files import Bytes
from streaming.state.local_files import LocalFiles
from streaming.state.mapped.mapped_file import ScratchFile
from tests.support.tables import bag_of

SCHEMA = pa.schema({"src": pa.int64(), "dst": pa.int64(), "name": pa.string()})


@dataclass
class Plan:
    """When the job dies.

    Attributes:
        calls: The number of calls before its last one; None if the parent kills it.
        when: "before", "during" or "after" this call.
        phase: The phase whose calls count; empty for all calls.
        phases: The phases that are going on, if they are known.
    """

    calls: int | None
    when: str = "before"
    phase: str = ""
    phases: set[str] = field(default_factory=set)

    def point(self, when: str) -> bool:
        """Die here, or return whether to die in the middle of the call."""
        if self.calls is None or (self.phase and self.phase not in self.phases):
            return False
        if when == "before":
            self.calls -= 1
        if self.calls < 0 and when == self.when:
            die()
        return self.calls < 0 and self.when == "during"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


class KillingFiles(LocalFiles):
    """A state directory in which a call kills the process."""

    def __init__(self, location: Path, plan: Plan) -> None:
        super().__init__(str(location), 0o700)  # `compact_state` replaces files without a mode
        self._plan = plan

    def write(self, name: str, chunks: Iterable[Bytes]) -> None:
        if self._plan.point("before"):
            first = memoryview(next(iter(chunks))).cast("B")
            super().write(name, [first[: len(first) // 2]])
            die()
        super().write(name, chunks)
        self._plan.point("after")

    def scratch(self, folder: str, words: int) -> ScratchFile:
        self._plan.point("before")
        file = super().scratch(folder, words)
        self._plan.point("after")
        return file

    def rename_new(self, old: str, new: str) -> None:
        self._plan.point("before")
        super().rename_new(old, new)
        self._plan.point("after")

    def rename(self, old: str, new: str) -> None:
        self._plan.point("before")
        super().rename(old, new)
        self._plan.point("after")

    def remove(self, name: str) -> None:
        self._plan.point("before")
        super().remove(name)
        self._plan.point("after")


class FolderTarget:
    """A folder with a file for each micro-batch; the file of a whole view replaces older ones."""

    replaces_views = True

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan

    def write(self, delta: ViewDelta) -> None:
        self._plan.point("before")
        self._folder.mkdir(parents=True, exist_ok=True)
        rows = sorted(([list(row), n] for row, n in bag_of(delta.table).items()), key=repr)
        path = self._folder / f"{delta.batch_id}{'.whole' if delta.is_whole else ''}.json"
        if path.exists():
            assert json.loads(path.read_text()) == rows, f"{delta} was other rows before"
            return
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(rows))
        temporary.rename(path)
        self._plan.point("after")

    @staticmethod
    def rows(folder: Path) -> Counter:
        total: Counter = Counter()
        files = {int(path.name.split(".")[0]): path for path in folder.glob("*.json")}
        whole = [number for number, path in files.items() if path.name.endswith(".whole.json")]
        for number, path in files.items():
            if number < max(whole, default=0):
                continue
            for row, weight in json.loads(path.read_text()):
                total[tuple(row)] += weight
        return Counter({row: weight for row, weight in total.items() if weight})


class Source:
    """Micro-batches of insertions and deletions, a function of the seed.

    Args:
        seed: The seed.
        rows: The number of changes in each micro-batch.
        values: The number of different ``src`` and ``dst``.
        names: The number of different names.
        deletions: The share of deletions.
    """

    def __init__(
        self,
        seed: str,
        *,
        rows: int = 30,
        values: int = 60,
        names: int = 500,
        deletions: float = 0.2,
    ) -> None:
        self._rows, self._values, self._names = rows, values, names
        self._deletions = deletions
        self._random = Random(f"rows {seed}")
        self.live: list[tuple] = []
        self._tables: list[pa.Table] = []

    def table(self, number: int) -> pa.Table:
        while len(self._tables) <= number:
            self._tables.append(self._next())
        return self._tables[number]

    def live_after(self, number: int) -> list[tuple]:
        rows: Counter = Counter()
        for n in range(number + 1):
            for row in self.table(n).to_pylist():
                rows[row["src"], row["dst"], row["name"]] += row["weight"]
        return list(rows.elements())

    def _next(self) -> pa.Table:
        changes = []
        for _ in range(self._rows):
            if self.live and self._random.random() < self._deletions:
                row = self.live.pop(self._random.randrange(len(self.live)))
                changes.append((*row, -1))
            else:
                row = tuple(self._random.randrange(self._values) for _ in range(2))
                self.live.append((*row, f"name {self._random.randrange(self._names)}"))
                changes.append((*self.live[-1], 1))
        return table_of(changes)


def table_of(changes: list[tuple]) -> pa.Table:
    """Return rows of `SCHEMA`, each with its weight, as a table."""
    schema = SCHEMA.append(pa.field("weight", pa.int64()))
    columns = zip(*changes, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def run_process(
    body: Callable[[int], None], *, delay: float | None, phase: str = "", skip: int = 0
) -> tuple[bool, str]:
    """Run a process until it dies or ends; return whether it was killed, and what it wrote.

    Args:
        body: The function of the process; its argument is a pipe to which it writes letters.
        delay: Kill the process so many seconds after it has written a letter; None to let it end.
        phase: This letter; empty for the start of the process.
        skip: The number of these letters to let pass before.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(read_end)
            body(write_end)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(write_end)
    written, deadline = "", None
    while True:
        if delay is not None and (not phase or written.count(phase) > skip):
            deadline, delay = time.monotonic() + delay, None
        timeout = None if deadline is None else max(0, deadline - time.monotonic())
        ready, _, _ = select.select([read_end], [], [], timeout)
        if not ready:
            os.kill(pid, signal.SIGKILL)
            deadline = None
            continue
        data = os.read(read_end, 1)
        if not data:
            break
        written += data.decode()
    os.close(read_end)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return True, written
    if os.waitstatus_to_exitcode(status):
        raise SystemExit("the process failed: see above")
    return False, written
