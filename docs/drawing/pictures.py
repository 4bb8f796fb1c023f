"""The pictures of the documentation, a function for each."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from circuits import compile_sql
from dbsp_wcoj.formulas import PARTIAL, DeltaTerm, Formula, Version, delta_terms
from dbsp_wcoj.reference.extenders import RelationExtender
from docs.drawing.canvas import Canvas
from streaming.distributed.planning.shares import JoinAtom, choose_shares

__all__ = ["PICTURES"]

KINDS = {Version.old: "old", Version.delta: "delta", Version.new: "new"}
LETTERS = {Version.old: "O", Version.delta: "d", Version.new: "N"}

ONE_SHOT = [name for name in Formula if not name.is_recursive]
RECURSIVE = [name for name in Formula if name.is_recursive]

# The graph of the pictures of joins.
EDGES = [(1, 2), (1, 3), (1, 5), (2, 3), (2, 4), (2, 5), (2, 6), (2, 7), (3, 5), (4, 6)]


def overview() -> str:
    """One step of the README's example: changed rows of three relations, and of two views."""
    schemas = {
        "orders": pa.schema({"nr": pa.int64(), "item": pa.string(), "price": pa.float64()}),
        "shipments": pa.schema({"nr": pa.int64(), "item": pa.string(), "carrier": pa.string()}),
        "invoices": pa.schema({"nr": pa.int64(), "item": pa.string(), "price": pa.float64()}),
    }
    views = """
        CREATE VIEW matched AS
            SELECT nr, item, carrier
            FROM orders JOIN shipments USING (nr, item) JOIN invoices USING (nr, item, price);
        CREATE VIEW waiting AS
            SELECT nr, count(*) AS items
            FROM orders o
            WHERE NOT EXISTS (SELECT 1 FROM shipments s WHERE s.nr = o.nr AND s.item = o.item)
            GROUP BY nr;
    """
    circuit = compile_sql(views, schemas)
    lamp = {"nr": 1, "item": "lamp", "price": 30.5}
    circuit.step({"orders": [{"nr": 1, "item": "desk", "price": 250.0}, lamp]})
    deltas = {"shipments": [{"nr": 1, "item": "lamp", "carrier": "rail"}], "invoices": [lamp]}
    changes = {name: delta.to_pylist() for name, delta in circuit.step(deltas).items()}

    canvas = Canvas(
        806, 236, "Changed rows of the inputs go in, changed rows of the views come out"
    )
    canvas.text(12, 22, "changed rows in", "bold")
    for place, (name, schema) in enumerate(schemas.items()):
        canvas.text(12, 56 + 64 * place, f"{name}({', '.join(schema.names)})", "small muted")
        _changed_rows(canvas, 12, 63 + 64 * place, 200, deltas.get(name, []))
        canvas.arrow(220, 74 + 64 * place, 284, 116)
    canvas.box(290, 36, 226, 168, "box")
    canvas.text(403, 62, "circuit", "bold", "middle")
    canvas.text(403, 88, "one N-way join per query,", "small", "middle")
    canvas.text(403, 106, "one term per changed relation", "small", "middle")
    canvas.cell(292, 124, 222, 26, "orders ⋈ shipments ⋈ invoices", "delta", "small mono")
    canvas.text(403, 174, "state: the input rows, sorted;", "small muted", "middle")
    canvas.text(403, 191, "no intermediate results", "small muted", "middle")
    canvas.text(594, 22, "changed rows of the views out", "bold")
    for place, (name, rows) in enumerate(changes.items()):
        names = [column for column in rows[0] if column != "weight"]
        canvas.arrow(520, 106 + 20 * place, 586, 76 + 80 * place)
        canvas.text(594, 56 + 80 * place, f"{name}({', '.join(names)})", "small muted")
        _changed_rows(canvas, 594, 63 + 80 * place, 200, rows)
    canvas.text(403, 226, "one Spark micro-batch = one exact step", "small muted", "middle")
    return canvas.svg()


