"""Digits: exact sums of numbers, as digits of base 2**32 that are added without carries.

    number * weight = Σ over its digits of amount * 2**(32 * digit)

Digits are three int64 arrays of one length: the index of the number or sum that a digit belongs to,
the position of the digit, and its amount.

A number times a weight is a list of (digit, amount): the digits of its magnitude, with its sign.
Adding amounts digit by digit adds the numbers exactly, in any order and without carries. Amounts
lie within 2**32, so 2**31 of them fit in an int64 total. Carries are made only when a sum is read:
its magnitude is then an array of *limbs*, uint64 of 32 bits each, the least significant one first.

For floats, digit 0 starts at 2**-1074, the least positive double. This is a superaccumulator
(Kulisch, "The fifth floating-point operation for top-performance computers", 1997; Neal, "Fast
exact summation using small and large superaccumulators", arXiv:1505.05571, section 2) that keeps
only its nonzero digits.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, keep_alive

# Limbs of the longest sum: 2098 bits of the range of a double, 64 + 64 of weights and their totals,
# and the space in which `sum_to_floats` divides.
MAX_LIMBS = 100

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@subroutine
def split_magnitude(words, i, limbs):
    """Write the digits of the absolute value of number ``i``; return whether it is negative."""
    count = words.shape[0]
    is_negative = words[count - 1, i] < 0
    carry = np.uint64(1)
    for j in range(count):
        word = np.uint64(words[j, i])
        if is_negative:
            word = ~word + carry
            carry = np.uint64(1) if carry == np.uint64(1) and word == np.uint64(0) else np.uint64(0)
        limbs[2 * j] = word & _LOW
        limbs[2 * j + 1] = word >> _HALF
    return is_negative


@subroutine
def split_product(words, i, weight, bits, limbs, product):
    """Write the digits of the absolute value of ``number * weight * 2**bits``.

    Args:
        words: The numbers, as for `split_numbers`.
        i: The index of the number.
        weight: The weight.
        bits: From 0 to 31.
        limbs: Room for ``2 W`` digits.
        product: Result: ``2 W + 3`` digits.

    Returns:
        Whether the product is negative.
    """
    count = words.shape[0]
    is_negative = split_magnitude(words, i, limbs) != (weight < 0)
    factor = np.uint64(abs(weight))
    low = factor & _LOW
    high = factor >> _HALF
    carry = np.uint64(0)
    for j in range(2 * count):
        term = limbs[j] * low + carry
        product[j] = term & _LOW
        carry = term >> _HALF
    product[2 * count] = carry
    product[2 * count + 1] = 0
    product[2 * count + 2] = 0
    if high != np.uint64(0):
        carry = np.uint64(0)
        for j in range(2 * count):
            term = limbs[j] * high + product[j + 1] + carry
            product[j + 1] = term & _LOW
            carry = term >> _HALF
        product[2 * count + 1] = carry
    if bits > 0:
        carry = np.uint64(0)
        for j in range(2 * count + 3):
            term = (product[j] << np.uint64(bits)) | carry
            product[j] = term & _LOW
            carry = term >> _HALF
    return is_negative


@kernel
def split_numbers(words, shifts, weights, number_indices, digits, amounts):
    """Write the digits of ``number * weight * 2**shift`` for many numbers; return their number.

    Args:
        words: Two's complement, least word first, shape ``(W, n)``.
        shifts: Not negative, shape ``(n,)``; or empty for 0.
        weights: int64, shape ``(n,)``.
        number_indices: Result: the index of the number of each digit; room for ``(2 W + 3) n``.
        digits: Result: the position of each digit.
        amounts: Result: the amount of each digit, with the sign of the product.
    """
    words = borrow(words)
    count, n = words.shape
    owned_limbs = np.empty(2 * count + 3, np.uint64)
    owned_product = np.empty(2 * count + 3, np.uint64)
    limbs, product = borrow(owned_limbs), borrow(owned_product)
    written = 0
    for i in range(n):
        shift = shifts[i] if shifts.shape[0] > 0 else np.int64(0)
        is_negative = split_product(words, i, weights[i], shift & 31, limbs, product)
        for j in range(2 * count + 3):
            if product[j] != np.uint64(0):
                number_indices[written] = i
                digits[written] = (shift >> 5) + j
                amounts[written] = -np.int64(product[j]) if is_negative else np.int64(product[j])
                written += 1
    keep_alive(owned_limbs)
    keep_alive(owned_product)
    return written


@subroutine
def carry_digits(digits, amounts, first, last, base, limbs):
    """Write the magnitude of a sum of digits; return ``(negative, digits written)``.

    The positions of the digits ``[first, last)`` are increasing and at least ``base``, the position
    of limb 0.
    """
    carry = np.int64(0)
    size = 0
    for row in range(first, last):
        while size < digits[row] - base:
            limbs[size] = np.uint64(carry) & _LOW
            carry >>= 32
            size += 1
        term = carry + np.int64(np.uint64(amounts[row]) & _LOW)
        limbs[size] = np.uint64(term) & _LOW
        carry = (term >> 32) + (amounts[row] >> 32)
        size += 1
    while carry != 0 and carry != -1:
        limbs[size] = np.uint64(carry) & _LOW
        carry >>= 32
        size += 1
    if carry == 0:
        return False, size
    carry_in = np.uint64(1)
    for j in range(size):
        limb = (limbs[j] ^ _LOW) + carry_in
        limbs[j] = limb & _LOW
        carry_in = limb >> _HALF
    if carry_in != np.uint64(0):
        limbs[size] = carry_in
        size += 1
    return True, size


@subroutine
def strip_zeros(limbs, size):
    """Return the number of limbs without leading zeros."""
    while size > 0 and limbs[size - 1] == np.uint64(0):
        size -= 1
    return size


@subroutine
def fits_in(limbs, size, max_limbs):
    """Return whether a magnitude is less than half of what so many limbs can hold."""
    return size < max_limbs or (
        size == max_limbs and limbs[size - 1] >> np.uint64(31) == np.uint64(0)
    )


@kernel
def sum_to_integers(sum_indices, digits, amounts, words, fits):
    """Combine digits into sums, as integers.

    Args:
        sum_indices: The index of the sum of each digit, ascending.
        digits: The position of each digit, ascending within a sum.
        amounts: The amount of each digit.
        words: Result, initially zero: two's complement, least word first, shape ``(W, n)``.
        fits: Result, initially true: whether the sum's magnitude is below ``2**(64 W - 1)``.
    """
    digits, amounts = borrow(digits), borrow(amounts)
    count = words.shape[0]
    owned_limbs = np.zeros(MAX_LIMBS, np.uint64)
    limbs = borrow(owned_limbs)
    first = 0
    while first < sum_indices.shape[0]:
        index = sum_indices[first]
        last = first + 1
        while last < sum_indices.shape[0] and sum_indices[last] == index:
            last += 1
        is_negative, size = carry_digits(digits, amounts, first, last, 0, limbs)
        first = last
        size = strip_zeros(limbs, size)
        if not fits_in(limbs, size, 2 * count):
            fits[index] = False
            continue
        carry = np.uint64(1)
        for j in range(count):
            low = limbs[2 * j] if 2 * j < size else np.uint64(0)
            high = limbs[2 * j + 1] if 2 * j + 1 < size else np.uint64(0)
            word = (high << _HALF) | low
            if is_negative:
                word = ~word + carry
                carry = (
                    np.uint64(1) if carry == np.uint64(1) and word == np.uint64(0) else np.uint64(0)
                )
            words[j, index] = np.int64(word)
    keep_alive(owned_limbs)


@subroutine
def bit_length(value):
    """Return the number of bits of a uint64."""
    length = 0
    while value != np.uint64(0):
        value >>= np.uint64(1)
        length += 1
    return length


@subroutine
def divide(limbs, size, divisor):
    """Divide in place by a number of up to 63 bits; return whether there is a remainder."""
    remainder = np.uint64(0)
    for j in range(size - 1, -1, -1):
        if divisor <= _LOW:
            term = (remainder << _HALF) | limbs[j]
            limbs[j] = term // divisor
            remainder = term - limbs[j] * divisor
            continue
        quotient = np.uint64(0)
        for bit in range(31, -1, -1):
            remainder = (remainder << np.uint64(1)) | ((limbs[j] >> np.uint64(bit)) & np.uint64(1))
            quotient <<= np.uint64(1)
            if remainder >= divisor:
                remainder -= divisor
                quotient |= np.uint64(1)
        limbs[j] = quotient
    return remainder != np.uint64(0)


@subroutine
def divide_by_power_of_ten(limbs, size, exponent):
    """Divide in place by ``10**exponent``; return whether there is a remainder."""
    has_remainder = False
    while exponent > 0:
        power = np.uint64(1)
        for _ in range(min(exponent, 9)):
            power *= np.uint64(10)
        has_remainder = divide(limbs, size, power) or has_remainder
        exponent -= 9
    return has_remainder


@subroutine
def round_to_float(limbs, size, has_more, least_exponent):
    """Return the nearest ``(mantissa, exponent)``, half to even.

    Args:
        limbs: A magnitude; its highest limb is not zero.
        size: Number of limbs.
        has_more: True if the exact value is slightly larger than the limbs.
        least_exponent: The least exponent of the last bit of the result.
    """
    bits = bit_length(limbs[size - 1])
    second = limbs[size - 2] if size > 1 else np.uint64(0)
    third = limbs[size - 3] if size > 2 else np.uint64(0)
    # The 64 highest bits.
    top = (limbs[size - 1] << np.uint64(64 - bits)) | (second << np.uint64(32 - bits))
    if bits < 32:
        top |= third >> np.uint64(bits)
        has_more = has_more or (third & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1))) != 0
    else:
        has_more = has_more or third != np.uint64(0)
    for j in range(size - 3):
        has_more = has_more or limbs[j] != np.uint64(0)
    highest = 32 * (size - 1) + bits - 1
    exponent = max(highest - 52, least_exponent)
    kept_bits = highest + 1 - exponent
    if kept_bits < 0:
        return 0.0, exponent
    mantissa = np.uint64(0)
    remainder = top
    half = np.uint64(1) << np.uint64(63 - kept_bits)
    if kept_bits > 0:
        mantissa = top >> np.uint64(64 - kept_bits)
        remainder = top & ((half << np.uint64(1)) - np.uint64(1))
    is_odd = (mantissa & np.uint64(1)) != np.uint64(0)
    if remainder > half or (remainder == half and (has_more or is_odd)):
        mantissa += np.uint64(1)
    return np.float64(mantissa), exponent


@subroutine
def sum_to_float(digits, amounts, first, last, zero, divisor, scale, least_exponent, limbs):
    """Combine the digits ``[first, last)`` into a sum ``(mantissa, exponent)``, at least one digit.

    Args:
        digits: The position of each digit, ascending, plus ``zero``.
        amounts: The amount of each digit.
        first: The first digit.
        last: The digit after the last one.
        zero: The position 0 in ``digits``.
        divisor: Not zero.
        scale: As for `sum_to_floats`.
        least_exponent: As for `sum_to_floats`.
        limbs: Scratch of `MAX_LIMBS` limbs.
    """
    base = digits[first]
    is_negative, size = carry_digits(digits, amounts, first, last, base, limbs)
    base -= zero
    size = strip_zeros(limbs, size)
    if size == 0:
        return 0.0, np.int64(0)
    has_remainder = False
    magnitude = np.uint64(abs(divisor))
    if magnitude != np.uint64(1) or scale > 0:
        # Limbs are added below, so that the quotient keeps at least 64 bits: dividing by 10**9
        # removes at most one limb, dividing by the divisor at most two.
        extra_limbs = 5 + scale // 9
        for j in range(size - 1, -1, -1):
            limbs[j + extra_limbs] = limbs[j]
        limbs[:extra_limbs] = np.uint64(0)
        base -= extra_limbs
        size += extra_limbs
        has_remainder = divide(limbs, size, magnitude)
        has_remainder = divide_by_power_of_ten(limbs, size, scale) or has_remainder
        size = strip_zeros(limbs, size)
    mantissa, exponent = round_to_float(limbs, size, has_remainder, least_exponent - 32 * base)
    mantissa = -mantissa if is_negative != (divisor < 0) else mantissa
    return mantissa, exponent + 32 * base


@kernel
def sum_to_floats(
    sum_indices, digits, amounts, divisors, scale, least_exponent, mantissas, exponents
):
    """Combine digits into sums ``mantissa * 2**exponent``, divided and correctly rounded.

    Args:
        sum_indices: The index of the sum of each digit, ascending.
        digits: The position of each digit, ascending within a sum.
        amounts: The amount of each digit.
        divisors: int64 per sum, not zero.
        scale: The power of ten to divide by as well.
        least_exponent: The least exponent of the last bit of a result.
        mantissas: Result, initially zero: float64 integers of at most 53 bits.
        exponents: Result, initially zero: int64, as if digit 0 started at 2**0. The caller adds
            the exponent at which it starts.
    """
    digits, amounts = borrow(digits), borrow(amounts)
    owned_limbs = np.zeros(MAX_LIMBS, np.uint64)
    limbs = borrow(owned_limbs)
    first = 0
    while first < sum_indices.shape[0]:
        index = sum_indices[first]
        last = first + 1
        while last < sum_indices.shape[0] and sum_indices[last] == index:
            last += 1
        mantissas[index], exponents[index] = sum_to_float(
            digits, amounts, first, last, 0, divisors[index], scale, least_exponent, limbs
        )
        first = last
    keep_alive(owned_limbs)
