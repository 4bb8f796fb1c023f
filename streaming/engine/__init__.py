"""Engine: computes a micro-batch as one transaction, in this process or on Spark's executors.

`engine` has the protocol (prepare, write, commit, abandon) and the engine for this process.
`prepare` and `failing_rows` prepare the step of a micro-batch in which some rows may be invalid.
The engine for Spark's executors is in `streaming.distributed`. Output modes, targets and metrics
are not here but in `streaming.sink`.
"""
