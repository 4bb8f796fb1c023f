"""Benchmarks: each states a claim, names its inputs, checks its own answers and writes JSON.

``python -m benchmarks.peers``     the same work by this engine and by its peers, BULK and LIVE
``python -m benchmarks.live``      LIVE: the count maintained under inserts and deletes
``python -m benchmarks.formulas``  the six delta formulas, and the choice among them
``python -m benchmarks.circuits``  SQL views kept live, against DuckDB recomputing them
``python -m benchmarks.recursion`` a closure kept live, against asking for it again
``python -m benchmarks.sink``      the durable sink: overhead, events per second, restart, writes
``python -m benchmarks.report``    the tables in README.md, rendered from ``results/*.json``

A wrong count ends a benchmark with exit status 1: a fast wrong answer is no result. Ratios are
computed within one run only, because machines, and the other work on them, differ. Peers (the
other systems) run in processes of their own, so that they can be stopped, and share neither an
allocator nor threads with the engine.
"""
