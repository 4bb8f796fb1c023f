"""Raw memory access for kernels: words at addresses, uncounted arrays, vectors of four values.

A run is one int64 buffer, and a join reads dozens of runs, whose number is known only at run time.
numba has no list of arrays without overhead, so a run is passed as its address and read through
these intrinsics. ``base`` is an address in bytes; ``i`` is an index in 8-byte words. Nothing is
bounds-checked. `borrow` and `keep_alive` pass an array without counting its references.

`count_block_matches` compares every pair of values of two sorted blocks of four with three vector
rotations (Inoue, Ohara, Taura, "Faster Set Intersection with SIMD Instructions by Reducing Branch
Mispredictions", PVLDB 8(3), 2014, section 3). `count_narrow_matches` does the same with blocks of
eight, of which it compares the lower 32 bits. The vectors are generic LLVM vectors: any processor
can run them, and a processor with AVX2 needs one instruction per step.
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
_VECTOR = ir.VectorType(_WORD, VECTOR_LANES)
_WIDE_VECTOR = ir.VectorType(_WORD, NARROW_LANES)
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
def load_half(typingctx: Any, base: Any, i: Any) -> Any:
    """Return the unsigned 32-bit number at half-word ``i`` after address ``base``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.gep(builder.inttoptr(args[0], _HALF_WORD.as_pointer()), [args[1]])
        return builder.zext(builder.load(pointer), _WORD)

    return types.int64(types.int64, types.int64), codegen


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


@intrinsic  # type: ignore[untyped-decorator]
def count_block_matches(typingctx: Any, base_a: Any, i: Any, base_b: Any, j: Any) -> Any:
    """Return how many of the four values at ``a[i:]`` occur among the four at ``b[j:]``.

    Both blocks are strictly increasing, so each value matches at most once.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left = builder.load(_address(builder, args[0], args[1], _VECTOR), align=8)
        right = builder.load(_address(builder, args[2], args[3], _VECTOR), align=8)
        lanes = ir.VectorType(ir.IntType(32), VECTOR_LANES)
        matched = builder.icmp_signed("==", left, right)
        for rotation in range(1, VECTOR_LANES):
            order = ir.Constant(lanes, [(k + rotation) % VECTOR_LANES for k in range(VECTOR_LANES)])
            rotated = builder.shuffle_vector(right, right, order)
            matched = builder.or_(matched, builder.icmp_signed("==", left, rotated))
        mask = builder.zext(builder.bitcast(matched, ir.IntType(VECTOR_LANES)), _WORD)
        return builder.ctpop(mask)

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def count_narrow_matches(typingctx: Any, base_a: Any, i: Any, base_b: Any, j: Any) -> Any:
    """Return how many of the eight values at ``a[i:]`` occur among the eight at ``b[j:]``.

    Both blocks are strictly increasing, and all values of both are within a range of 2**32, so they
    are equal if their lower 32 bits are.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right = (
            builder.trunc(
                builder.load(_address(builder, base, index, _WIDE_VECTOR), align=8), _NARROW_VECTOR
            )
            for base, index in (args[:2], args[2:])
        )
        # A value of the left block has a match if one of its differences is 0, so if the least is.
        # Rotations within halves of the vector are faster than across it.
        differences = []
        for _ in range(NARROW_LANES // VECTOR_LANES):
            for rotation in range(VECTOR_LANES):
                lanes = [
                    lane - lane % VECTOR_LANES + (lane + rotation) % VECTOR_LANES
                    for lane in range(NARROW_LANES)
                ]
                differences.append(builder.xor(left, _rotate(builder, right, lanes)))
            lanes = [(lane + VECTOR_LANES) % NARROW_LANES for lane in range(NARROW_LANES)]
            right = _rotate(builder, right, lanes)
        while len(differences) > 1:
            differences = [
                builder.select(builder.icmp_unsigned("<", one, other), one, other)
                for one, other in zip(differences[::2], differences[1::2], strict=True)
            ]
        zeros = ir.Constant(_NARROW_VECTOR, [0] * NARROW_LANES)
        matched = builder.icmp_signed("==", differences[0], zeros)
        mask = builder.zext(builder.bitcast(matched, ir.IntType(NARROW_LANES)), _WORD)
        return builder.ctpop(mask)

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


def _rotate(builder: Any, vector: Any, lanes: list[int]) -> Any:
    order = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(vector, vector, order)


@intrinsic  # type: ignore[untyped-decorator]
def block_contains(typingctx: Any, base: Any, i: Any, value: Any) -> Any:
    """Return 1 if ``value`` is among the four values at word ``i``, else 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block = builder.load(_address(builder, args[0], args[1], _VECTOR), align=8)
        lane = ir.Constant(ir.IntType(32), 0)
        single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), args[2], lane)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR_LANES), [0] * VECTOR_LANES)
        matched = builder.icmp_signed("==", block, builder.shuffle_vector(single, single, zeros))
        mask = builder.bitcast(matched, ir.IntType(VECTOR_LANES))
        found = builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(VECTOR_LANES), 0))
        return builder.zext(found, _WORD)

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def count_ones(typingctx: Any, word: Any) -> Any:
    """Return how many bits of an int64 are set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), codegen
