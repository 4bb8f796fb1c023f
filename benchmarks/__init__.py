"""Benchmarks: each states a claim, names its inputs, checks its own answers and writes JSON.

``python -m benchmarks.live``           LIVE: a count maintained under inserts and deletes
``python -m benchmarks.peers``          BULK (one count from scratch), LIVE and LSQB (SQL views), by
                                        this engine and by other systems, its peers
``python -m benchmarks.growth``         steps by size of state, delta, skew, views and threads
``python -m benchmarks.threads``        how much of a step several threads can share
``python -m benchmarks.formulas``       the six delta formulas, and the choice among them
``python -m benchmarks.patterns``       counts of patterns in a labelled graph, against C++ engines
``python -m benchmarks.circuits``       maintained SQL views, against DuckDB recomputing them
``python -m benchmarks.recursion``      a maintained closure, against its recomputation
``python -m benchmarks.datalog``        recursive Datalog programs, from scratch and under changes
``python -m benchmarks.nexmark``        the queries of Nexmark
``python -m benchmarks.tpch``           the queries of TPC-H
``python -m benchmarks.windows``        window functions over one large partition
``python -m benchmarks.feeds``          decoding of change feeds, against a parser of JSON
``python -m benchmarks.bounded_state``  the state of a long stream with lateness
``python -m benchmarks.beyond_memory``  state larger than its memory limit, against state in memory
``python -m benchmarks.new_strings``    memory and disk of ever new strings over few live rows
``python -m benchmarks.program_change`` how long a change of the views takes, against the estimate
``python -m benchmarks.latency``        the largest step, with and without a state directory
``python -m benchmarks.object_store``   micro-batches with the state in an object store
``python -m benchmarks.sink``           the durable sink: overhead, events/s, restart, writes
``python -m benchmarks.medallion``      a refresh of 15 views over Delta tables, against Spark
``python -m benchmarks.medallion.policies`` when a view should be recomputed instead
``python -m benchmarks.medallion.tpch``  refreshes of the views of TPC-H, against Spark
``python -m benchmarks.medallion.tpcdi`` refreshes in the manner of TPC-DI, against Spark
``python -m benchmarks.scale``          joins in the cells of a HyperCube, on Spark
``python -m benchmarks.work``           counted work, compared with the recorded counts
``python -m benchmarks.report``         the tables and plots, rendered from ``results/*.json``

A wrong count ends a benchmark with exit status 1: a fast wrong answer is no result. Ratios are
computed within one run only, because machines, and the other work on them, differ. Peers run in
processes of their own, so that they can be stopped, and share neither an allocator nor threads with
the engine.
"""
