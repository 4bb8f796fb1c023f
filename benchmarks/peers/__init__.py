"""Runs the same work in this engine and in other systems (the peers), and compares them.

``python -m benchmarks.peers`` runs `bulk` (one count from scratch), `live` (a maintained count) and
`lsqb` (nine maintained counts over a social network); ``--help`` says how to run a part. Modules:

`pattern`    the counted patterns, in the query language of each system
`systems`    a module for each system; each loads edges, then counts or steps
`driver`     the child process: loads one system, measures it, and prints JSON
`process`    the parent: starts a driver, watches its time and memory, stops it
`lsqb_joins`, `lsqb_cypher`  the queries of LSQB for peers that do not take their SQL
`truth`      counts by code that shares nothing with any system

If a peer gives no answer, the table shows the reason instead: "stopped after 60 s", "out of memory
at 8 GB", "failed: ...", "not installed: ...".
"""
