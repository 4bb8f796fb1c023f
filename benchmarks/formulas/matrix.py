"""Lists the cases of the comparison of formulas, and their sizes.

All combinations of shape, n (number of atoms), changed relations, batch size and data would take
too long. Two sets of cases suffice. All n with small batch sizes show from which n on a recursive
formula is faster. A few n with all batch sizes, on larger relations, show from which batch size on.

Sizes are chosen so that most steps of the slowest formula stay within a second. The walks over a
cycle grow with the degree to the power n, so longer cycles have sparser relations. In a star of
eight atoms, the eighth power of a degree must fit an int64, so `Case.generate_rows` skews the data
of five and more atoms less.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.formulas.contest import Case

__all__ = ["ALL", "cases"]

# Of n relations the middle one changes, or all; or all atoms read the same one (a self-join).
CHANGED = ("one", "all", "self")
DATA = ("uniform", "skewed")

# Batch sizes.
SMALL = (1, 100, 1_000)
ALL = (1, 10, 100, 1_000, 10_000, 100_000)

# By shape and n: the scale (values are below 2 ** scale), and the number of rows of a relation.
BY_N: dict[str, dict[int, tuple[int, int]]] = {
    "star": {n: (12, 12_000) for n in range(2, 9)},
    "path": {n: (12, 8_000) for n in range(2, 9)},
    "cycle": {3: (11, 8_000), 4: (11, 5_000), **{n: (11, 3_000) for n in (5, 6, 7, 8)}},
    "clique": {3: (11, 8_000), 6: (11, 8_000), 10: (11, 6_000)},
}
BY_BATCH: dict[str, dict[int, tuple[int, int]]] = {
    "star": {5: (16, 120_000)},
    "path": {3: (16, 120_000), 6: (17, 120_000)},
    "cycle": {4: (16, 120_000)},
    "clique": {3: (16, 120_000)},
}
# By shape: n, scale and rows.
QUICK: dict[str, tuple[int, int, int]] = {
    "star": (3, 9, 900),
    "path": (5, 9, 900),
    "cycle": (4, 9, 900),
    "clique": (3, 9, 900),
}


def cases(*, quick: bool = False) -> Iterator[Case]:
    """Yield the cases, shape by shape.

    >>> len(list(cases())), len(list(cases(quick=True)))
    (168, 12)
    """
    if quick:
        for shape, (n, scale, rows) in QUICK.items():
            for changed in CHANGED:
                data = "skewed" if changed == "self" else "uniform"
                yield Case(shape, n, changed, data, scale, rows, (1, 100))
        return
    for sizes, batches in ((BY_N, SMALL), (BY_BATCH, ALL)):
        for shape, by_n in sizes.items():
            for n, (scale, rows) in by_n.items():
                for changed in CHANGED:
                    for data in DATA:
                        yield Case(shape, n, changed, data, scale, rows, batches)
