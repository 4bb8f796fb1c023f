"""Simulated streams: small circuits, micro-batches of changes, and the expected deltas of views.

A ``Case`` is a circuit with an oracle in plain Python. A ``Stream`` is a seeded list of
micro-batches for it, with the delta of every view in each, by recomputation. Streams are cached,
because a few of them serve thousands of schedules of crashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa

from circuits import Circuit, compile_datalog, compile_sql
from circuits.inputs.input_options import InputOptions, Retention
from streaming.targets.output_mode import OutputMode

Row = tuple[Any, ...]
Bag = Counter[Row]
INT, TEXT, MONEY = pa.int64(), pa.string(), pa.decimal128(9, 2)
# Longer than the prefix of a text that the engine keeps to order it by.
LONG = "a name that is longer than what is kept of a text to order it by, number "

#: A relation, a row and its weight.
Change = tuple[str, Row, int]


def add_changes(relations: Mapping[str, Bag], changes: list[Change]) -> dict[str, Bag]:
    """Return the relations after a micro-batch if their inputs have no keys or retention."""
    after = {name: Counter(bag) for name, bag in relations.items()}
    for name, row, weight in changes:
        after[name][row] += weight
    return {name: sum_bags([bag]) for name, bag in after.items()}


@dataclass(frozen=True)
class Case:
    """A circuit, the generator of its changes, and the oracle of its views.

    Attributes:
        compile: Compiles the circuit.
        schemas: The inputs.
        row: Draws a row of a relation, given the number of the micro-batch.
        views: Computes the views from the relations.
        apply: Returns the relations after a micro-batch.
        count_late: Counts the late rows of a micro-batch, given the relations before.
        modes: Output modes of views that a schedule may use instead of ``delta``.
    """

    compile: Callable[[], Circuit]
    schemas: Mapping[str, pa.Schema]
    row: Callable[[Random, str, int], Row]
    views: Callable[[Mapping[str, Bag]], dict[str, Bag]]
    apply: Callable[[Mapping[str, Bag], list[Change]], dict[str, Bag]] = add_changes
    count_late: Callable[[Mapping[str, Bag], list[Change]], int] = lambda relations, changes: 0
    modes: Mapping[str, OutputMode] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """The micro-batches of a case, with the deltas and the contents of the views after each.

    The last micro-batch deletes all rows, so that its deltas show if any part of the state was
    wrong.

    Attributes:
        name: The name of the case.
        tables: The tables of the micro-batches, as Spark passes them to a sink.
        deltas: The delta of each view, by micro-batch.
        views: The rows of each view after each micro-batch.
        late: The number of late rows of each micro-batch.
    """

    name: str
    tables: list[pa.Table]
    deltas: list[dict[str, Bag]]
    views: list[dict[str, Bag]]
    late: list[int]


def sum_bags(bags) -> Bag:
    total: Bag = Counter()
    for bag in bags:
        for row, weight in bag.items():
            total[row] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


LINK = schema(src=INT, dst=INT)
TRIANGLES = """
    CREATE VIEW tri AS SELECT ab.src AS a, bc.src AS b, ac.dst AS c
    FROM link ab JOIN link bc ON bc.src = ab.dst
        JOIN link ac ON ac.src = ab.src AND ac.dst = bc.dst;
    CREATE VIEW n AS SELECT count(*) AS n FROM tri
"""


def link_row(random: Random, relation: str, batch: int) -> Row:
    return (random.randrange(6), random.randrange(6))


def triangles(relations: Mapping[str, Bag]) -> dict[str, Bag]:
    link = relations["link"]
    rows: Bag = Counter()
    for (a, b), x in link.items():
        for (b2, c), y in link.items():
            if b == b2 and (a, c) in link:
                rows[a, b, c] += x * y * link[a, c]
    return {"tri": rows, "n": Counter({(sum(rows.values()),): 1})}


SALES = {
    "sale": schema(nr=INT, person=TEXT, amount=MONEY),
    "home": schema(person=TEXT, city=TEXT),
}
CITIES = """
    SELECT city, count(*) AS n, sum(amount) AS amount, max(person) AS last
    FROM sale LEFT JOIN home USING (person) GROUP BY city
