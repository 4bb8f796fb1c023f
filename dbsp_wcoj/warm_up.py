"""Warm-up: compile all kernels before they are needed, at installation or before the first step.

Kernels are the functions that numba compiles to machine code. They are compiled once for all
queries (100 CPU seconds) and cached on disk beside their sources, or in ``NUMBA_CACHE_DIR``; a
later process loads them in a fraction of a second. Without a warm-up, the first steps of a view
compile them.

numba compiles for the argument types of a call, including the layout of arrays. So the warm-up
calls the same functions as a step. Only the kernels of the modules ``digits``, ``group_changes``,
``group_sums``, ``linear_aggregate`` and ``select_rows`` of `dbsp_wcoj.kernels.values` are called
directly, because the functions that use them are in the package `circuits`. Kernels that only a
profiler runs, and those of Spark's hash functions, are left out.
"""

from __future__ import annotations

import numpy as np

from dbsp_wcoj.delta_query import DeltaQuery
from dbsp_wcoj.execution.chain_product import (
    MIN_DELTA_ROWS,
    ChainProduct,
    ChainProducts,
    find_chain,
)
from dbsp_wcoj.execution.list_loop import ListLoop, find_list_rule
from dbsp_wcoj.execution.program_compiler import SUM_KERNELS
from dbsp_wcoj.execution.semijoins import FIRST_CHOICE_ROWS
from dbsp_wcoj.generic_join import generic_join, parse_query
from dbsp_wcoj.kernels.compilation import address_of
from dbsp_wcoj.kernels.json import scan, values
from dbsp_wcoj.kernels.storage.run_layout import MIN_DIRECTORY_NODES
from dbsp_wcoj.kernels.storage.trie import run_words
from dbsp_wcoj.kernels.values import select_rows
from dbsp_wcoj.kernels.values.digits import split_numbers, sum_to_floats, sum_to_integers
from dbsp_wcoj.kernels.values.group_changes import (
    distinct_keys,
    first_slot_weights,
    replaced_results,
    rows_of_slots,
    split_at_step,
)
from dbsp_wcoj.kernels.values.group_sums import add_by_group, number_groups
from dbsp_wcoj.kernels.values.linear_aggregate import (
    CALL_WORDS,
    QUANTITY_WORDS,
    compute_results,
    sum_quantities,
)
from dbsp_wcoj.kernels.values.presence_changes import change_presence
from dbsp_wcoj.kernels.values.running_best import change_improvements
from dbsp_wcoj.kernels.values.split_iterations import split_and_delay
from dbsp_wcoj.storage.group_lookup import group_slots
from dbsp_wcoj.storage.grouped_rows import GroupedPairs
from dbsp_wcoj.storage.key_runs import KeyRunBuilder
from dbsp_wcoj.storage.least_values import LeastValues
from dbsp_wcoj.storage.list_bitmaps import build_list_bitmaps
from dbsp_wcoj.storage.nearest import NearestRows
from dbsp_wcoj.storage.pair_sort import sort_dense_pairs
from dbsp_wcoj.storage.parallel_build import write_in_parts
from dbsp_wcoj.storage.parallel_sort import ParallelSort
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.rank_search import RankSearch
from dbsp_wcoj.storage.row_keys import KeyLayout, RowKeySet
from dbsp_wcoj.storage.row_ranges import RowRanges
from dbsp_wcoj.storage.run import Merge, Run
from dbsp_wcoj.storage.trace import Trace, build_run
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.zset import ZSet, sort_scratch

__all__ = ["warm_up"]


def warm_up() -> None:
    """Compile, or load from the cache, every kernel that steps run.

    >>> warm_up()
    """
    _warm_up_joins()
    _warm_up_interners()
    _warm_up_groups()
    _warm_up_json()


