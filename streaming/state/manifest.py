"""Manifest: all that belongs to the state after one batch id, in one small file.

It names every file of that version with its size and checksum, says which rows of which files are
the pieces of each arrangement and table, and what the micro-batch was: its input's digests, the
files of its output deltas, how many rows were refused. A version exists from the moment its
manifest has its name, which is one rename; whatever was written before is rubbish without it. In
that of a distributed circuit are those of its cells (`streaming.state.cells`), so that one rename
is the commit of all of them.

The file is one line of JSON, then one line with the CRC-32 of the first, so that a manifest that
was cut short or changed is known for what it is.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from streaming.errors import StateDamagedError
from streaming.state.cells import Cells
from streaming.state.pieces import Placed

__all__ = ["FOLDER", "FileMark", "Manifest", "batch_of", "manifest_name", "of_cell"]

FOLDER: Final = "manifests"
SUFFIX: Final = ".json"
DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class FileMark:
    """How a file must be: its size in bytes and its CRC-32."""

    size: int
    crc: int


@dataclass(frozen=True)
class Manifest:
    """The state after one micro-batch.

    Attributes:
        batch_id: The micro-batch.
        query_id: The checkpoint that numbers it (Spark's id of the query, kept in the checkpoint).
        steps: Steps of the circuit.
        traces: The pieces of each arrangement, by the name of the trace and its column order.
        tables: The pieces of each table of values.
        lengths: The number of values in each table.
        marks: The scalars of the input rules.
        plans: The variable orders of the joins.
        digests: A checksum of the rows of each input.
        outputs: The files of each view's delta, in order.
        letters: Rows that were refused and kept as dead letters, with this micro-batch's.
        files: Every file that is needed, and how it must be.
        state_id: The id of the directory (`streaming.state.identity`).
        fingerprint: That of the circuit.
        cells: Those of a distributed circuit; None if it is embedded.
    """

    batch_id: int
    query_id: str | None
    steps: int
    traces: Mapping[str, Mapping[tuple[int, ...], tuple[Placed, ...]]]
    tables: Mapping[str, tuple[Placed, ...]]
    lengths: Mapping[str, int]
    marks: Mapping[str, int]
    plans: Any
    digests: Mapping[str, int]
    outputs: Mapping[str, tuple[str, ...]]
    letters: int
    files: Mapping[str, FileMark]
    state_id: str = ""
    fingerprint: str = ""
    cells: Cells | None = None

    @property
    def named(self) -> set[str]:
        """Every file that is needed, those of the cells among them."""
        names = set(self.files)
        for sealed in self._sealed.values():
            names |= of_cell(sealed).files.keys()
        return names

    @property
    def _sealed(self) -> Mapping[tuple[int, int], bytes]:
        return {} if self.cells is None else self.cells.manifests

    @property
    def data_files(self) -> list[str]:
        """The files of the state itself, without those of the outputs."""
        outputs = {name for names in self.outputs.values() for name in names}
        return [name for name in self.files if name not in outputs]

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Rows and bytes of each arrangement and table, in all pieces and cells together."""
        sizes = {
            f"{name} [{','.join(map(str, order))}]": placed
            for name, orders in self.traces.items()
            for order, placed in orders.items()
        } | dict(self.tables)
        found = {
            name: (sum(p.rows for p in placed), sum(p.size for p in placed))
            for name, placed in sizes.items()
        }
        for (stage, _), sealed in self._sealed.items():
            for name, (rows, size) in of_cell(sealed).sizes.items():
                known = found.get(f"stage {stage} {name}", (0, 0))
                found[f"stage {stage} {name}"] = known[0] + rows, known[1] + size
        return found

    def to_bytes(self) -> bytes:
        """The text of the file."""
        numbers = {name: i for i, name in enumerate(self.files)}

        def placed(pieces: tuple[Placed, ...]) -> list[list[int]]:
            return [[numbers[p.file], p.row, p.rows, p.size] for p in pieces]

        body = {
            "batch_id": self.batch_id,
            "query_id": self.query_id,
            "steps": self.steps,
            "traces": {
                name: {",".join(map(str, order)): placed(p) for order, p in orders.items()}
                for name, orders in self.traces.items()
            },
            "tables": {name: placed(pieces) for name, pieces in self.tables.items()},
            "lengths": dict(self.lengths),
            "marks": dict(self.marks),
            "plans": self.plans,
            "digests": dict(self.digests),
            "outputs": {name: list(files) for name, files in self.outputs.items()},
            "letters": self.letters,
            "files": {name: [mark.size, mark.crc] for name, mark in self.files.items()},
            "state_id": self.state_id,
            "fingerprint": self.fingerprint,
        }
        if self.cells is not None:
            body["cells"] = self.cells.body
        return sealed(body)

    @staticmethod
    def of(data: bytes, name: str) -> Manifest:
        """Read the text of a file.

        Raises:
            StateDamagedError: It was cut short or changed.
        """
        body = unsealed(data, name)
        try:
            files = list(body["files"])

            def placed(pieces: list[list[int]]) -> tuple[Placed, ...]:
                return tuple(Placed(files[f], row, rows, size) for f, row, rows, size in pieces)

            return Manifest(
                batch_id=body["batch_id"],
                query_id=body["query_id"],
                steps=body["steps"],
                traces={
                    trace: {
                        tuple(map(int, order.split(","))): placed(pieces)
                        for order, pieces in orders.items()
                    }
                    for trace, orders in body["traces"].items()
                },
                tables={table: placed(pieces) for table, pieces in body["tables"].items()},
                lengths=body["lengths"],
                marks=body["marks"],
                plans=body["plans"],
                digests=body["digests"],
                outputs={view: tuple(names) for view, names in body["outputs"].items()},
                letters=body["letters"],
                files={file: FileMark(*mark) for file, mark in body["files"].items()},
                state_id=body["state_id"],
                fingerprint=body["fingerprint"],
                cells=Cells.of(body["cells"]) if "cells" in body else None,
            )
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise StateDamagedError(
                f"{name} is no manifest of this version ({type(error).__name__}: {error}): restore "
                "the state directory from a copy, or delete it together with the checkpoint"
            ) from error


@lru_cache(maxsize=1024)
def of_cell(sealed: bytes) -> Manifest:
    """The manifest of a cell; few of them change from version to version."""
    return Manifest.of(sealed, "the manifest of a cell")


def sealed(body: Mapping[str, Any]) -> bytes:
    """A text of JSON and its checksum.

    >>> sealed({"a": 1})
    b'{"a":1}\\ncrc32 561bacaf\\n'
    """
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return text + f"\ncrc32 {zlib.crc32(text):08x}\n".encode()


def unsealed(data: bytes, name: str) -> dict[str, Any]:
    """What `sealed` wrote.

    Raises:
        StateDamagedError: It was cut short or changed.
    """
    text, _, seal = data.partition(b"\n")
    if seal != f"crc32 {zlib.crc32(text):08x}\n".encode():
        raise StateDamagedError(
            f"{name} ({len(data)} bytes) does not have the checksum that it was written with: it "
            "was cut short or changed; restore the state directory from a copy, or delete it "
            "together with the checkpoint"
        )
    body: dict[str, Any] = json.loads(text)
    return body


def manifest_name(batch_id: int) -> str:
    """The name of the manifest of a batch id; names sort as ids do.

    >>> manifest_name(7)
    'manifests/00000000000000000007.json'
    """
    return f"{FOLDER}/{batch_id:0{DIGITS}}{SUFFIX}"


def batch_of(name: str) -> int | None:
    """The batch id of a manifest's name; None if it is none.

    >>> batch_of(manifest_name(7)), batch_of("manifests/7.json.tmp")
    (7, None)
    """
    stem = name.removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    return int(stem) if len(stem) == DIGITS and stem.isdecimal() else None
