"""Raw memory access for kernels: words at addresses, uncounted arrays, vectors of four values.

A run is one int64 buffer, and a join reads dozens of runs, whose number is known only at run time.
numba has no list of arrays without overhead, so a run is passed as its address and read through
these intrinsics. ``base`` is an address in bytes; ``i`` is an index in 8-byte words. Nothing is
bounds-checked. `borrow` and `keep_alive` pass an array without counting its references.

`count_block_matches` compares every pair of values of two sorted blocks of four with three vector
rotations (Inoue, Ohara, Taura, "Faster Set Intersection with SIMD Instructions by Reducing Branch
Mispredictions", PVLDB 8(3), 2014, section 3). `count_near_matches`, `count_mixed_matches` and
`count_narrow_matches` do the same with blocks of eight values, of which they compare 32 bits; they
differ in which of the two lists have narrow values. The vectors are generic LLVM vectors: any
processor can run them, and a processor with AVX2 needs one instruction per step.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

VECTOR_LANES = 4  # int64 values per vector
NARROW_LANES = 8  # values per vector of 32-bit numbers

_WORD = ir.IntType(64)
_HALF_WORD = ir.IntType(32)
_NARROW_VECTOR = ir.VectorType(_HALF_WORD, NARROW_LANES)


def _address(builder: Any, base: Any, index: Any, pointee: Any) -> Any:
    # A pointer and an index instead of integer arithmetic lets LLVM vectorize loops over `load`.
    word = builder.gep(builder.inttoptr(base, _WORD.as_pointer()), [index])
    return word if pointee is _WORD else builder.bitcast(word, pointee.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def load(typingctx: Any, base: Any, i: Any) -> Any:
    """Return the int64 at word ``i`` after address ``base``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(builder, args[0], args[1], _WORD))

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store(typingctx: Any, base: Any, i: Any, value: Any) -> Any:
    """Write ``value`` to word ``i`` after address ``base``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _address(builder, args[0], args[1], _WORD))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def load_narrow(typingctx: Any, values: Any, i: Any) -> Any:
    """Return the signed 32-bit number at half-word ``i`` after address ``values``, as an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load_narrow(builder, args[0], args[1])

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store_narrow(typingctx: Any, values: Any, i: Any, value: Any) -> Any:
    """Write the lower 32 bits of ``value`` to half-word ``i`` after address ``values``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store_narrow(builder, *args)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def load_value(typingctx: Any, values: Any, i: Any) -> Any:
    """Return number ``i`` of a list of words or of narrow values, given its tagged address.

    Bit 0 of a tagged address is set if the list has signed 32-bit numbers
    (`dbsp_wcoj.kernels.storage.level_values`). It is the same for all values of a list, so the
    branch is predicted, and LLVM moves it out of many loops.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, index = args
        with builder.if_else(builder.trunc(values, ir.IntType(1))) as (narrow, wide):
            with narrow:
                number = _load_narrow(builder, _without_tag(builder, values), index)
                narrow_end = builder.block
            with wide:
                word = builder.load(_address(builder, values, index, _WORD))
                wide_end = builder.block
        value = builder.phi(_WORD)
        value.add_incoming(number, narrow_end)
        value.add_incoming(word, wide_end)
        return value

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store_value(typingctx: Any, values: Any, i: Any, value: Any) -> Any:
    """Write number ``i`` of a list of words or of narrow values, given its tagged address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, index, value = args
        with builder.if_else(builder.trunc(values, ir.IntType(1))) as (narrow, wide):
            with narrow:
                _store_narrow(builder, _without_tag(builder, values), index, value)
            with wide:
                builder.store(value, _address(builder, values, index, _WORD))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


def _without_tag(builder: Any, values: Any) -> Any:
    # A narrow list: bit 0 is set.
    return builder.sub(values, _WORD(1))


def _narrow_address(builder: Any, values: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(values, _HALF_WORD.as_pointer()), [index])


def _load_narrow(builder: Any, values: Any, index: Any) -> Any:
    return builder.sext(builder.load(_narrow_address(builder, values, index)), _WORD)


def _store_narrow(builder: Any, values: Any, index: Any, value: Any) -> Any:
    pointer = _narrow_address(builder, values, index)
    builder.store(builder.trunc(value, _HALF_WORD), pointer)


@intrinsic  # type: ignore[untyped-decorator]
def increment(typingctx: Any, counters: Any, counter: Any, amount: Any) -> Any:
    """Add ``amount`` to word ``counter`` after address ``counters``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = _address(builder, args[0], args[1], _WORD)
        builder.store(builder.add(builder.load(word), args[2]), word)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def pointer_to_words(typingctx: Any, address: Any) -> Any:
    """Return a pointer to the words at an address, for `numba.carray`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _WORD.as_pointer())

    return types.CPointer(types.int64)(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def borrow(typingctx: Any, array: Any) -> Any:
    """Return an array without its reference count; the caller keeps the memory alive.

    numba counts the references to an array with an atomic instruction each time that it is passed
    to a subroutine, or a slice of it is taken. For a few rows this takes as long as the work.

    A function must not return an array that it got, or a slice of it, without saying so: if the
    array was borrowed, the result keeps no memory alive either. Its caller keeps the memory alive
    until the last use of the result, as `dbsp_wcoj.kernels.storage.arena.build_runs` does.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        borrowed = args[0]
        # The first two fields of numba's arrays are the counted memory and the Python object.
        for field in range(2):
            nothing = cgutils.get_null_value(borrowed.type.elements[field])
            borrowed = builder.insert_value(borrowed, nothing, field)
        return borrowed

    return array(array), codegen