"""


def sales_row(random: Random, relation: str, batch: int) -> Row:
    long = LONG if random.random() < 0.3 else ""
    person = random.choice([None, "", "ä", f"{long}{random.randrange(3 + batch)}"])
    if relation == "home":
        return (person, random.choice([None, "Rom", "Köln", f"city {random.randrange(1 + batch)}"]))
    amount = random.choice([None, Decimal(random.randrange(-999, 9999)).scaleb(-2)])
    return (random.randrange(20), person, amount)


def cities(relations: Mapping[str, Bag]) -> dict[str, Bag]:
    groups: dict[str | None, Bag] = {}
    for (_, person, amount), weight in relations["sale"].items():
        home = relations["home"].items() if person is not None else ()
        homes = [(city, n) for (who, city), n in home if who == person]
        for city, n in homes or [(None, 1)]:
            groups.setdefault(city, Counter())[person, amount] += weight * n
    return {"view": Counter({city_row(city, group): 1 for city, group in groups.items()})}


def city_row(city: str | None, group: Bag) -> Row:
    amounts = [amount * n for (_, amount), n in group.items() if amount is not None]
    people = [person.encode() for person, _ in group if person is not None]
    total = sum(amounts, Decimal(0)) if amounts else None
    return (city, sum(group.values()), total, max(people).decode() if people else None)


WORDS = {"link": schema(src=TEXT, dst=TEXT), "closed": schema(node=TEXT)}
REACHED = """
    two(a, c) :- link(a, b), link(b, c), not closed(b).
    near(a, c) :- link(a, c).
    near(a, c) :- two(a, c).
"""


def word_row(random: Random, relation: str, batch: int) -> Row:
    words = [f"{LONG if n % 3 == 0 else 'w'}{n}" for n in range(4 + batch // 4)]
    return tuple(random.choice(words) for _ in WORDS[relation])


def reached(relations: Mapping[str, Bag]) -> dict[str, Bag]:
    link, closed = relations["link"], {node for (node,) in relations["closed"]}
    two = {(a, c) for a, b in link for b2, c in link if b == b2 and b not in closed}
    return {"two": Counter(dict.fromkeys(two, 1)), "near": Counter(dict.fromkeys({*link, *two}, 1))}


VISITS = {"visit": schema(nr=INT, ts=INT), "person": schema(nr=INT, name=TEXT)}
RULES = {"visit": InputOptions(retain=Retention("ts", 10)), "person": InputOptions(keys=("nr",))}
RECENT = """
    SELECT name, count(*) AS n, max(ts) AS ts FROM visit JOIN person USING (nr) GROUP BY name
