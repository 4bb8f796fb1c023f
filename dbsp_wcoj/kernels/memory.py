"""Raw memory access for kernels: words at addresses, uncounted arrays, vectors of four values.

A run is one int64 buffer, and a join reads dozens of runs, whose number is known only at run time.
numba has no list of arrays without overhead, so a run is passed as its address and read through
these intrinsics. ``base`` is an address in bytes; ``i`` is an index in 8-byte words. Nothing is
bounds-checked. `borrow` and `keep_alive` pass an array without counting its references.

`count_block_matches` compares every pair of values of two sorted blocks of four with three vector
rotations (Inoue, Ohara, Taura, "Faster Set Intersection with SIMD Instructions by Reducing Branch
Mispredictions", PVLDB 8(3), 2014, section 3). `make_list_count` compares 32 bits of each value: up
to eight values of one list, each repeated in all lanes of a vector, with sixteen of the other list.
Repeating a value in memory is part of an instruction that reads it, so this takes less time than
rotations. The vectors are generic LLVM vectors: any processor can run them, and a processor with
AVX-512 needs one instruction per step.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

VECTOR_LANES = 4  # int64 values per vector
NARROW_LANES = 8  # values of a block of 32-bit numbers
WIDE_LANES = 16  # 32-bit numbers that are compared with repeated values

_WORD = ir.IntType(64)
_HALF_WORD = ir.IntType(32)


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
def load_bit(typingctx: Any, bitmap: Any, lowest: Any, values: Any, i: Any) -> Any:
    """Return the bit of half-word ``i`` after address ``values`` in a bitmap, as a uint32.

    The first bit of the bitmap stands for ``lowest``, and the half-word is at least ``lowest`` and
    less than ``lowest + 2**32``. All numbers have 32 bits here, so in a loop LLVM looks up twice as
    many values with one instruction as it would with words. The bitmap has words, of which the
    lower half comes first in memory.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bitmap, lowest, values, index = args
        value = builder.load(_narrow_address(builder, values, index))
        bit = builder.sub(value, builder.trunc(lowest, _HALF_WORD))
        position = builder.zext(builder.lshr(bit, _HALF_WORD(5)), _WORD)
        half_word = builder.load(_narrow_address(builder, bitmap, position))
        shifted = builder.lshr(half_word, builder.and_(bit, _HALF_WORD(31)))
        return builder.and_(shifted, _HALF_WORD(1))

    return types.uint32(*[types.int64] * 4), codegen


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
    element = _HALF_WORD if is_narrow else _WORD
    return builder.load(
        _vector_pointer(builder, base, index, lanes, is_narrow=is_narrow),
        align=element.width // 8,
    )


def _vector_pointer(builder: Any, base: Any, index: Any, lanes: int, *, is_narrow: bool) -> Any:
    address = (
        _narrow_address(builder, base, index)
        if is_narrow
        else _address(builder, base, index, _WORD)
    )
    vector = ir.VectorType(_HALF_WORD if is_narrow else _WORD, lanes)
    return builder.bitcast(address, vector.as_pointer())


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


