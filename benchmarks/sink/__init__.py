"""The durable sink: overhead, events per second, restart, writes. ``python -m benchmarks.sink``."""
