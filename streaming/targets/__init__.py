"""Targets: where the changes of views go, each micro-batch once (`streaming.targets.target`).

``ParquetTarget``, ``DeltaTarget`` and ``SqlTarget`` are durable; ``MemoryTarget``,
``ConsoleTarget`` and ``FrameTarget`` are for looking at views and for functions of one's own.
"""
