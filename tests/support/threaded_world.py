"""Runs a circuit in many threads, and compares it with a model in plain Python.

The model is the list of the versions of the circuit, as bags of rows. A writer adds the next
version while it holds the circuit's write lock, before it commits. Suppose that a read begins after
version ``low`` was committed, and ends when version ``high`` is the last one added: it must return
a version from ``low`` to ``high``. The versions that one reader sees never decrease.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from circuits import BusyCircuitError, Circuit, StaleStepError, compile_sql, udf

__all__ = ["Reader", "World", "Writer"]

SCHEMA = pa.schema(
    [
        ("a", pa.string()),
        ("b", pa.string()),
        ("c", pa.string()),
        ("d", pa.int64()),
        ("l", pa.list_(pa.int64())),
    ]
)
VIEWS = """
    CREATE VIEW counts AS SELECT a, count(*) AS n, sum(d) AS s, max(c) AS m FROM e GROUP BY a;
    CREATE VIEW paths AS
        SELECT x.a, y.b, x.c AS c, y.c AS o, x.d + y.d AS d FROM e x JOIN e y ON x.b = y.a;
    CREATE VIEW named AS SELECT DISTINCT a || '>' || b AS name FROM e;
    CREATE VIEW top AS SELECT c FROM e ORDER BY c DESC LIMIT 3;
    CREATE VIEW ranked AS
        SELECT a, c, row_number() OVER w AS n, sum(d) OVER w AS s, lag(c) OVER w AS p
        FROM e WINDOW w AS (PARTITION BY a ORDER BY c);
    CREATE VIEW called AS SELECT a, backwards(c) AS t FROM e;
    CREATE VIEW listed AS
        SELECT a, list(c ORDER BY c) AS cs, {'n': count(*)} AS s FROM e GROUP BY a;
    CREATE VIEW parts AS SELECT a, c, u.x AS x FROM e, unnest(e.l) AS u(x);
    CREATE VIEW sessions AS
        SELECT a, SESSION_START(d, 8) AS t, count(*) AS n FROM e GROUP BY a, SESSION(d, 8);
