"""Targets: where the changes of views go, each micro-batch once (`streaming.targets.target`).

``ParquetTarget``, ``DeltaTarget`` and ``SqlTarget`` are durable; ``MemoryTarget``,
``ConsoleTarget`` and ``FrameTarget`` are for looking at views and for functions of one's own.
"""

from streaming.targets.console import ConsoleTarget
from streaming.targets.delta import DeltaTarget
from streaming.targets.frame import FrameTarget
from streaming.targets.memory import MemoryTarget
from streaming.targets.parquet import ParquetTarget
from streaming.targets.retry import Retry
from streaming.targets.sql import SqlTarget
from streaming.targets.target import Target, ViewDelta

__all__ = [
    "ConsoleTarget",
    "DeltaTarget",
    "FrameTarget",
    "MemoryTarget",
    "ParquetTarget",
    "Retry",
    "SqlTarget",
    "Target",
    "ViewDelta",
]
