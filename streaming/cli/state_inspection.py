"""Inspection: what is in a state directory, read from its files alone.

Neither views nor Spark are needed, no lock is taken and nothing is changed, so a directory can be
looked at while a job writes to it. What a version is, is in its manifest (`streaming.state`); what
is damaged is told and not an error, for that is what one comes to see. With ``check`` every file of
every version is read and compared with its checksum.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from streaming.errors import StateDamagedError, StateError
from streaming.sources.dead_letters import DEAD_LETTER_SCHEMA
from streaming.state.checksums import decode_checked, parse_items, parse_text
from streaming.state.files import read_small_file
from streaming.state.local_files import LOCK_FILE, LocalFiles
from streaming.state.manifest import (
    MANIFESTS,
    FileChecksum,
    Manifest,
    list_batch_ids,
    manifest_name,
    read_cell_manifest,
    read_manifest,
)
from streaming.state.parquet import read_parquet
from streaming.state.store import DEAD_LETTERS_FOLDER, METRICS_FILE
from streaming.state.verified_files import read_verified

__all__ = ["inspect_state", "writer_of"]

STATE_FILE: Final = "state.json"
MAX_METRICS_BYTES: Final = 1 << 18  # bytes of the metrics that are looked at
MAX_LETTER_FILES: Final = 1000  # files of letters that are read


def inspect_state(folder: Path, *, check: bool = False, letters: int = 5) -> dict[str, Any]:
    """Describe the content of a state directory, for JSON.

    Args:
        folder: The directory.
        check: True to read all files and compare checksums.
        letters: How many dead letters are shown, the newest.

    Raises:
        StateError: The folder is not a state directory.
    """
    if folder.exists() and not folder.is_dir():
        raise StateError(f"{folder} is a file: name the folder that was given as --state")
    files = LocalFiles(folder)
    numbers = list_batch_ids(files)
    if not numbers and files.size(STATE_FILE) is None:
        raise StateError(
            f"{folder} is not a state directory: it has neither {STATE_FILE} nor {MANIFESTS}/; "
            "name the folder that was given as state_dir or --state"
        )
    versions = [_version(files, number, check) for number in numbers]
    whole = [one for one in versions if one["damage"] is None]
    newest = whole[-1]["manifest"] if whole else None
    identity = _identity(files)
    for one in versions:
        del one["manifest"]
    return {
        "location": str(folder),
        **identity,
        "writer": writer_of(folder),
        "versions": versions,
        "arrangements": [] if newest is None else _pieces(newest),
        "bytes": _bytes_of(files, newest),
        "views_give": {}
        if newest is None
        else {v: len(names) for v, names in newest.outputs.items()},
        "letters": _letters(files, letters, 0 if newest is None else newest.dead_letters),
        "last_batch": _last_metrics(files),
    }


def _version(files: LocalFiles, number: int, check: bool) -> dict[str, Any]:
    name = manifest_name(number)
    found: dict[str, Any] = {"batch": number, "damage": None, "manifest": None}
    try:
        manifest = read_manifest(files, number)
    except (StateDamagedError, OSError) as error:
        return {**found, "damage": _reason(error)}
    marks = _marks(manifest)
    found |= {
        "manifest": manifest,
        "written": (Path(files.location) / name).stat().st_mtime,
        "query": manifest.query_id,
        "steps": manifest.steps,
        "cells": None if manifest.cells is None else manifest.cells.count,
        "files": len(marks),
        "bytes": sum(mark.size for mark in marks.values()),
        "letters": manifest.dead_letters,
    }
    for file, mark in marks.items():
        try:
            if check:
                read_verified(files, file, mark)
            elif files.size(file) != mark.size:
                size = files.size(file)
                what = "is missing" if size is None else f"has {size:,} bytes, not {mark.size:,}"
                raise StateDamagedError(f"{file} {what}")
        except (StateDamagedError, OSError) as error:
            return {**found, "damage": _reason(error)}
    return found


def _cells(manifest: Manifest) -> Mapping[tuple[int, int], bytes]:
    return {} if manifest.cells is None else manifest.cells.manifests


def _marks(manifest: Manifest) -> dict[str, FileChecksum]:
    """Every file that a version needs, those of its cells among them."""
    marks = dict(manifest.files)
    for sealed in _cells(manifest).values():
        marks |= read_cell_manifest(sealed).files
    return marks


def _pieces(manifest: Manifest) -> list[dict[str, Any]]:
    """Describe a version; the same arrangement in the cells of one stage is added up."""
    found = _own_pieces(manifest, "")
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for (stage, _), sealed in _cells(manifest).items():
        for piece in _own_pieces(read_cell_manifest(sealed), f"stage {stage} "):
            same = known.setdefault((piece["name"], str(piece["order"])), piece)
            if same is not piece:
                for what in ("rows", "pieces", "bytes"):
                    same[what] += piece[what]
    return [*found, *known.values()]


def _own_pieces(manifest: Manifest, prefix: str) -> list[dict[str, Any]]:
    found = [
        {
            "name": f"{prefix}{name}",
            "order": list(order),
            "kind": "arrangement",
            "rows": sum(piece.rows for piece in placed),
            "pieces": len(placed),
            "bytes": sum(piece.size for piece in placed),
        }
        for name, orders in manifest.traces.items()
        for order, placed in orders.items()
    ]
    return found + [
        {
            "name": f"{prefix}{name}",
            "order": None,
            "kind": "values",
            "rows": manifest.lengths.get(name, 0),
            "pieces": len(placed),
            "bytes": sum(piece.size for piece in placed),
        }
        for name, placed in manifest.tables.items()
    ]


def _bytes_of(files: LocalFiles, newest: Manifest | None) -> dict[str, int]:
    def on_disk(folder: str) -> int:
        try:
            return sum(_size(files, name) for name in files.names(folder))
        except StateDamagedError:  # a link in its place
            return 0

    outputs = {name for names in (newest.outputs.values() if newest else ()) for name in names}
    marks = {} if newest is None else _marks(newest)
    return {
        "state": sum(mark.size for name, mark in marks.items() if name not in outputs),
        **{folder: on_disk(folder) for folder in ("data", "outputs", DEAD_LETTERS_FOLDER)},
    }


def _size(files: LocalFiles, name: str) -> int:
    """The bytes of a file; none of what is no file."""
    try:
        return files.size(name) or 0
    except StateDamagedError:
        return 0


def _identity(files: LocalFiles) -> dict[str, Any]:
    """Inputs and views by the directory's identity."""
    try:
        body = decode_checked(read_small_file(files, STATE_FILE), STATE_FILE)
        names = [name for name, _ in parse_items(body["fingerprints"])]
        inputs = {name: parse_text(one) for name, one in parse_items(body["inputs"])}
        identity = parse_text(body["id"])
    except (OSError, StateDamagedError, KeyError, ValueError, TypeError):
        return {"id": None, "inputs": {}, "views": []}
    views = [name.removeprefix("view ") for name in names if name.startswith("view ")]
    return {"id": identity, "inputs": dict(inputs), "views": views}