"""


SEEN = "the greatest time seen"  # kept beside the relations; no rows are drawn for it


def visit_row(random: Random, relation: str, batch: int) -> Row:
    if relation == "person":
        return (
            random.randrange(6),
            random.choice([None, "", f"{LONG}{random.randrange(batch + 1)}"]),
        )
    age = random.choice([0, 0, 0, 0, 0, 9, 14])
    return (random.randrange(6), 3 * batch + random.randrange(5) - age)


def count_late_visits(relations: Mapping[str, Bag], changes: list[Change]) -> int:
    watermark = max((ts for (ts,) in relations.get(SEEN, ())), default=-100) - 10
    return sum(weight for name, row, weight in changes if name == "visit" and row[1] < watermark)


def apply_constraints(relations: Mapping[str, Bag], changes: list[Change]) -> dict[str, Bag]:
    """Return the last row of each person, and the visits of the last ten units of time."""
    seen = max((ts for (ts,) in relations.get(SEEN, ())), default=-100)
    on_time = [c for c in changes if c[0] == "visit" and c[1][1] >= seen - 10]
    after = add_changes({"visit": relations["visit"]}, on_time)
    newest = max([seen, *(row[1] for _, row, weight in on_time if weight > 0)])
    people = {nr: name for nr, name in relations["person"]}
    for relation, (nr, name), weight in changes:
        if relation == "person" and weight > 0:
            people[nr] = name
        elif relation == "person":
            people.pop(nr, None)
    visits = {row: n for row, n in after["visit"].items() if row[1] >= newest - 10}
    return {
        "visit": Counter(visits),
        "person": Counter(dict.fromkeys(people.items(), 1)),
        SEEN: Counter([(newest,)]),
    }


def recent(relations: Mapping[str, Bag]) -> dict[str, Bag]:
    people = dict(relations["person"].keys())
    counts: Counter[str | None] = Counter()
    last: dict[str | None, int] = {}
    for (nr, ts), n in relations["visit"].items():
        if nr in people:
            name = people[nr]
            counts[name] += n
            last[name] = max(ts, last.get(name, ts))
    return {"view": Counter({(name, n, last[name]): 1 for name, n in counts.items()})}


ROWS = {"r": schema(k=INT, name=TEXT)}


def plain_row(random: Random, relation: str, batch: int) -> Row:
    return (random.randrange(4), random.choice([None, "", f"{LONG}{random.randrange(batch + 1)}"]))


def filtered(relations: Mapping[str, Bag]) -> dict[str, Bag]:
    return {"view": Counter({row: n for row, n in relations["r"].items() if row[0] > 0})}


CASES: dict[str, Case] = {
    "rows": Case(
        lambda: compile_sql("SELECT * FROM r WHERE k > 0", ROWS, materialize=["view"]),
        ROWS,
        plain_row,
        filtered,
        modes={"view": OutputMode("complete")},
    ),
    "triangles": Case(
        lambda: compile_sql(TRIANGLES, {"link": LINK}, materialize=True),
        {"link": LINK},
        link_row,
        triangles,
    ),
    "cities": Case(lambda: compile_sql(CITIES, SALES), SALES, sales_row, cities),
    "reached": Case(
        lambda: compile_datalog(REACHED, WORDS, materialize=["near"]),
        WORDS,
        word_row,
        reached,
        modes={"near": OutputMode("complete")},
    ),
    "recent": Case(
        lambda: compile_sql(RECENT, VISITS, input_options=RULES, materialize=True),
        VISITS,
        visit_row,
        recent,
        apply_constraints,
        count_late_visits,
        {"view": OutputMode("upsert", ["name"])},
    ),
}


@cache
def stream(name: str, seed: int, *, long: bool = False) -> Stream:
    """Draw a stream of the case: inserts, deletes of present rows, repeated rows, empty batches."""
    case, random = CASES[name], Random(f"{name} {seed}")
    length = random.choice([8, 12, 20, 40] if long else [2, 3, 4, 5, 6])
    relations: dict[str, Bag] = {relation: Counter() for relation in case.schemas}
    views: list[dict[str, Bag]] = []
    tables, late = [], []
    for batch in range(length + 1):
        is_last = batch == length
        changes = (
            delete_all(case, relations) if is_last else draw_changes(case, random, relations, batch)
        )
        tables.append(table_of(case.schemas, changes))
        late.append(case.count_late(relations, changes))
        relations = case.apply(relations, changes)
        views.append(case.views(relations))
    before = [{view: Counter() for view in views[0]}, *views]
    deltas = [
        {view: sum_bags([new[view], negate(old[view])]) for view in new}
        for old, new in zip(before, views, strict=False)
    ]
    return Stream(name, tables, deltas, views, late)


def draw_changes(
    case: Case, random: Random, relations: Mapping[str, Bag], batch: int
) -> list[Change]:
    changes: list[Change] = []
    relations = {name: Counter(bag) for name, bag in relations.items()}
    for _ in range(random.choice([0, 1, 1, 3, 5, 10, 20])):
        relation = random.choice(list(case.schemas))
        bag = relations[relation]
        present = [row for row, weight in bag.items() if weight]
        if present and random.random() < 0.4:
            row, weight = random.choice(present), -1
        else:
            row, weight = case.row(random, relation, batch), random.choice([1, 1, 1, 2])
        bag[row] += weight
        changes.append((relation, row, weight))
    if case.schemas is VISITS:  # one change per key, because changes of a key have no order
        keys = {row[0]: (name, row, weight) for name, row, weight in changes if name == "person"}
        changes = [*keys.values(), *(change for change in changes if change[0] == "visit")]
    random.shuffle(changes)
    return changes


def delete_all(case: Case, relations: Mapping[str, Bag]) -> list[Change]:
    return [(name, row, -n) for name in case.schemas for row, n in relations[name].items()]


def table_of(schemas: Mapping[str, pa.Schema], changes) -> pa.Table:
    """The rows of all relations as one table, tagged if there are several."""
    columns: dict[str, pa.DataType] = {}
    for schema_ in schemas.values():
        columns |= {field.name: field.type for field in schema_}
    rows = [
        {**dict(zip(schemas[relation].names, row, strict=True)), "weight": weight}
        | ({"relation": relation} if len(schemas) > 1 else {})
        for relation, row, weight in changes
    ]
    if len(schemas) > 1:
        columns["relation"] = TEXT
    return pa.Table.from_pylist(rows, pa.schema([*columns.items(), ("weight", INT)]))


def published_rows(stream: Stream, view: str, batch: int, mode: str, keys: Sequence[str]) -> Bag:
    """Return the rows that a target must receive; keys are the first columns of the view."""
    if mode == "complete":
        return stream.views[batch][view]
    delta = stream.deltas[batch][view]
    if mode == "delta":
        return delta
    current = {row[: len(keys)]: row for row, weight in delta.items() if weight > 0}
    deleted = [row for row in delta if row[: len(keys)] not in current]
    return Counter(dict.fromkeys(current.values(), 1) | dict.fromkeys(deleted, -1))


def negate(bag: Bag) -> Bag:
    return Counter({row: -weight for row, weight in bag.items()})
