"""Targets: the places that receive the changes of views (`streaming.targets.target`).

``ParquetTarget``, ``DeltaTarget``, ``IcebergTarget`` and ``SqlTarget`` are durable and receive each
micro-batch exactly once. ``MemoryTarget`` and ``ConsoleTarget`` serve to look at views, and
``FrameTarget`` calls a function of the user.
"""

from streaming.targets.console import ConsoleTarget
from streaming.targets.delta import DeltaTarget
from streaming.targets.frame import FrameTarget
from streaming.targets.iceberg import IcebergTarget
from streaming.targets.memory import MemoryTarget
from streaming.targets.parquet import ParquetTarget
from streaming.targets.retry import Retry
from streaming.targets.sql import SqlTarget
from streaming.targets.target import Target, ViewDelta

__all__ = [
    "ConsoleTarget",
    "DeltaTarget",
    "FrameTarget",
    "IcebergTarget",
    "MemoryTarget",
    "ParquetTarget",
    "Retry",
    "SqlTarget",
    "Target",
    "ViewDelta",
]
