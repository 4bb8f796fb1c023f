"""Engine: computes a micro-batch as one transaction, in this process or on Spark's executors.

`engine` has the protocol (prepare, write, commit, abandon) and the embedded engine; `prepare` and
`failing_rows` make a circuit step from rows of which some may be bad. The distributed engine is in
`streaming.distributed`. Output modes, targets and metrics do not belong here; they are the sink's.
"""
