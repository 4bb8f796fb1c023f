"""Peers: the same work, by this engine and by what people use instead, in one run.

``python -m benchmarks.peers`` runs `bulk` (one count from scratch), `live` (the count maintained)
and `lsqb` (nine counts over a social network maintained); ``--help`` says how to run a part. The
nouns:

`pattern`    what is counted, and how each language says it
`systems`    one driver a system; each loads edges, then counts or steps
`driver`     the child process: loads one system, measures it, and says so in JSON
`process`    the parent: starts a driver, watches its time and memory, stops it
`lsqb_joins`, `lsqb_cypher`  the queries of LSQB for peers that do not take their SQL
`truth`      counts by code that shares nothing with any system

What a peer did not do is a result as well: "stopped after 60 s", "out of memory at 8 GB",
"failed: ...", "not installed: ..." stand in the table where the answer would.
"""