def _warm_up_joins() -> None:
    triangles = "n() :- e(a, b), e(b, c), e(a, c)"
    view = DeltaQuery(triangles)
    rows = ZSet.from_rows([(1, 2), (2, 3), (1, 3)])
    for delta in (rows, rows, -rows):
        view.step({"e": delta})
    view.prepare({"e": rows}).commit()
    for kernel in SUM_KERNELS.values():
        address_of(kernel)
    numbers = np.arange(65)
    sources = np.concatenate((np.zeros(65, np.int64), np.repeat(numbers[1:], 2)))
    for step in (1, 64):  # close values are packed; of distant ones, some are deferred
        targets = step * np.concatenate((numbers, np.tile([0, 1], 64)))
        generic_join(triangles, {"e": ZSet.from_columns([sources, targets])})
    DeltaQuery("q(a, b) :- e(a, b)").step({"e": rows})
    labelled = DeltaQuery("n() :- e(a, b), l(a)")
    nodes = np.arange(FIRST_CHOICE_ROWS)
    labelled.step({"e": ZSet.from_columns([nodes, nodes]), "l": ZSet.from_rows([(1,)])})
    labelled.step({"e": rows})  # the view reduces its relation after the first step
    trace = Trace(2)
    trace.update(rows)
    chain = find_chain(parse_query("q(a, c) :- e(a, b), d(b, c)"), "d")
    assert chain is not None
    delta = ZSet.from_columns([np.arange(MIN_DELTA_ROWS)] * 2)
    product = ChainProducts().multiply_parts(chain, Trace(2).prepare(delta), {"e": trace})
    assert product is not None and isinstance(product.source, ChainProduct)
    layout, key_set = KeyLayout((1, 0), (2, 10)), RowKeySet(12)
    bitmap = key_set.bitmap(1 << 12)
    assert bitmap is not None
    for keys in product.source.derive_keys(layout, bitmap):
        key_set.count_added(len(keys.new_keys))
        layout.decode_narrow(keys.new_keys)
    key_set.rows(layout)
    product.sorted()
    rule = find_list_rule(parse_query("q(a, c, i) :- e(a, b), d(b, c, i)"), "d", ["a", "c", "i"])
    trace.arrange((1, 0))
    assert rule is not None
    loop = ListLoop.bind([rule], {"e": trace})
    assert loop is not None
    for _ in loop.run(np.array([1]), KeyLayout((1, 1), (2, 2)), np.array([1]), 1):
        pass
    trace.weights_of(rows)
    NearestRows(trace).before(rows.row_array)
    RankSearch([trace]).find(rows.row_array[:1, :1], np.zeros(1, np.int64))
    trace.to_zset()
    run = build_run(rows, (1, 0))
    build_list_bitmaps(run)
    Merge(run, run).work()
    Run.merged(run, run)
    Run.sum_of([run, run])
    columns = np.tile(np.arange(MIN_DIRECTORY_NODES), (2, 1))
    weights = np.arange(1, MIN_DIRECTORY_NODES + 1)
    bounds = np.ones(1, np.uint64)
    ParallelSort(list(columns), weights, bounds, lowest=[0, 0], bits=[5, 5]).sort()
    sort_dense_pairs(np.zeros(4, np.int64), np.zeros(4, np.int64))
    GroupedPairs.of(np.zeros(4, np.int64), np.zeros(4, np.int64))
    write_in_parts(columns, weights, np.zeros(run_words(2, len(weights)), np.int64), parts=2)


def _warm_up_interners() -> None:
    text = np.frombuffer(b"annbob", np.uint8)
    names = Interner()
    codes = names.intern(np.array([0, 3, 6]), text)
    names.find(np.array([0, 3, 6]), text)
    names.gather(codes)
    names.prefixes(codes)
    names.hashes(codes)
    names.begin_sweep().mark(codes[1:])
    names.advance_sweep(work=100_000)
    names.gather(names.find(np.array([3, 6]), text))
    names.intern(np.array([0, 3, 6]), text)
    names.truncate(2)
    interner = Interner()
    rows = np.arange(200).reshape(1, -1)  # so many that the interner grows
    interner.rows(interner.intern_rows(rows))