def _changed_rows(
    canvas: Canvas, x: float, y: float, width: float, rows: list[dict[str, object]]
) -> None:
    """A line for each row: its weight, and its values."""
    for place, row in enumerate(rows):
        weight = int(str(row.get("weight", 1)))
        values = ", ".join(str(value) for name, value in row.items() if name != "weight")
        top = y + 25 * place
        canvas.cell(x, top, 34, 22, f"{weight:+d}", "new" if weight > 0 else "delta", "small mono")
        canvas.cell(x + 36, top, width - 36, 22, values, "box", "small mono")
    if not rows:
        canvas.text(x, y + 15, "no change", "small muted")


def zset() -> str:
    """Two Z-sets, and their sum."""
    canvas = Canvas(640, 190, "A relation, a delta, and their sum: weights are added row by row")
    tables = [
        ("old", "old", [("ann", "bob", 1), ("ann", "joe", 1), ("bob", "eve", 2)]),
        ("delta", "delta", [("ann", "joe", -1), ("bob", "eve", -1), ("joe", "eve", 1)]),
    ]
    total: dict[tuple[str, str], int] = {}
    for _, _, rows in tables:
        for a, b, weight in rows:
            total[a, b] = total.get((a, b), 0) + weight
    rows = [(a, b, weight) for (a, b), weight in sorted(total.items()) if weight]
    for number, (name, kind, shown) in enumerate([*tables, ("new = old + delta", "new", rows)]):
        x = 15 + 215 * number
        canvas.text(x, 24, name, "bold")
        for column, (head, width) in enumerate([("src", 55), ("dst", 55), ("weight", 60)]):
            left = x + sum([55, 55, 60][:column])
            canvas.text(left + width / 2, 48, head, "small muted", "middle")
            for place, row in enumerate(shown):
                value = f"{row[2]:+d}" if column == 2 else str(row[column])
                canvas.cell(left, 56 + 32 * place, width, 32, value, kind, "mono")
        if number:
            canvas.text(x - 23, 110, "+" if number == 1 else "=", "large", "middle")
    return canvas.svg()


def square() -> str:
    """The delta of a join of two relations, as an area cut in different ways."""
    canvas = Canvas(700, 250, "N1 N2 minus O1 O2 is an area in the shape of an L; formulas cut it")
    cuts = {
        Formula.expanded: [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 1)],
        Formula.collapsed: [(1, 0, 1, 2), (0, 1, 1, 1)],
        Formula.flipped: [(1, 0, 1, 1), (0, 1, 2, 1)],
    }
    sizes = [110, 50]
    for number, (formula, pieces) in enumerate(cuts.items()):
        x, y = 50 + 225 * number, 50
        canvas.text(x, 24, str(formula), "bold")
        canvas.cell(x, y, sizes[0], sizes[0], "O1 O2", "old")
        names = [" ".join(map(str, term.factors)) for term in delta_terms(formula, 2)]
        for left, top, wide, high in pieces:
            span = [Version.old, Version.delta]
            first = Version.new if wide == 2 else span[left]
            second = Version.new if high == 2 else span[top]
            name = f"{LETTERS[first]}1 {LETTERS[second]}2"
            assert name in names, f"{formula} has no {name}: {names}"
            names.remove(name)
            canvas.cell(
                x + sum(sizes[:left]),
                y + sum(sizes[:top]),
                sum(sizes[left : left + wide]),
                sum(sizes[top : top + high]),
                name,
                "delta",
            )
        assert not names, f"{formula} has {names} as well"
        canvas.text(x + 55, y - 8, "O1", "small muted", "middle")
        canvas.text(x + 135, y - 8, "d1", "small muted", "middle")
        canvas.text(x - 12, y + 60, "O2", "small muted", "end")
        canvas.text(x - 12, y + 140, "d2", "small muted", "end")
    canvas.text(50, 236, "The orange area is the delta; each piece is one join.", "small muted")
    return canvas.svg()


