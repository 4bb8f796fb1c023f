"""Growth: how the cost of a step grows with state, delta, skew, views and threads.

Claim: at a fixed delta and degree a step takes at most twice as long over 10⁸ rows of state as over
10⁶.

Inputs: random graphs of 8 edges per node whose ends have ranks by Zipf's law of an exponent (0 is
uniform), made from packed keys (`benchmarks.growth.edges`). The view counts triangles, ``e(a, b),
e(b, c), e(a, c)``. Steps insert rows that were left out of the state and delete them again, so
every step meets the same state, and their changes must cancel; where the state is small, they are
counted independently as well. The first pass there and back is not timed.

Distance to the bound: nanoseconds for each candidate that is touched (a proposal or a look-up),
and bytes of state for each row and arrangement against 8 for each column, its values in full.
Growth exponents are slopes of least squares in logarithms. The way not taken: steps without a
partner, so that the state would grow while it is measured.
"""