"""
GAP = 8  # of a session
NODES = "pqrstu"
MAX_VERSIONS = 4000  # older ones are dropped; no reader falls that far behind

Row = tuple[str, str, str, int, tuple[int, ...]]
Bag = Counter


def hashable(value: Any) -> Any:
    """Return a value in a form that can be a key of a Counter: lists and structs become tuples."""
    if isinstance(value, list):
        return tuple(map(hashable, value))
    if isinstance(value, dict):
        return tuple(map(hashable, value.values()))
    return value


def bag_of(table: pa.Table) -> Bag:
    """Return the rows of a table with their weights."""
    *columns, weights = (column.to_pylist() for column in table.columns)
    bag: Bag = Counter()
    for row, weight in zip(zip(*columns, strict=True), weights, strict=True):
        bag[hashable(list(row))] += weight
    return nonzero(bag)


def backwards(text: str) -> str:
    return text[::-1]


def counts(e: Bag) -> Bag:
    groups: dict[str, list[tuple[Row, int]]] = {}
    for row, weight in e.items():
        groups.setdefault(row[0], []).append((row, weight))
    return Counter(
        (a, sum(w for _, w in rows), sum(w * r[3] for r, w in rows), max(r[2] for r, _ in rows))
        for a, rows in groups.items()
    )


def paths(e: Bag) -> Bag:
    rows: Bag = Counter()
    for (a, b, c, d, _), weight in e.items():
        for (b2, a2, c2, d2, _), weight2 in e.items():
            if b == b2:
                rows[a, a2, c, c2, d + d2] += weight * weight2
    return rows


def named(e: Bag) -> Bag:
    return Counter({(f"{a}>{b}",) for a, b, *_ in e})


def top(e: Bag) -> Bag:
    return Counter((c,) for c in sorted((row[2] for row in e.elements()), reverse=True)[:3])


def reachable(e: Bag) -> Bag:
    pairs = {(a, b) for a, b, *_ in e}
    while new_pairs := {(x, z) for x, y in pairs for a, z in pairs if y == a} - pairs:
        pairs |= new_pairs
    return Counter(pairs)


def ranked(e: Bag) -> Bag:
    answer: Bag = Counter()
    for a, rows in by_node(e).items():
        total, previous = 0, None
        for number, (_, _, c, d, _) in enumerate(sorted(rows, key=lambda row: row[2]), 1):
            total += d
            answer[a, c, number, total, previous] += 1
            previous = c
    return answer


def called(e: Bag) -> Bag:
    return summed(((a, backwards(c)), w) for (a, _, c, *_), w in e.items())


def listed(e: Bag) -> Bag:
    return Counter(
        (a, tuple(sorted(row[2] for row in rows)), (len(rows),)) for a, rows in by_node(e).items()
    )


def parts(e: Bag) -> Bag:
    return summed(((a, c, x), w) for (a, _, c, _, xs), w in e.items() for x in xs)


def sessions(e: Bag) -> Bag:
    answer: Bag = Counter()
    for a, rows in by_node(e).items():
        start, last, count = 0, None, 0
        for d in sorted(row[3] for row in rows):
            if last is not None and d - last <= GAP:
                count += 1
            else:
                if count:
                    answer[a, start, count] += 1
                start, count = d, 1
            last = d
        answer[a, start, count] += 1
    return answer


def by_node(e: Bag) -> dict[str, list[Row]]:
    """Return the rows of each a, each as often as its weight says."""
    nodes: dict[str, list[Row]] = {}
    for row in e.elements():
        nodes.setdefault(row[0], []).append(row)
    return nodes


#: The rows of the input and of each view, computed from the rows of the input.
ORACLES: dict[str, Callable[[Bag], Bag]] = {
    "e": lambda e: e,
    "counts": counts,
    "paths": paths,
    "named": named,
    "top": top,
    "ranked": ranked,
    "called": called,
    "listed": listed,
    "parts": parts,
    "sessions": sessions,
}


class World:
    """The circuit and its versions.

    Args:
        options: Options of the circuit.

    Attributes:
        versions: The rows of the input in each version, by its number.
        high: The number of the last version that was added.
        low: The number of the last version that was committed.
        events: How often each kind of event has occurred, such as an abandoned step.
    """

    def __init__(self, **options: Any) -> None:
        self.circuit: Circuit = compile_sql(
            VIEWS,
            {"e": SCHEMA},
            materialize=True,
            functions={"backwards": udf(backwards, returns=pa.string())},
            **options,
        )
        self.versions: dict[int, Bag] = {0: Counter()}
        self.high = 0
        self.low = 0
        self._lock = threading.Lock()
        self.events: Counter = Counter()

    def add(self, bag: Bag) -> int:
        """Add the next version; only the holder of the write lock calls this."""
        number = self.high + 1
        self.versions[number] = bag
        self.versions.pop(number - MAX_VERSIONS, None)
        self.high = number
        return number

    def record_commit(self, number: int) -> None:
        """Record that readers must see this version or a later one."""
        with self._lock:
            self.low = max(self.low, number)

    @property
    def newest(self) -> tuple[int, Bag]:
        number = self.high
        return number, self.versions[number]


class Writer:
    """A thread that commits or abandons steps, and restores earlier states.

    Args:
        world: The circuit to write to.
        seed: The seed of its choices.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.seed = seed
        self.rows_drawn = 0
        self.saved: tuple[Any, Bag] | None = None

    def __call__(self) -> None:
        """Do one random write: a step, or another operation."""
        choice = self.random.random()
        if choice < 0.03 and self.saved is not None:
            self._restore()
        elif choice < 0.06:
            self._save()
        elif choice < 0.1:
            self._prepare_twice()
        else:
            self._step()

    def _changes(self, bag: Bag) -> Bag:
        """Draw rows to delete and rows to insert."""
        pick = self.random
        changes: Bag = Counter()
        for row in pick.sample(sorted(bag), min(len(bag), pick.randrange(4 + len(bag) // 8))):
            changes[row] -= bag[row]
        for _ in range(pick.randrange(1, 5)):
            self.rows_drawn += 1
            text = f"{pick.randrange(10**6):06} of {self.seed}, {self.rows_drawn}"
            numbers = tuple(pick.randrange(9) for _ in range(pick.randrange(3)))
            nodes = pick.choice(NODES), pick.choice(NODES)
            changes[*nodes, text, pick.randrange(100), numbers] += 1
        return changes

    def _table(self, changes: Bag) -> pa.Table:
        columns = list(zip(*changes, strict=True))
        table = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), SCHEMA)
        return table.append_column("weight", pa.array(changes.values(), pa.int64()))

    def _step(self) -> None:
        world = self.world
        for _ in range(100):
            number, bag = world.newest
            changes = self._changes(bag)
            try:
                step = world.circuit.prepare(
                    {"e": self._table(changes)}, timeout=self.random.choice([None, None, 0, 0.01])
                )
            except BusyCircuitError:
                world.events["busy"] += 1
                continue
            if world.high != number:  # another thread was faster
                world.events["abandoned"] += 1
                if self.random.random() < 0.8:
                    step.abandon()
                continue
            after = bag.copy()
            after.update(changes)
            after = +after  # drops rows of weight zero
            number = world.add(after)
            for name, table in step.outputs.items():
                delta = ORACLES[name](after).copy()
                delta.subtract(ORACLES[name](bag))
                assert nonzero(bag_of(table)) == nonzero(delta), name
            step.commit()
            world.record_commit(number)
            world.events["steps"] += 1
            return

    def _prepare_twice(self) -> None:
        """Prepare two steps of one version, and check that only one of them can be committed."""
        world = self.world
        _, bag = world.newest
        first = world.circuit.prepare({"e": self._table(self._changes(bag))})
        second = world.circuit.prepare({})
        if self.random.random() < 0.5:
            first.abandon()
        number = world.add(world.newest[1])
        second.commit()
        world.record_commit(number)
        try:
            first.commit()
        except StaleStepError:
            world.events["stale"] += 1
        else:
            raise AssertionError("two steps of one version were committed")

    def _save(self) -> None:
        guard = self.world.circuit.prepare({})  # holds the write lock
        self.saved = self.world.circuit.snapshot(), self.world.newest[1]
        guard.abandon()

    def _restore(self) -> None:
        assert self.saved is not None
        snapshot, bag = self.saved
        guard = self.world.circuit.prepare({})  # holds the write lock
        number = self.world.add(bag)
        self.world.circuit.restore(snapshot)
        self.world.record_commit(number)
        self.world.events["restored"] += 1
        del guard


class Reader:
    """A thread that reads in one way, again and again, and compares with the model.

    Args:
        world: The circuit to read from.
        kind: One of `KINDS`.
        seed: The seed of its choices.
    """

    #: The ways to read: the methods of these names with an underscore, or any of them.
    KINDS = ("views", "queries", "snapshots", "elsewhere", "explained", "mixed")

    def __init__(self, world: World, kind: str, seed: int) -> None:
        self.world = world
        self.kind = kind
        self.random = random.Random(seed)
        self.seen = 0
        self.reads = 0

    def __call__(self) -> None:
        """Read once."""
        kind = self.kind
        if kind == "mixed":
            kind = self.random.choice(self.KINDS[:-1])
        low = self.world.low
        results = getattr(self, f"_{kind}")()
        high = self.world.high
        for number in range(max(low, self.seen), high + 1):
            bag = self.world.versions[number]
            if all(oracle(bag) == nonzero(rows) for oracle, rows in results):
                self.seen = number
                self.reads += 1
                return
        raise AssertionError(
            f"{self.kind}: no version from {max(low, self.seen)} to {high} is {results}"
        )

    def _views(self) -> list[tuple[Callable[[Bag], Bag], Bag]]:
        views = self.world.circuit.views
        names = self.random.sample(list(ORACLES), len(ORACLES))
        return [(ORACLES[name], bag_of(views[name])) for name in names]

    def _queries(self) -> list[tuple[Callable[[Bag], Bag], Bag]]:
        n = self.random.randrange(10**9)
        node = self.random.choice(NODES)
        queries: list[tuple[str, Callable[[Bag], Bag]]] = [
            (
                f"SELECT a || '{n}' || c AS t, d FROM e",
                lambda e: summed(((a + str(n) + c, d), w) for (a, _, c, d, _), w in e.items()),
            ),
            (
                f"SELECT c FROM e WHERE a = '{node}' OR c = '{n:06} of 0, 1'",
                lambda e: summed(((c,), w) for (a, _, c, *_), w in e.items() if a == node),
            ),
            (
                f"SELECT b || '{n}' AS g, count(*) AS n, min(c) AS m FROM e GROUP BY 1",
                lambda e: Counter((b + str(n), k, c) for b, k, c in count_and_least_c(e)),
            ),
            (
                "SELECT x.a, y.b, x.c AS c, y.c AS o, x.d + y.d AS d "
                "FROM e x JOIN e y ON x.b = y.a",
                paths,
            ),
            (
                f"SELECT a || '{n}' AS a, c, row_number() OVER w AS n, sum(d) OVER w AS s, "
                "lag(c) OVER w AS p FROM e WINDOW w AS (PARTITION BY a ORDER BY c)",
                lambda e: Counter((a + str(n), *row) for a, *row in ranked(e)),
            ),
            (
                f"SELECT a, backwards(c) || '{n}' AS t FROM e",
                lambda e: Counter((a, t + str(n)) for a, t in called(e)),
            ),
            (
                f"SELECT a, list(c || '{n}' ORDER BY c) AS cs, {{'n': count(*)}} AS s "
                "FROM e GROUP BY a",
                lambda e: Counter((a, tuple(c + str(n) for c in cs), s) for a, cs, s in listed(e)),
            ),
            ("SELECT a, c, unnest(l) AS x FROM e", parts),
            (
                f"SELECT a || '{n}' AS a, SESSION_START(d, {GAP}) AS t, count(*) AS n "
                f"FROM e GROUP BY 1, SESSION(d, {GAP})",
                lambda e: Counter((a + str(n), *row) for a, *row in sessions(e)),
            ),
            (
                "WITH RECURSIVE t(a, b) AS (SELECT a, b FROM e UNION "
                "SELECT t.a, e.b FROM t JOIN e ON t.b = e.a) SELECT a, b FROM t",
                reachable,
            ),
            ("t(x, y) :- e(x, y, _, _, _). t(x, z) :- t(x, y), e(y, z, _, _, _).", reachable),
        ]
        text, oracle = self.random.choice(queries)
        return [(oracle, bag_of(self.world.circuit.query(text)))]

    def _snapshots(self) -> list[tuple[Callable[[Bag], Bag], Bag]]:
        snapshot = self.world.circuit.snapshot()
        other = Circuit(self.world.circuit.spec)
        other.restore(snapshot)
        return [(ORACLES[name], bag_of(table)) for name, table in other.views.items()]

    def _elsewhere(self) -> list[tuple[Callable[[Bag], Bag], Bag]]:
        """Continue from a snapshot in another circuit."""
        other = Circuit(self.world.circuit.spec)
        other.load(pickle.loads(pickle.dumps(self.world.circuit.snapshot())).state())
        row = ("p", "q", f"elsewhere {self.random.randrange(10**9)}", 1, (1, 2))
        other.step(
            {"e": pa.table({n: [v] for n, v in zip(SCHEMA.names, row, strict=True)}, SCHEMA)}
        )

        def with_row(oracle: Callable[[Bag], Bag]) -> Callable[[Bag], Bag]:
            return lambda e: oracle(e + Counter([row]))

        return [(with_row(ORACLES[name]), bag_of(table)) for name, table in other.views.items()]

    def _explained(self) -> list[tuple[Callable[[Bag], Bag], Bag]]:
        circuit = self.world.circuit
        text = circuit.explain() + circuit.explain("mermaid")
        assert "bind" in text and "flowchart" in text
        assert circuit.schema("top").columns == ("c",)
        row = {"a": ["p"], "b": ["q"], "c": [f"never {self.random.random()}"], "d": [1], "l": [[1]]}
        assert circuit.digests({"e": pa.table(row, SCHEMA)})["e"]
        return []


def count_and_least_c(e: Bag) -> list[tuple[str, int, str]]:
    """Return for each b the number of its rows, and the least c."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for (_, b, c, *_), weight in e.items():
        groups.setdefault(b, []).append((c, weight))
    return [(b, sum(w for _, w in rows), min(c for c, _ in rows)) for b, rows in groups.items()]


def summed(pairs: Any) -> Bag:
    total: Bag = Counter()
    for row, weight in pairs:
        total[row] += weight
    return total


def nonzero(bag: Bag) -> Bag:
    return Counter({row: weight for row, weight in bag.items() if weight})
