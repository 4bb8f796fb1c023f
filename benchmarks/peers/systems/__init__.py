"""Lists the engine and its peers; each system has a module of its own in this folder.

A module defines ``counter`` (BULK), ``maintainer`` (LIVE), ``view`` (LSQB) or several of them, as
context managers:

``counter(pattern, edges, resources, **options)``     -> an object with ``plan`` and ``count()``
``maintainer(pattern, edges, resources, **options)``  -> an object with ``step(edges, weights)``,
                                                         which returns the count after the step
``view(query, relations, resources, **options)``        -> an object with ``change(rows, weight)``
                                                         and ``count()``

Loading ends when the context is entered. A module may also define ``prepare(query, relations,
resources)``, which runs before a view is loaded and is not timed. Plans are checked: a plan that
should be worst-case optimal must contain the system's word for that, and a binary plan must not.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.pattern import Pattern

if TYPE_CHECKING:
    import pyarrow as pa  # which the environment of pydbsp does not have

Edges = NDArray[np.int64]  # two rows: sources and targets


class Counter(Protocol):
    """A system that has loaded the edges and can count the pattern."""

    plan: str

    def count(self) -> int:
        """Count the pattern from scratch."""


class Maintainer(Protocol):
    """A system that has loaded and counted the edges, and maintains the count."""

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        """Insert (weight 1) or delete (-1) edges; return the new count."""


class View(Protocol):
    """A system that has loaded the relations of an LSQB query."""

    def change(self, rows: Mapping[str, pa.Table], weight: int) -> None:
        """Insert (weight 1) or delete (-1) these rows; an incremental system counts here."""

    def count(self) -> int:
        """Return the count; a system that counts from scratch does so here."""


@dataclass(frozen=True)
class Resources:
    """The resources of a system: threads, bytes of memory, and a folder for its files."""

    threads: int
    memory: int
    folder: Path


@dataclass(frozen=True)
class System:
    """A system, and the method by which it does the work.

    Attributes:
        name: Its name in the tables.
        module: Its module in this package.
        package: The Python package that it needs.
        method: The method in a few words, for the tables.
        options: Options that are passed to the functions of the module.
        present, absent: Words that its plan must contain, and must not contain.
        undirected: True if it counts undirected patterns, of which a graph has fewer; its expected
            answer differs from that of the other systems.
        deletes: True if it supports deletes.
        recounts: True if it counts an LSQB query from scratch after each change.
    """

    name: str
    module: str
    package: str
    method: str
    options: dict[str, str] = field(default_factory=dict)
    present: str = ""
    absent: str = ""
    undirected: bool = False
    deletes: bool = True
    recounts: bool = False

    @property
    def interpreter(self) -> str:
        """The Python of the package's own environment, if it has one, else that of this process."""
        python = Path(sys.prefix, "peers", self.package, "bin", "python")
        return str(python) if python.exists() else sys.executable

    @property
    def installed(self) -> bool:
        """True if the package is installed, in this environment or in its own."""
        return self.interpreter != sys.executable or self.version() is not None

    def check(self, plan: str) -> None:
        """Raise a RuntimeError if the plan is not of the kind that the system is named for."""
        if (self.present and self.present not in plan) or (self.absent and self.absent in plan):
            raise RuntimeError(
                f"{self.name} should run a plan with {self.present or 'anything'} and without "
                f"{self.absent or 'nothing'}, but it is:\n{plan}"
            )

    def version(self) -> str | None:
        """Return the version of the package; None if it is not in this environment."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    def load_module(self) -> ModuleType:
        """Import the module of the system, and with it the package."""
        return importlib.import_module(f"benchmarks.peers.systems.{self.module}")

    def counter(
        self, pattern: Pattern, edges: Edges, resources: Resources
    ) -> AbstractContextManager[Counter]:
        open_system: Callable[..., AbstractContextManager[Counter]] = self.load_module().counter
        return open_system(pattern, edges, resources, **self.options)

    def maintainer(
        self, pattern: Pattern, edges: Edges, resources: Resources
    ) -> AbstractContextManager[Maintainer]:
        open_system: Callable[..., AbstractContextManager[Maintainer]] = (
            self.load_module().maintainer
        )
        return open_system(pattern, edges, resources, **self.options)

    def view(
        self, query: str, relations: Mapping[str, pa.Table], resources: Resources
    ) -> AbstractContextManager[View]:
        """Return the context of a view; the work before loading is done first, and is not timed."""
        prepare = getattr(self.load_module(), "prepare", None)
        if prepare is not None:
            prepare(query, relations, resources)
        open_system: Callable[..., AbstractContextManager[View]] = self.load_module().view
        return open_system(query, relations, resources, **self.options)


ENGINE = System("dbsp_wcoj", "engine", "dbsp-wcoj", "generic join")

KUZU = System("kuzu", "kuzu", "kuzu", "WCO plan", present="INTERSECT")

BULK = (
    KUZU,
    System("ladybug", "kuzu", "ladybug", "WCO plan", {"package": "ladybug"}, present="INTERSECT"),
    System(
        "kuzu-binary",
        "kuzu",
        "kuzu",
        "binary joins",
        {"plan": "binary"},
        present="HASH_JOIN",
        absent="INTERSECT",
    ),
    System(
        "ladybug-binary",
        "kuzu",
        "ladybug",
        "binary joins",
        {"package": "ladybug", "plan": "binary"},
        present="HASH_JOIN",
        absent="INTERSECT",
    ),
    System("dbsp_wcoj-binary", "engine", "dbsp-wcoj", "binary joins", {"plan": "binary"}),
    System("duckdb", "duckdb", "duckdb", "hash joins", absent="INTERSECT"),
    System("igraph", "igraph", "igraph", "library, undirected", undirected=True),
    System("networkx", "networkx", "networkx", "library, undirected", undirected=True),
)

_SPARK = "pyspark"

DUCKDB_DELTA = System("duckdb-delta", "duckdb", "duckdb", "delta SQL", {"method": "delta"})
DUCKDB_RECOMPUTE = System(
    "duckdb-recompute", "duckdb", "duckdb", "SQL recount", {"method": "recompute"}, recounts=True
)
PATHWAY = System("pathway", "pathway", "pathway", "incremental binary joins")
SPARK_RECOMPUTE = System(
    "spark-recompute", "spark", _SPARK, "SQL recount", {"method": "recompute"}, recounts=True
)

LIVE = (
    DUCKDB_DELTA,
    DUCKDB_RECOMPUTE,
    PATHWAY,
    System("pydbsp", "pydbsp", "pydbsp", "incremental binary joins"),
    System("spark-delta", "spark", _SPARK, "delta SQL", {"method": "delta"}),
    SPARK_RECOMPUTE,
    System("spark-streams", "spark", _SPARK, "stream joins", {"method": "streams"}, deletes=False),
    System("igraph-live", "igraph", "igraph", "recount, undirected", undirected=True),
    System("networkx-live", "networkx", "networkx", "recount, undirected", undirected=True),
)

LSQB = (
    DUCKDB_RECOMPUTE,
    DUCKDB_DELTA,
    System("kuzu-recompute", "kuzu", "kuzu", "Cypher recount", recounts=True),
    System(
        "ladybug-recompute",
        "kuzu",
        "ladybug",
        "Cypher recount",
        {"package": "ladybug"},
        recounts=True,
    ),
    PATHWAY,
    SPARK_RECOMPUTE,
)