@intrinsic  # type: ignore[untyped-decorator]
def count_short_matches(typingctx: Any, base_a: Any, i: Any, base_b: Any, j: Any) -> Any:
    """Like `count_block_matches`, for four narrow values at each address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left = _load_lanes(builder, args[0], args[1], VECTOR_LANES, is_narrow=True)
        right = _load_lanes(builder, args[2], args[3], VECTOR_LANES, is_narrow=True)
        return _count_lanes(builder, _find_equal(builder, left, right), VECTOR_LANES)

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


def make_list_count(
    repeated: int, *, is_narrow_a: bool, is_narrow_b: bool, is_whole_a: bool, is_whole_b: bool
) -> Any:
    """Return an intrinsic that counts the next values of a list that are among those of another.

    The intrinsic has the parameters ``(a, i, end_a, b, j, end_b)`` and returns how many of the next
    `WIDE_LANES` values of ``b[j:end_b]`` occur among the next ``repeated`` ones of ``a[i:end_a]``,
    by their lower 32 bits. Nothing after these ends is read. Both lists are strictly increasing and
    have at least one value left.

    Args:
        repeated: The number of values of ``a``.
        is_narrow_a: Whether ``a`` has narrow values, not words.
        is_narrow_b: The same for ``b``.
        is_whole_a: Whether there are at least ``repeated`` values left in ``a``.
        is_whole_b: Whether there are at least `WIDE_LANES` values left in ``b``.
    """
    vector = ir.VectorType(_HALF_WORD, WIDE_LANES)

    @intrinsic  # type: ignore[untyped-decorator]
    def count_list(
        typingctx: Any, base_a: Any, i: Any, end_a: Any, base_b: Any, j: Any, end_b: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base_a, i, end_a, base_b, j, end_b = args
            mask = None
            if is_whole_b:
                block = _load_lanes(builder, base_b, j, WIDE_LANES, is_narrow=is_narrow_b)
            else:
                block, mask = _load_part(
                    builder, base_b, j, end_b, WIDE_LANES, is_narrow=is_narrow_b
                )
            if not is_narrow_b:
                block = builder.trunc(block, vector)
            last = builder.sub(end_a, _WORD(1))
            differences = []
            for number in range(repeated):
                index = builder.add(i, _WORD(number))
                if not is_whole_a and number:  # repeat the last value
                    is_inside = builder.icmp_signed("<", index, last)
                    index = builder.select(is_inside, index, last)
                if is_narrow_a:
                    value = builder.load(_narrow_address(builder, base_a, index))
                else:
                    value = builder.trunc(
                        builder.load(_address(builder, base_a, index, _WORD)), _HALF_WORD
                    )
                differences.append(builder.xor(block, _fill_lanes(builder, value, WIDE_LANES)))
            matched = _has_zero(builder, differences)
            if mask is not None:
                matched = builder.and_(matched, mask)
            return _count_lanes(builder, matched, WIDE_LANES)

        return types.int64(*[types.int64] * 6), codegen

    return count_list


def _find_equal(builder: Any, left: Any, right: Any) -> Any:
    """Return the mask of the lanes of ``left`` whose value is in any lane of ``right``."""
    lanes = left.type.count
    differences = []
    for rotation in range(lanes):
        order = [(lane + rotation) % lanes for lane in range(lanes)]
        differences.append(builder.xor(left, _rotate(builder, right, order)))
    return _has_zero(builder, differences)


def _has_zero(builder: Any, differences: list[Any]) -> Any:
    """Return the mask of the lanes in which any of some vectors of 32-bit numbers is 0."""
    # A value has a match if one of its differences is 0, so if the least is.
    while len(differences) > 1:
        differences = [
            builder.select(builder.icmp_unsigned("<", one, other), one, other)
            for one, other in zip(differences[::2], differences[1::2], strict=True)
        ]
    zeros = ir.Constant(differences[0].type, [0] * differences[0].type.count)
    return builder.icmp_signed("==", differences[0], zeros)


def _load_part(
    builder: Any, base: Any, index: Any, end: Any, lanes: int, *, is_narrow: bool
) -> Any:
    """Load up to ``lanes`` values before ``end``; the other lanes are 0.

    Returns the vector and the mask of the lanes that are loaded.
    """
    mask = _mask_before(builder, index, end, lanes)
    pointer = _vector_pointer(builder, base, index, lanes, is_narrow=is_narrow)
    vector = pointer.type.pointee
    bits = vector.element.width
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [pointer.type, _HALF_WORD, mask.type, vector]),
        f"llvm.masked.load.v{lanes}i{bits}.p0",
    )
    zeros = ir.Constant(vector, None)
    return builder.call(function, [pointer, _HALF_WORD(bits // 8), mask, zeros]), mask


def _store_part(
    builder: Any, base: Any, index: Any, values: Any, mask: Any, *, is_narrow: bool
) -> None:
    """Store the lanes of a vector that are in the mask."""
    lanes = values.type.count
    pointer = _vector_pointer(builder, base, index, lanes, is_narrow=is_narrow)
    bits = values.type.element.width
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [values.type, pointer.type, _HALF_WORD, mask.type]),
        f"llvm.masked.store.v{lanes}i{bits}.p0",
    )
    builder.call(function, [values, pointer, _HALF_WORD(bits // 8), mask])


def _mask_before(builder: Any, index: Any, end: Any, lanes: int) -> Any:
    """Return the mask of the lanes whose positions, from ``index`` on, are before ``end``."""
    number = builder.sub(end, index)
    is_whole = builder.icmp_signed(">=", number, _WORD(lanes))
    number = builder.trunc(builder.select(is_whole, _WORD(lanes), number), _HALF_WORD)
    positions = ir.Constant(ir.VectorType(_HALF_WORD, lanes), list(range(lanes)))
    return builder.icmp_signed("<", positions, _fill_lanes(builder, number, lanes))


def _fill_lanes(builder: Any, number: Any, lanes: int) -> Any:
    """Return a vector with a number in each lane."""
    empty = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    single = builder.insert_element(empty, number, _HALF_WORD(0))
    zeros = ir.Constant(ir.VectorType(_HALF_WORD, lanes), [0] * lanes)
    return builder.shuffle_vector(single, single, zeros)


def _make_count_below(lanes: int, *, is_narrow: bool) -> Any:
    """Return an intrinsic that counts the values of a block that are less than a value."""

    @intrinsic  # type: ignore[untyped-decorator]
    def count(typingctx: Any, base: Any, i: Any, end: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base, index, end, value = args
            block, mask = _load_part(builder, base, index, end, lanes, is_narrow=is_narrow)
            value = builder.trunc(value, _HALF_WORD) if is_narrow else value
            is_below = builder.icmp_signed("<", block, _fill_lanes(builder, value, lanes))
            return _count_lanes(builder, builder.and_(is_below, mask), lanes)

        return types.int64(*[types.int64] * 4), codegen

    return count


#: Return how many of the next `NARROW_LANES` words of ``base[i:end]`` are less than a value.
count_words_below = _make_count_below(NARROW_LANES, is_narrow=False)
#: Return how many of the next `WIDE_LANES` narrow values of ``base[i:end]`` are less than a value
#: of 32 bits.
count_narrow_below = _make_count_below(WIDE_LANES, is_narrow=True)


def _make_copy(lanes: int, *, is_narrow: bool) -> Any:
    """Return an intrinsic that copies the next values of a list, plus a number."""

    @intrinsic  # type: ignore[untyped-decorator]
    def copy(typingctx: Any, target: Any, t: Any, base: Any, i: Any, end: Any, added: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target, place, base, index, end, added = args
            block, mask = _load_part(builder, base, index, end, lanes, is_narrow=is_narrow)
            if not is_narrow:
                block = builder.add(block, _fill_lanes(builder, added, lanes))
            _store_part(builder, target, place, block, mask, is_narrow=is_narrow)
            return context.get_dummy_value()

        return types.none(*[types.int64] * 6), codegen

    return copy


#: Copy the next `NARROW_LANES` words of ``base[i:end]``, plus a number, to word ``t`` of a target.
copy_words = _make_copy(NARROW_LANES, is_narrow=False)
#: Copy the next `WIDE_LANES` narrow values of ``base[i:end]``; the number is not added.
copy_narrow = _make_copy(WIDE_LANES, is_narrow=True)


def _make_contains(lanes: int, *, is_narrow: bool) -> Any:
    """Return an intrinsic that says whether a block contains a value."""

    @intrinsic  # type: ignore[untyped-decorator]
    def contains(typingctx: Any, base: Any, i: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            block = _load_lanes(builder, args[0], args[1], lanes, is_narrow=is_narrow)
            value = builder.trunc(args[2], _HALF_WORD) if is_narrow else args[2]
            matched = builder.icmp_signed("==", block, _fill_lanes(builder, value, lanes))
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
