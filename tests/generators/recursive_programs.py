"""Recursive Datalog programs over tiny graphs, each with a sentence that says what it tests.

Relations: e(src, dst), f(src, dst), w(src, dst, cost), d(n). The expected rows come from
`tests.oracles.naive_datalog`.
"""

from __future__ import annotations

import pyarrow as pa

from circuits.plan.nodes import Field

INT = pa.int64()

SCHEMA: dict[str, tuple[Field, ...]] = {
    "e": (Field("src", INT), Field("dst", INT)),
    "f": (Field("src", INT), Field("dst", INT)),
    "w": (Field("src", INT), Field("dst", INT), Field("cost", INT)),
    "d": (Field("n", INT),),
}

NODES = range(4)
DATABASE: dict[str, list[tuple[int, ...]]] = {
    "e": [(a, b) for a in NODES for b in NODES],
    "f": [(a, b) for a in NODES for b in NODES],
    "w": [(a, b, (3 * a + 2 * b) % 5) for a in NODES for b in NODES],
    "d": [(n,) for n in NODES],
}

PROGRAMS: dict[str, str] = {
    "a closure from the right": "tc(x, z) :- e(x, z). tc(x, z) :- e(x, y), tc(y, z).",
    "a closure from the left": "tc(x, z) :- e(x, z). tc(x, z) :- tc(x, y), e(y, z).",
    "a closure of itself": "tc(x, z) :- e(x, z). tc(x, z) :- tc(x, y), tc(y, z).",
    "a closure of three": "tc(x, z) :- e(x, z). tc(x, z) :- tc(x, a), tc(a, b), tc(b, z).",
    "reachable nodes": "r(x) :- d(x). r(y) :- r(x), e(x, y).",
    "odd and even paths": "odd(x, y) :- e(x, y). odd(x, z) :- even(x, y), e(y, z). "
    "even(x, z) :- odd(x, y), e(y, z).",
    "two closures of each other": "p(x, y) :- e(x, y). q(x, y) :- f(x, y). "
    "p(x, z) :- p(x, y), q(y, z). q(x, z) :- q(x, y), p(y, z), e(x, z).",
    "same generation": "sg(x, x) :- d(x). sg(x, y) :- e(p, x), sg(p, q), e(q, y).",
    "strongly connected": "tc(x, z) :- e(x, z). tc(x, z) :- e(x, y), tc(y, z). "
    "scc(x, y) :- tc(x, y), tc(y, x).",
    "what is not reached": "r(x) :- d(x). r(y) :- r(x), e(x, y). "
    "n(x) :- e(x, _). n(x) :- e(_, x). un(x) :- n(x), not r(x).",
    "a recursion over a negation": "ok(x, y) :- e(x, y), not f(x, y). tc(x, y) :- ok(x, y). "
    "tc(x, z) :- tc(x, y), ok(y, z).",
    "a negation in a recursive rule": "r(x) :- d(x). r(y) :- r(x), e(x, y), not f(x, y).",
    "a negated join in a recursive rule": "r(x) :- d(x). "
    "r(y) :- r(x), e(x, y), not (f(x, z), e(z, y)).",
    "a negation in a negation": "r(x) :- d(x). r(y) :- r(x), e(x, y), not (f(x, z), not e(z, y)).",
    "a count of what is reached": "tc(x, z) :- e(x, z). tc(x, z) :- e(x, y), tc(y, z). "
    "n(x, count() as many) :- tc(x, _).",
    "a recursion over an aggregate": "deg(x, count() as k) :- e(x, _). r(x) :- d(x). "
    "r(y) :- r(x), deg(x, k), k < 3, e(x, y).",
    "an or in a recursive rule": "r(x) :- d(x). r(y) :- r(x), or(e(x, y) ; f(y, x)).",
    "an or of recursive atoms": "r(x, y) :- e(x, y). r(x, z) :- or(r(x, y) ; r(y, x)), f(y, z).",
    "a computed bound": "n(0). n(x + 1) :- n(x), x < 6, d(y), y = mod(x, 3).",
    "constants and repeated variables": "r(x, x, 1) :- d(x). r(x, y, 2) :- r(x, x, _), e(x, y). "
    "r(x, y, 1) :- r(x, z, 2), e(z, y), x != y.",
    "an empty head": "r(x) :- d(x). r(y) :- r(x), e(x, y). far() :- r(2).",
    "a head without columns that recurs": "on() :- d(3). r(x) :- d(x). "
    "on() :- r(x), r(y), e(x, y), x > y. r(y) :- on(), f(x, y), r(x).",
    "points to": "vp(v, h) :- e(v, h). vp(v, h) :- f(v, u), vp(u, h). "
    "hp(b, h) :- w(b, v, _), vp(v, h), vp(b, _). vp(v, h) :- w(b, v, 2), vp(b, o), hp(o, h).",
    "shortest paths": "sp(x, 0) :- d(x). sp(y, min(k + c)) :- sp(x, k), w(x, y, c).",
    "shortest paths of all pairs": "sp(x, y, min(c)) :- w(x, y, c). "
    "sp(x, z, min(a + b)) :- sp(x, y, a), sp(y, z, b).",
    "shortest paths within a bound": "sp(x, min(0)) :- d(x). "
    "sp(y, min(n)) :- sp(x, k), w(x, y, c), n = k + c, n <= 6, k < 5.",
    "widest paths": "wide(x, y, max(c)) :- w(x, y, c). "
    "wide(x, z, max(least(a, c))) :- wide(x, y, a), w(y, z, c).",
    "a minimum first": "sp(min(k), x) :- d(x), k = 2 * x. "
    "sp(min(2 * k + c), y) :- sp(k, x), w(x, y, c), k < 20.",
    "a minimum that nobody reads": "sp(x, min(0)) :- d(x). sp(y, min(c)) :- sp(x, _), w(x, y, c).",
    "a minimum and a set": "sp(x, min(0)) :- d(x). "
    "sp(y, min(k + c)) :- at(x), sp(x, k), w(x, y, c). at(x) :- sp(x, _). "
    "at(y) :- at(x), e(x, y). far(x) :- sp(x, k), k > 4.",
    "a minimum of differences": "lo(x, min(x)) :- d(x). up(x, max(9 - k)) :- lo(x, k). "
    "lo(y, min(9 - k + c)) :- up(x, k), w(x, y, c).",
    "the minimum of all": "lo(min(x)) :- d(x). up(max(7 - k)) :- lo(k), e(x, y), x < y. "
    "lo(min(8 - k)) :- up(k).",
    "mutual recursion over a negation": "ok(x, y) :- e(x, y), not f(x, y), not d(y). "
    "p(x) :- d(x). q(y) :- p(x), ok(x, y). p(y) :- q(x), ok(x, y). q(y) :- q(x), f(x, y), p(y).",
    "a negation over mutual recursion over a negation": "no(x) :- f(x, x). p(x) :- d(x), not no(x)."
    " q(y) :- p(x), e(x, y), not no(y). p(y) :- q(x), e(x, y). "
    "left(x) :- e(x, _), not p(x), not q(x). s(x) :- left(x). s(y) :- s(x), f(x, y), not q(y).",
    "a negation of a head without columns": "stop() :- f(0, _). r(x) :- d(x). "
    "r(y) :- r(x), e(x, y), not stop().",
    "one relation three times beside the recursion": "t(x, y) :- e(x, y), x < y. "
    "t(x, z) :- t(x, y), e(y, z), e(x, z), e(z, x).",
    "all pairs of what recurs": "t(x) :- d(x). t(z) :- t(x), t(y), e(x, z), e(y, z), x < y.",
    "a count that begins a recursion": "n(x, count() as k) :- e(x, _). "
    "n(y, k) :- n(x, k), f(x, y).",
    "sums that are candidates": "c(x, sum(k)) :- w(x, _, k). "
    "c(y, min(k + 1)) :- c(x, k), f(x, y). c(x, 9) :- d(x).",
    "recursion four strata high": "a(x) :- d(x). a(y) :- a(x), e(x, y). "
    "b(x, y) :- f(x, y), a(x), not a(y). b(x, z) :- b(x, y), b(y, z). "
    "n(x, count() as k) :- b(x, _). s(x, 0) :- a(x), not b(x, x). "
    "s(y, min(i + k)) :- s(x, i), n(x, k), e(x, y).",
    "two recursions, one on the other": "tc(x, z) :- e(x, z). tc(x, z) :- e(x, y), tc(y, z). "
    "s(x) :- d(x). s(y) :- s(x), tc(x, y), f(x, y).",
}