def formulas() -> str:
    """The products of the six formulas over three relations, a column for each relation."""
    products = {name: [term for term in delta_terms(name, 3) if term.joins] for name in Formula}
    most = [max(len(products[name]) for name in row) for row in (ONE_SHOT, RECURSIVE)]
    tops = [20, 20 + 22 * most[0] + 60]
    canvas = Canvas(
        700,
        tops[1] + 22 * most[1] + 40,
        "The products of the six delta formulas of three relations",
    )
    for top, names in zip(tops, (ONE_SHOT, RECURSIVE), strict=True):
        for x, name in zip((15, 245, 475), names, strict=True):
            joins = sum(term.joins for term in products[name])
            canvas.text(x, top + 4, str(name), "bold")
            canvas.text(
                x, top + 21, f"{len(products[name])} products, {joins} joins", "small muted"
            )
            for place, term in enumerate(products[name]):
                _product(canvas, x, top + 30 + 22 * place, term)
    return canvas.svg()


def _product(canvas: Canvas, x: float, y: float, term: DeltaTerm) -> None:
    """A line of a box for each relation; a partial delta covers all that it has joined."""
    canvas.text(x, y + 15, f"D{term.target} +=", "small mono muted")
    for factor in term.factors:
        if factor == PARTIAL:
            width = 38 * (term.target - 1) - 2
            canvas.cell(x + 55, y, width, 20, f"D{term.target - 1}", "partial", "small mono")
        else:
            left = x + 55 + 38 * factor.atom
            canvas.cell(left, y, 36, 20, str(factor), KINDS[factor.version], "small mono")


