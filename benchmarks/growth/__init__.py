"""Measures how the cost of a step grows with state, delta, skew, views and threads.

Claim: at a fixed delta and degree a step takes at most twice as long over 10⁸ rows of state as over
10⁶.

Inputs: random graphs with 8 edges per node. The ends of the edges follow Zipf's law with a given
exponent; 0 is uniform (`benchmarks.growth.edges`). The view counts triangles, ``e(a, b), e(b, c),
e(a, c)``. Steps insert rows that are not in the state, and later steps delete them again. So every
pass starts from the same state, and the changes of the count must cancel. If the state is small,
the changes are also counted independently. The first pass is not timed.

Two columns show how much is left to gain: nanoseconds for each candidate (a proposal or an
intersection), and bytes of state relative to uncompressed rows (8 bytes for each column, in each
arrangement). Growth exponents are slopes by least squares in logarithms. Alternative considered:
inserts without deletes; the state would grow while it is measured.
"""