def _letters(files: LocalFiles, most: int, total: int) -> dict[str, Any]:
    """Dead letters: how many for which reason, and the newest; of the last files."""
    reasons: dict[tuple[str | None, str], int] = {}
    newest: list[dict[str, Any]] = []
    unreadable = 0
    try:
        names = files.names(DEAD_LETTERS_FOLDER)
    except StateDamagedError:  # a link in its place
        names, unreadable = [], 1
    for name in reversed(names[-MAX_LETTER_FILES:]):
        try:
            table = read_parquet(files.read(name), name).select(DEAD_LETTER_SCHEMA.names)
            table = table.cast(DEAD_LETTER_SCHEMA)
        except (OSError, StateDamagedError, KeyError, pa.ArrowException):
            unreadable += 1
            continue
        grouped = table.group_by(["relation", "reason"]).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            key = row["relation"], row["reason"]
            reasons[key] = reasons.get(key, 0) + row["count_all"]
        room = max(0, most - len(newest))
        newest += table.slice(max(0, table.num_rows - room)).to_pylist()[::-1]
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    return {
        "total": total,
        "reasons": [{"relation": r, "reason": why, "rows": rows} for (r, why), rows in ordered],
        "newest": newest[:most],
        "unreadable_files": unreadable,
    }


def _last_metrics(files: LocalFiles) -> dict[str, Any] | None:
    """The metrics of the last micro-batch, if the line is whole."""
    try:
        lines = bytes(files.read(METRICS_FILE)[-MAX_METRICS_BYTES:]).splitlines()
        found = json.loads(lines[-1])
    except (OSError, StateDamagedError, ValueError, IndexError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def writer_of(folder: Path) -> int | None:
    """The process that writes to the directory now, if any."""
    try:
        handle = os.open(
            folder / LOCK_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.read(handle, 32).decode(errors="replace").strip()
        return int(text) if text.isdecimal() else 0
    finally:
        os.close(handle)  # gives the lock back as well
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error).partition(": restore the state")[0].partition("; restore the state")[0]