def join() -> str:
    """The generic join binding the variables of a triangle, one after the other."""
    canvas = Canvas(720, 330, "The generic join finds triangles variable by variable")
    first = RelationExtender(EDGES, [0, 1])  # e(a, b)
    second = RelationExtender(EDGES, [1, 2])  # e(b, c)
    third = RelationExtender(EDGES, [0, 2])  # e(a, c)

    canvas.text(15, 24, "1  bind a", "bold")
    values = sorted(set(first.propose([])) & set(third.propose([])))
    _row(canvas, 15, 36, "from e(a, ·)", values, "new")

    canvas.text(15, 110, "2  extend a = 1 by b", "bold")
    candidates = list(first.propose([1]))
    _row(canvas, 15, 122, "e(1, b) proposes", candidates, "old")
    left = second.intersect([1], candidates)
    _row(canvas, 15, 152, "e(b, ·) lets through", candidates, "new", kept=set(left))

    canvas.text(15, 222, "3  extend (1, 2) by c", "bold")
    few, many = list(third.propose([1, 2])), list(second.propose([1, 2]))
    assert third.count([1, 2]) < second.count([1, 2])
    _row(canvas, 15, 234, f"e(1, c): {len(few)}, so it proposes", few, "old")
    kept = second.intersect([1, 2], few)
    _row(canvas, 15, 264, f"e(2, c): {len(many)}, so it intersects", few, "new", kept=set(kept))
    triangles = ", ".join(f"(1, 2, {c})" for c in kept)
    canvas.text(15, 318, f"Triangles with a = 1, b = 2: {triangles}", "mono")

    for number, (a, b) in enumerate(EDGES):
        x, y = 560 + 62 * (number % 2), 44 + 26 * (number // 2)
        canvas.cell(x, y, 58, 22, f"{a} → {b}", "box", "small mono")
    canvas.text(560, 24, "the relation e", "bold")
    return canvas.svg()


def _row(
    canvas: Canvas,
    x: float,
    y: float,
    label: str,
    values: list[int],
    kind: str,
    kept: set[int] | None = None,
) -> None:
    canvas.text(x, y + 18, label, "small")
    for place, value in enumerate(values):
        shown = kind if kept is None or value in kept else "off"
        words = "mono" if shown != "off" else "mono muted"
        canvas.cell(x + 190 + 34 * place, y, 32, 26, str(value), shown, words)


def spine() -> str:
    """An arrangement: runs of growing size, and the views of a step as lists of runs."""
    canvas = Canvas(
        700, 200, "An arrangement is a list of sorted runs; old and new are lists of them"
    )
    runs = [
        ("run 1", 300, "old"),
        ("run 2", 120, "old"),
        ("run 3", 45, "old"),
        ("delta", 16, "delta"),
    ]
    x = 15.0
    places = []
    for name, width, kind in runs:
        canvas.box(x, 50, width, 44, kind)
        canvas.text(x + width / 2, 42, name, "small", "middle")
        places.append((x, width))
        x += width + 22
    for y, name, last in [
        (118, "old: runs 1 to 3", 2),
        (152, "new: runs 1 to 3 and the delta", 3),
    ]:
        end = places[last][0] + places[last][1]
        canvas.line(15, y, end, y)
        canvas.line(15, y - 5, 15, y + 5)
        canvas.line(end, y - 5, end, y + 5)
        canvas.text(20, y + 18, name, "small")
    canvas.text(15, 20, "e in the order (src, dst)", "bold")
    return canvas.svg()


def hypercube() -> str:
    """The cells of a triangle's grid, and those that a row of each atom is sent to."""
    cells = 8
    atoms = [
        JoinAtom("e1", {"a": 0, "b": 1}, 1),
        JoinAtom("e2", {"b": 0, "c": 1}, 1),
        JoinAtom("e3", {"a": 0, "c": 1}, 1),
    ]
    shares = choose_shares(atoms, cells)
    parts = [shares.by_variable[name] for name in ("a", "b", "c")]
    assert parts == [2, 2, 2], parts
    canvas = Canvas(720, 262, "Eight cells; each row is sent to the two cells of a line")
    wanted = {
        "e(a, b) with a in 0, b in 1": lambda a, b, c: (a, b) == (0, 1),
        "e(b, c) with b in 1, c in 0": lambda a, b, c: (b, c) == (1, 0),
        "e(a, c) with a in 0, c in 0": lambda a, b, c: (a, c) == (0, 0),
    }
    for number, (name, is_wanted) in enumerate(wanted.items()):
        x, y = 40 + 235 * number, 215
        canvas.text(x - 15, 28, name, "small bold")
        for a in (1, 0):  # far to near
            for c in (0, 1):
                for b in (0, 1):
                    _cube(canvas, x + 62 * b + 36 * a, y - 62 * c - 26 * a, 52, is_wanted(a, b, c))
    canvas.text(
        25,
        250,
        "a, b and c are hashed into two parts each. Only cell (0, 1, 0) has all three rows.",
        "small muted",
    )
    return canvas.svg()


def _cube(canvas: Canvas, x: float, y: float, size: float, is_wanted: bool) -> None:
    kind, deep = "delta" if is_wanted else "box", size * 0.28
    canvas.shape(
        [
            (x, y - size),
            (x + deep, y - size - deep),
            (x + size + deep, y - size - deep),
            (x + size, y - size),
        ],
        kind,
    )
    canvas.shape(
        [
            (x + size, y - size),
            (x + size + deep, y - size - deep),
            (x + size + deep, y - deep),
            (x + size, y),
        ],
        kind,
    )
    canvas.box(x, y - size, size, size, kind, 0)


def flow() -> str:
    """The way of one micro-batch."""
    canvas = Canvas(806, 180, "A micro-batch: Spark, decode, step, write, commit, targets")
    steps = [
        ("Spark", "one toArrow()", "box"),
        ("decode", "feeds, bad rows", "box"),
        ("step", "delta of each view", "delta"),
        ("write", "runs and deltas", "box"),
        ("commit", "one rename", "new"),
        ("targets", "each batch once", "box"),
    ]
    for number, (name, what, kind) in enumerate(steps):
        x = 12 + 132 * number
        canvas.box(x, 60, 114, 62, kind)
        canvas.text(x + 57, 86, name, "bold", "middle")
        canvas.text(x + 57, 106, what, "small muted", "middle")
        if number:
            canvas.arrow(x - 17, 91, x - 1, 91)
    canvas.text(12, 36, "one micro-batch", "bold")
    canvas.line(12, 140, 522, 140)
    canvas.text(267, 160, "a failure here: no effect", "small", "middle")
    canvas.line(540, 140, 786, 140)
    canvas.text(663, 160, "a failure here: done, published again", "small", "middle")
    return canvas.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "flow": flow,
    "formulas": formulas,
    "hypercube": hypercube,
    "join": join,
    "overview": overview,
    "spine": spine,
    "square": square,
    "zset": zset,
}