def _warm_up_groups() -> None:
    trace = Trace(2)
    rows = ZSet.from_rows([(1, 2), (1, 3)])
    keys = np.array([[1]])
    trace.update(rows)
    prefix_lookup(trace, keys, limit=1, step=trace.prepare(rows))
    change_improvements(
        *(np.zeros(1, np.int64), np.zeros((2, 1), np.int64), *np.zeros((2, 1), np.int64)),
        *np.empty((4, 2), np.int64),
    )
    change_presence(np.zeros((1, 1), np.int64), *np.zeros((4, 1), np.int64))
    split_and_delay(np.zeros((1, 1), np.int64), *np.zeros((2, 1), np.int64))
    group_indices, slot_rows, weights = split_at_step(*prefix_lookup(trace, keys), 1)
    group_slots(trace, keys)
    first_slot_weights(group_indices, slot_rows[0], weights, 1, 1, 1)
    rows_of_slots(group_indices, slot_rows[0], weights, 0, 1)
    distinct_keys(rows.row_array, 1)
    replaced_results(keys, np.ones(2, np.bool_), np.ones((1, 2), np.int64), False)
    for key_bits in (1, 60):  # a bitmap, and sorted arrays
        key_set = RowKeySet(key_bits)
        for key in (0, 1):  # the second batch is compared and merged with the first one
            key_set.add_absent(np.array([key]))
    words, one_key = np.array([[0], [1]]), np.empty(1, np.uint32)
    RowKeySet(1).add_rows(ZSet.from_rows([(0, 1)]), words, one_key, after=0, max_weight=1)
    LeastValues(1).lower(np.array([1]))
    builder = KeyRunBuilder(KeyLayout((0,), (1,)), rows=1, keys=1)
    builder.append([np.array([1])], [0], [None])
    builder.finish()
    ranges = RowRanges(trace)
    ranges.read(ranges.seek(keys), ranges.seek(keys, after=True))
    # Sums of groups: the number 5 of weight 1, split into digits and summed again. 2**-1074 is the
    # least positive float64, and the unit of the digits of floats.
    weight = np.ones(1, np.int64)
    number_indices, positions, amounts = np.empty((3, 8), np.int64)
    count = split_numbers(
        np.array([[5]]), np.empty(0, np.int64), weight, number_indices, positions, amounts
    )
    digits = number_indices[:count].copy(), positions[:count].copy(), amounts[:count].copy()
    sum_to_integers(*digits, np.zeros((1, 1), np.int64), np.ones(1, np.bool_))
    sum_to_floats(*digits, weight, 0, -1074, np.zeros(1), np.zeros(1, np.int64))
    number_groups(keys, 1, np.full(4, -1), number_indices, positions)
    program = np.array([[select_rows.BETWEEN, 0, 0, 0, 9], [select_rows.COUNT, 0, 0, 0, 0]])
    select_rows.select_rows(
        *(rows.row_array, rows.weight_array, program, np.zeros(1, np.int64)),
        *(np.empty((1, 2), np.bool_), np.empty(2, np.int64), np.empty(2, np.int64)),
        np.empty(1, np.int64),
    )
    add_by_group(number_indices, *digits, 0, np.zeros((1, 1), np.int64))
    _, slot_rows, weights = sum_quantities(
        *(rows.row_array, rows.weight_array, np.zeros(1, np.int64)),
        *(np.empty(0, np.int64), np.empty(0, np.int64), np.zeros((1, QUANTITY_WORDS), np.int64)),
        *(0, 1, sort_scratch(1)),
    )
    groups = np.zeros(1, np.int64)
    calls = np.zeros((1, CALL_WORDS), np.int64)
    compute_results(groups, slot_rows[-1], weights, 1, calls, False, 1, 0, 1)


def _warm_up_json() -> None:
    """Scan the object ``{"a": 1}`` and read its member as every type."""
    text = np.frombuffer(bytearray(b'{"a": 1}'), np.uint8)
    name, ends = np.frombuffer(bytearray(b"a" + bytes(8)), np.uint8), np.array([1])
    hashes = np.empty(1, np.int64)
    scan.hash_names(name, ends, hashes)
    slots, rows = np.empty((1, 1, 3), np.int32), np.empty((1, 4), np.int32)
    cells = np.empty((1, 1, 3), np.int32)
    flags = np.zeros((5, 1), np.bool_)
    address = text.ctypes.data
    scratch = np.empty(scan.MAX_NAME_BYTES, np.uint8)
    members = np.array([[0, scan.SCALAR, 0, -1]])
    names = (name, ends, hashes, hashes, members, np.array([[0, 1]]), np.array([-1]))
    for role in (0, -1):  # as a row, and as an object with a slot
        scan.scan_objects(
            address, np.array([0, len(text)]), 0, *names, 0, role, scratch, slots, rows, cells,
            flags[0],
        )  # fmt: skip
    cells[:] = slots
    numbers, none = np.zeros(1, np.int64), np.full(1, -1)
    arguments = (address, cells, 0, numbers, none)
    results = (flags[1], flags[2])
    values.read_booleans(*arguments, flags[0], *results)
    values.read_integers(*arguments, values.AS_TEXT, 0, 9, numbers, *results)
    words = np.zeros((1, 2), np.int64)
    values.read_decimals(*arguments, values.AS_TEXT, 3, 0, words[0], scratch, words, *results)
    values.read_floats(*arguments, True, np.zeros(1), flags[1], flags[3], flags[2])
    values.read_times(*arguments, 0, 1, 1, 0, numbers, *results)
    two_ends = np.zeros(2, np.int64)
    values.measure_texts(*arguments, 1, name, ends, two_ends, *results)
    values.copy_texts(*arguments, *results, two_ends, scratch)
    for decode in (values.decode_base64, values.decode_hex, values.decode_latin1):
        decode(scratch, two_ends, flags[1], scratch, two_ends, flags[2])
    values.compare_cells(address, cells, ends - 1, numbers, none, numbers, flags[3], flags[4])
    values.group_texts(address, slots, ends - 1, flags[0], numbers, numbers)
