"""List loop: runs the small iterations of a recursion whose rules only look up lists.

A `ListRule` joins the rows that an iteration has added with relations of two columns, each of which
is looked up by a value of the row. The kernel (`dbsp_wcoj.kernels.join.list_loop`) runs iteration
after iteration in one call, on rows that are packed into keys::

    closure(x, z) :- added(x, y), edge(y, z)
    same_generation(x, y) :- edge(a, x), added(a, b), edge(b, y)

It is for few rows: outside of the loop, planning and Python take most of the time of an iteration
of a few thousand rows. Iterations with more than `MAX_DERIVATIONS` derivations are left to the
caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dbsp_wcoj.kernels.join import list_loop as kernels
from dbsp_wcoj.query import Query, Variable
from dbsp_wcoj.storage.row_keys import KeyLayout
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder, Trace
from dbsp_wcoj.zset import MAX_INT64, Int64Array

__all__ = [
    "MAX_KEY_BITS",
    "MAX_KNOWN_KEYS",
    "ListIterations",
    "ListLoop",
    "ListRule",
    "ListValue",
    "find_list_rule",
]

MAX_KEY_BITS: Final = kernels.MAX_KEY_BITS
# The most columns of a row, without the iteration.
MAX_COLUMNS: Final = 2
# An iteration with more derivations is not run.
MAX_DERIVATIONS: Final = 1 << 14
# The most iterations of a call of the kernel.
MAX_ITERATIONS_AT_ONCE: Final = 1 << 10
#: With more known keys, iterations are left to the caller: their hash table is not in the cache.
MAX_KNOWN_KEYS: Final = 1 << 17
# A hash table has at least so many places; when it is rebuilt, at least so many for each key.
MIN_TABLE_PLACES: Final = 1 << 12
PLACES_PER_KEY: Final = 8
# A loop uses no larger relation, because it finds the least and the greatest of its values first.
MAX_RELATION_ROWS: Final = 1 << 17


class ListRelation(NamedTuple):
    """A relation of a rule.

    Attributes:
        name: The relation.
        order: The column order of its lists: first the column by which it is looked up.
        column: The column of the row whose value is looked up.
    """

    name: str
    order: ColumnOrder
    column: int


class ListValue(NamedTuple):
    """A value of a derived row.

    Attributes:
        is_list: True for a value of a list, False for one of the row that is joined.
        number: The position of the relation in the rule, or of the column in the row.
    """

    is_list: bool
    number: int


@dataclass(frozen=True)
class ListRule:
    """A rule that joins a row with the lists of its values.

    Attributes:
        relations: One or two relations.
        head: The values of a derived row, without its iteration.
    """

    relations: tuple[ListRelation, ...]
    head: tuple[ListValue, ...]


def find_list_rule(query: Query, delta: str, head: Sequence[str]) -> ListRule | None:
    """Return a join as a rule.

    It joins the delta with one or two relations of two columns, each by one variable.

    Args:
        query: The join.
        delta: The relation that changes. Its last column is the iteration.
        head: The variables of the derived row, in its order. The last one is the iteration.

    Returns:
        The rule; None if the join has another form.

    >>> query = Query.parse("q(x, z, i) :- e(x, y), d(y, z, i)")
    >>> find_list_rule(query, "d", query.head).relations
    (ListRelation(name='e', order=(1, 0), column=0),)
    >>> find_list_rule(Query.parse("q(x, i) :- d(x, i), e(x, y)"), "d", ["x", "i"]) is None
    True
    """
    if query.comparisons:
        return None
    atoms: list[tuple[str, list[str]]] = []
    for atom in query.body:
        names = [term.name for term in atom.terms if isinstance(term, Variable)]
        if len(names) != len(atom.terms) or len(set(names)) < len(names):
            return None
        atoms.append((atom.relation, names))
    if [relation for relation, _ in atoms].count(delta) != 1:
        return None
    (row,) = (names for relation, names in atoms if relation == delta)
    others = [atom for atom in atoms if atom[0] != delta]
    *row, iteration = row
    *derived, last = head
    if last != iteration or not 1 <= len(row) == len(derived) <= MAX_COLUMNS:
        return None
    if not 1 <= len(others) <= kernels.MAX_RELATIONS:
        return None
    relations, lists = [], []
    for relation, names in others:
        found = [position for position, name in enumerate(names) if name in row]
        if len(names) != 2 or len(found) != 1 or iteration in names:
            return None
        (position,) = found
        lists.append(names[1 - position])
        relations.append(
            ListRelation(relation, (position, 1 - position), row.index(names[position]))
        )
    if len(set(lists)) < len(lists) or not set(lists) <= set(derived) <= {*lists, *row}:
        return None
    values = [
        ListValue(True, lists.index(name)) if name in lists else ListValue(False, row.index(name))
        for name in derived
    ]
    return ListRule(tuple(relations), tuple(values))


class ListIterations(NamedTuple):
    """Some iterations.

    Attributes:
        log: The different keys of each iteration, one iteration after the other, and how often the
            iteration has derived each; shape ``(2, n)``. This array and the next three are valid
            until the next iterations run.
        ends: The end of the keys of each iteration in ``log``.
        joined: The keys of the rows that the iterations have joined with lists, one iteration after
            the other.
        joined_ends: The end of those of each iteration in ``joined``.
        derived: For each rule, the number of its derivations.
        added: The keys that were not known, in any order.
    """

    log: npt.NDArray[np.uint32]
    ends: Int64Array
    joined: npt.NDArray[np.uint32]
    joined_ends: Int64Array
    derived: Sequence[int]
    added: Int64Array


class ListLoop:
    """The rules of a recursion, bound to relations that do not change during its iterations.

    Attributes:
        remaining: After `run`: the keys that the last iteration has added, in any order.
    """

    def __init__(self, rules: Sequence[ListRule], runs: Sequence[Sequence[Run] | None]) -> None:
        self._rules = rules
        # The runs of each rule; None if one of its relations is empty.
        self._runs = runs
        self._list_ranges = [
            None if of_rule is None else [_range_of(run) for run in of_rule] for of_rule in runs
        ]
        self.remaining: Int64Array = np.empty(0, np.int64)

    @staticmethod
    def bind(rules: Sequence[ListRule], traces: Mapping[str, Trace]) -> ListLoop | None:
        """Bind the rules to the runs of their relations.

        Returns:
            The loop; None if a relation is not arranged as its rule needs it, or has more than
            `MAX_RELATION_ROWS` rows, several runs, or weights other than 1.

        Complexity:
            O(rows of the relations).
        """
        runs: list[list[Run] | None] = []
        for rule in rules:
            of_rule: list[Run] | None = []
            for relation in rule.relations:
                trace = traces[relation.name]
                if not trace.has_arrangement(relation.order):
                    return None
                visible = [run for run in trace.visible_runs(relation.order) if run.rows]
                if not visible:
                    of_rule = None
                    break
                (run, *others) = visible
                is_small = not others and run.rows <= MAX_RELATION_ROWS
                if not is_small or run.max_abs_weight != 1 or not run.has_equal_positive_weights:
                    return None
                assert of_rule is not None
                of_rule.append(run)
            runs.append(of_rule)
        return ListLoop(rules, runs)

    def extremes(self, layout: KeyLayout) -> Int64Array:
        """Return bounds of the values that each column of a derived row can have.

        Args:
            layout: A layout that fits the first rows.
        """
        ranges = [
            (low, min(low + (1 << bits) - 1, MAX_INT64))
            for low, bits in zip(layout.lowest, layout.bits, strict=True)
        ]
        for _ in ranges:  # once for each column: a value may move through all of them
            for rule, of_lists in zip(self._rules, self._list_ranges, strict=True):
                if of_lists is None:
                    continue
                for column, (is_list, number) in enumerate(rule.head):
                    low, high = of_lists[number] if is_list else ranges[number]
                    lowest, highest = ranges[column]
                    ranges[column] = min(low, lowest), max(high, highest)
        return np.array(ranges, np.int64)

    def run(
        self,
        keys: Int64Array,
        layout: KeyLayout,
        known: Int64Array,
        max_iterations: int,
        max_derivations: int = MAX_INT64,
    ) -> Iterator[ListIterations]:
        """Run iterations until none adds a key, or a limit is reached.

        An iteration with more than `MAX_DERIVATIONS` derivations is not run, nor one that exceeds
        ``max_derivations`` or might lead to more than `MAX_KNOWN_KEYS` known keys.

        Args:
            keys: The keys of the rows that the last iteration has added, at least one.
            layout: A layout of at most `MAX_KEY_BITS` bits that fits `extremes`.
            known: All keys that are known, with these.
            max_iterations: At most so many iterations are run.
            max_derivations: All of them together have at most so many derivations.

        Yields:
            The results of one call of the kernel.
        """
        self.remaining = keys
        if len(keys) > MAX_DERIVATIONS:
            return
        rows = np.empty(2 * MAX_DERIVATIONS, np.uint32)
        lists = np.empty((4 * len(self._rules), MAX_DERIVATIONS), np.int64)
        log = np.empty((2, MAX_DERIVATIONS), np.uint32)
        ends = np.empty((2, MAX_ITERATIONS_AT_ONCE), np.int64)
        used = [k for k, runs in enumerate(self._runs) if runs is not None]
        words = np.array([self._rule_words(k, layout) for k in used], np.int64)
        words = words.reshape(len(used), kernels.RULE_WORDS)
        missing = MAX_COLUMNS - len(layout.bits)
        key_words = np.array([[0] * missing + [*layout.lowest], [0] * missing + [*layout.bits]])
        table = _HashTable(known)
        table.reserve(len(keys))
        count = len(keys)
        rows[:count] = keys
        while count and max_iterations:
            old, counts = count, np.zeros(len(used), np.int64)
            iterations, first, count, needed = kernels.iterate_lists(
                rules=words,
                layout=key_words,
                table=table.places,
                positions=table.positions,
                shift=table.shift,
                known=table.size,
                rows=rows,
                first=0,
                count=count,
                lists=lists,
                max_iterations=min(max_iterations, ends.shape[1]),
                max_derivations=min(max_derivations, log.shape[1]),
                log=log,
                ends=ends,
                counts=counts,
            )
            if not iterations:
                most = min(max_derivations, log.shape[1])
                if needed > most or table.size + needed > MAX_KNOWN_KEYS:
                    return
                table.reserve(needed)
                continue
            derived = [0] * len(self._rules)
            for k, number in zip(used, counts.tolist(), strict=True):
                derived[k] = number
            max_iterations -= iterations
            max_derivations -= sum(derived)
            added = rows[old : first + count].astype(np.int64)
            table.record_added(added)
            self.remaining = rows[first : first + count].astype(np.int64)
            yield ListIterations(
                log, ends[0, :iterations], rows[:first], ends[1, :iterations], derived, added
            )
            rows[:count] = self.remaining

    def _rule_words(self, k: int, layout: KeyLayout) -> list[int]:
        """Return the words of a rule for the kernel."""
        rule, runs = self._rules[k], self._runs[k]
        assert runs is not None
        missing = MAX_COLUMNS - len(layout.bits)
        words = [0] * kernels.RULE_WORDS
        for number, (relation, run) in enumerate(zip(rule.relations, runs, strict=True)):
            word = kernels.RELATION_WORDS * number
            words[word + kernels.RUN] = run.address
            words[word + kernels.COLUMN] = relation.column + missing
        for (is_list, number), low, shift in zip(
            rule.head, layout.lowest, layout.shifts.tolist(), strict=True
        ):
            words[kernels.CONSTANT] -= low << shift
            if is_list:
                words[kernels.LIST_FACTORS + number] += 1 << shift
            else:
                words[kernels.COLUMN_FACTORS + missing + number] += 1 << shift
        # The kernel computes modulo 2**64; the constant is the number in int64 that is congruent.
        constant = words[kernels.CONSTANT] & ((1 << 64) - 1)
        words[kernels.CONSTANT] = constant - ((constant >> 63) << 64)
        return words


def _range_of(run: Run) -> tuple[int, int]:
    """Return the least and the greatest value of the lists of a run."""
    values = run.level_values(1)
    return int(values.min()), int(values.max())


class _HashTable:
    """A hash table of keys (`dbsp_wcoj.kernels.join.list_loop`)."""

    def __init__(self, keys: Int64Array) -> None:
        self._keys = [keys]
        self.size = len(keys)
        self.places: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self.positions: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self.shift = 0

    def reserve(self, keys: int) -> None:
        """Rebuild the table, with room for so many more keys."""
        places = max(PLACES_PER_KEY * (self.size + keys), MIN_TABLE_PLACES)
        bits = (places - 1).bit_length()
        self.places, self.positions = np.zeros((2, 1 << bits), np.uint32)
        self.shift = 32 - bits
        for part in self._keys:
            kernels.add_to_table(part, self.places, self.shift)

    def record_added(self, keys: Int64Array) -> None:
        """Record keys that the kernel has added."""
        self._keys.append(keys)
        self.size += len(keys)
