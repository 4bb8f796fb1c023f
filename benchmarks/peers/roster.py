"""Lists every system by name, and the systems of each table."""

from __future__ import annotations

from benchmarks.peers.systems import BULK, ENGINE, LIVE, LSQB, System

SYSTEMS: dict[str, System] = {system.name: system for system in (ENGINE, *BULK, *LIVE, *LSQB)}