@intrinsic  # type: ignore[untyped-decorator]
def keep_alive(typingctx: Any, array: Any) -> Any:
    """Keep the memory of an array until here, for `borrow`.

    numba frees the memory of a local array after the last statement that names it, so a subroutine
    that allocates an array and borrows it calls this after its last use.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_dummy_value()

    return types.none(array), codegen


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typingctx: Any, base: Any, i: Any) -> Any:
    """Prefetch the cache line of word ``i`` after address ``base``; any address is allowed."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.bitcast(
            _address(builder, args[0], args[1], _WORD), ir.IntType(8).as_pointer()
        )
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # Arguments: for reading, keep in all cache levels, data cache.
        builder.call(function, [pointer, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), codegen


def _load_lanes(builder: Any, base: Any, index: Any, lanes: int, *, is_narrow: bool) -> Any:
    """Load consecutive values as a vector of words, or of 32-bit numbers."""
    if is_narrow:
        pointer = _narrow_address(builder, base, index)
        vector = ir.VectorType(_HALF_WORD, lanes)
        return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)
    return builder.load(_address(builder, base, index, ir.VectorType(_WORD, lanes)), align=8)


def _find_equal(builder: Any, left: Any, right: Any, lanes: int) -> Any:
    """Return the mask of the lanes of ``left`` whose value is in any lane of ``right``."""
    # A value of the left block has a match if one of its differences is 0, so if the least is.
    # Rotations within halves of a vector of eight are faster than across it.
    differences = []
    for _ in range(lanes // VECTOR_LANES):
        for rotation in range(VECTOR_LANES):
            order = [
                lane - lane % VECTOR_LANES + (lane + rotation) % VECTOR_LANES
                for lane in range(lanes)
            ]
            differences.append(builder.xor(left, _rotate(builder, right, order)))
        right = _rotate(builder, right, [(lane + VECTOR_LANES) % lanes for lane in range(lanes)])
    while len(differences) > 1:
        differences = [
            builder.select(builder.icmp_unsigned("<", one, other), one, other)
            for one, other in zip(differences[::2], differences[1::2], strict=True)
        ]
    zeros = ir.Constant(ir.VectorType(_HALF_WORD, lanes), [0] * lanes)
    return builder.icmp_signed("==", differences[0], zeros)


def _count_lanes(builder: Any, matched: Any, lanes: int) -> Any:
    return builder.ctpop(builder.zext(builder.bitcast(matched, ir.IntType(lanes)), _WORD))


def _rotate(builder: Any, vector: Any, lanes: list[int]) -> Any:
    order = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(vector, vector, order)


@intrinsic  # type: ignore[untyped-decorator]
def count_block_matches(typingctx: Any, base_a: Any, i: Any, base_b: Any, j: Any) -> Any:
    """Return how many of the four values at ``a[i:]`` occur among the four at ``b[j:]``.

    Both blocks are strictly increasing, so each value matches at most once.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left = _load_lanes(builder, args[0], args[1], VECTOR_LANES, is_narrow=False)
        right = _load_lanes(builder, args[2], args[3], VECTOR_LANES, is_narrow=False)
        matched = builder.icmp_signed("==", left, right)
        for rotation in range(1, VECTOR_LANES):
            order = [(k + rotation) % VECTOR_LANES for k in range(VECTOR_LANES)]
            rotated = _rotate(builder, right, order)
            matched = builder.or_(matched, builder.icmp_signed("==", left, rotated))
        return _count_lanes(builder, matched, VECTOR_LANES)

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


def _make_matches(lanes: int, *, is_narrow_a: bool, is_narrow_b: bool) -> Any:
    """Return an intrinsic that counts the common values of two blocks, by their lower 32 bits."""
    narrow_vector = ir.VectorType(_HALF_WORD, lanes)

    @intrinsic  # type: ignore[untyped-decorator]
    def count_matches(typingctx: Any, base_a: Any, i: Any, base_b: Any, j: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            left = _load_lanes(builder, args[0], args[1], lanes, is_narrow=is_narrow_a)
            right = _load_lanes(builder, args[2], args[3], lanes, is_narrow=is_narrow_b)
            left = left if is_narrow_a else builder.trunc(left, narrow_vector)
            right = right if is_narrow_b else builder.trunc(right, narrow_vector)
            return _count_lanes(builder, _find_equal(builder, left, right, lanes), lanes)

        return types.int64(types.int64, types.int64, types.int64, types.int64), codegen

    return count_matches


#: Return how many of the eight words at ``a[i:]`` occur among the eight at ``b[j:]``.
#: Both blocks are strictly increasing, and all values of both are within a range of 2**32, so they
#: are equal if their lower 32 bits are.
count_near_matches = _make_matches(NARROW_LANES, is_narrow_a=False, is_narrow_b=False)
#: The same, for a block of narrow values and a block of words.
count_mixed_matches = _make_matches(NARROW_LANES, is_narrow_a=True, is_narrow_b=False)
#: The same, for two blocks of narrow values.
count_narrow_matches = _make_matches(NARROW_LANES, is_narrow_a=True, is_narrow_b=True)
#: The same, for four narrow values at each address.
count_short_matches = _make_matches(VECTOR_LANES, is_narrow_a=True, is_narrow_b=True)


def _load_part(builder: Any, base: Any, index: Any, end: Any, fill: Any) -> Any:
    """Load up to eight narrow values before ``end``; the other lanes are those of ``fill``.

    Returns the vector and the mask of the lanes that are loaded.
    """
    number = builder.sub(end, index)
    is_whole = builder.icmp_signed(">=", number, _WORD(NARROW_LANES))
    number = builder.trunc(builder.select(is_whole, _WORD(NARROW_LANES), number), _HALF_WORD)
    lanes = ir.Constant(_NARROW_VECTOR, list(range(NARROW_LANES)))
    mask = builder.icmp_signed("<", lanes, _fill_lanes(builder, number))
    pointer = builder.bitcast(_narrow_address(builder, base, index), _NARROW_VECTOR.as_pointer())
    masks = ir.VectorType(ir.IntType(1), NARROW_LANES)
    arguments = [_NARROW_VECTOR.as_pointer(), _HALF_WORD, masks, _NARROW_VECTOR]
    kind = ir.FunctionType(_NARROW_VECTOR, arguments)
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.load.v8i32.p0")
    return builder.call(function, [pointer, _HALF_WORD(4), mask, fill]), mask


def _fill_lanes(builder: Any, number: Any) -> Any:
    """Return a vector with a 32-bit number in each lane."""
    single = builder.insert_element(
        ir.Constant(_NARROW_VECTOR, ir.Undefined), number, _HALF_WORD(0)
    )
    zeros = ir.Constant(_NARROW_VECTOR, [0] * NARROW_LANES)
    return builder.shuffle_vector(single, single, zeros)


@intrinsic  # type: ignore[untyped-decorator]
def count_partial_matches(
    typingctx: Any, base_a: Any, i: Any, end_a: Any, base_b: Any, j: Any, end_b: Any
) -> Any:
    """Return how many of the next eight values of a list occur in the next eight of another one.

    The lists are narrow and end at ``end_a`` and ``end_b``, with at least one value left; nothing
    after these ends is read.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base_a, i, end_a, base_b, j, end_b = args
        left, mask = _load_part(builder, base_a, i, end_a, ir.Constant(_NARROW_VECTOR, None))
        # A lane without a value repeats the first value of its block.
        first = builder.load(_narrow_address(builder, base_b, j))
        right, _ = _load_part(builder, base_b, j, end_b, _fill_lanes(builder, first))
        matched = builder.and_(_find_equal(builder, left, right, NARROW_LANES), mask)
        return _count_lanes(builder, matched, NARROW_LANES)

    return types.int64(*[types.int64] * 6), codegen


def _make_contains(lanes: int, *, is_narrow: bool) -> Any:
    """Return an intrinsic that says whether a block contains a value."""

    @intrinsic  # type: ignore[untyped-decorator]
    def contains(typingctx: Any, base: Any, i: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            block = _load_lanes(builder, args[0], args[1], lanes, is_narrow=is_narrow)
            value = builder.trunc(args[2], _HALF_WORD) if is_narrow else args[2]
            empty = ir.Constant(block.type, ir.Undefined)
            single = builder.insert_element(empty, value, _HALF_WORD(0))
            zeros = ir.Constant(ir.VectorType(_HALF_WORD, lanes), [0] * lanes)
            repeated = builder.shuffle_vector(single, single, zeros)
            matched = builder.icmp_signed("==", block, repeated)
            mask = builder.bitcast(matched, ir.IntType(lanes))
            found = builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(lanes), 0))
            return builder.zext(found, _WORD)

        return types.int64(types.int64, types.int64, types.int64), codegen

    return contains


#: Return 1 if a value is among the four words at word ``i``, else 0.
block_contains = _make_contains(VECTOR_LANES, is_narrow=False)
#: Return 1 if a value of 32 bits is among the eight narrow values at half-word ``i``, else 0.
narrow_block_contains = _make_contains(NARROW_LANES, is_narrow=True)


@intrinsic  # type: ignore[untyped-decorator]
def count_ones(typingctx: Any, word: Any) -> Any:
    """Return how many bits of an int64 are set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), codegen
