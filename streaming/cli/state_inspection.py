"""State inspection: describe the contents of a state directory, from its files alone.

The command works without Spark, takes no lock and changes nothing, so it can describe a directory
while a query writes to it. The manifest of a version lists the files of this version
(`streaming.state`). A damaged version is part of the description, not an error. With ``check``,
every file of every version is read and compared with its checksum.

The state of an operator is stored under a hash. If the directory contains the text of the views,
the description has the names of `circuits.Circuit.explain`, the work of each operator, and the
views that need each arrangement (`circuits.runtime.state_names`).
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from circuits import Circuit
from circuits.runtime.state_names import StateNames, StatePart
from circuits.state.migration import find_integral
from circuits.state.registry import operator_trace, relation_trace
from streaming.distributed.cell_state import circuit_stages
from streaming.errors import StateDamagedError, StateError
from streaming.sources.dead_letters import DEAD_LETTER_SCHEMA
from streaming.state.checksums import decode_checked, parse_items, parse_text
from streaming.state.directory_identity import IDENTITY_FILE
from streaming.state.files import Files, read_small_file
from streaming.state.local_files import LOCK_FILE, LocalFiles
from streaming.state.manifest import (
    MANIFESTS,
    Manifest,
    list_batch_ids,
    manifest_name,
    read_cell_manifest,
    read_manifest,
)
from streaming.state.open_files import open_files
from streaming.state.parquet import read_parquet
from streaming.state.program_change import definition_name
from streaming.state.records.dead_letter_files import DEAD_LETTERS_FOLDER
from streaming.state.records.metrics_file import METRICS_FILE
from streaming.state.segment_references import SegmentReference
from streaming.state.verified_files import read_verified
from streaming.state.view_definitions import read_definition

__all__ = ["inspect_state", "writer_of"]

#: The last line of metrics is searched in this number of bytes at the end of the file.
MAX_METRICS_BYTES: Final = 1 << 18
#: The number of files with dead letters that are read, the newest.
MAX_DEAD_LETTER_FILES: Final = 1000


def inspect_state(
    location: str | os.PathLike[str], *, check: bool = False, letters: int = 5
) -> dict[str, Any]:
    """Describe the contents of a state directory as JSON values.

    Args:
        location: The directory: a path, or a URI. A URI that was a path may have lost a slash, as
            in ``s3:/b/d``.
        check: True to read all files and compare checksums.
        letters: The maximum number of dead letters to show, the newest first.

    Raises:
        StateError: The folder is not a state directory.
    """
    files = open_files(location)
    folder = Path(location) if isinstance(files, LocalFiles) else None
    if folder is not None and folder.exists() and not folder.is_dir():
        raise StateError(f"{folder} is a file: name the folder that was given as --state")
    try:
        batch_ids = list_batch_ids(files)
        has_identity = files.size(IDENTITY_FILE) is not None
    except OSError as error:
        raise StateError(f"{location} cannot be read: {error}") from error
    if not batch_ids and not has_identity:
        raise StateError(
            f"{location} is not a state directory: it contains neither {IDENTITY_FILE} nor "
            f"{MANIFESTS}/; name the folder that was given as state_dir or --state"
        )
    manifests: dict[int, Manifest] = {}
    times = {status.name: status.modified for status in files.list_files(MANIFESTS)}
    versions = [
        _describe_version(files, id, times.get(manifest_name(id), 0.0), check, manifests)
        for id in batch_ids
    ]
    intact = [version["batch"] for version in versions if version["damage"] is None]
    newest = manifests[intact[-1]] if intact else None
    return {
        "location": files.location if folder is None else str(folder),
        **_identity(files),
        "writer": None if folder is None else writer_of(folder),
        "versions": versions,
        "arrangements": [] if newest is None else _describe_state(files, newest),
        "bytes": _disk_usage(files, newest),
        "output_files": {}
        if newest is None
        else {view: len(names) for view, names in newest.outputs.items()},
        "dead_letters": _dead_letters(files, letters, 0 if newest is None else newest.dead_letters),
        "last_batch": _last_metrics(files),
    }


def _describe_version(
    files: Files, batch_id: int, written: float, check: bool, manifests: dict[int, Manifest]
) -> dict[str, Any]:
    """Describe a version, and add its manifest to ``manifests``; ``damage`` is None if intact."""
    version: dict[str, Any] = {"batch": batch_id, "damage": None}
    try:
        manifest = manifests[batch_id] = read_manifest(files, batch_id)
    except (StateDamagedError, OSError) as error:
        return {**version, "damage": _reason(error)}
    checksums = manifest.all_files
    version |= {
        "written": written,
        "query": manifest.query_id,
        "steps": manifest.steps,
        "cells": None if manifest.cells is None else manifest.cells.count,
        "files": len(checksums),
        "bytes": sum(checksum.size for checksum in checksums.values()),
        "dead_letters": manifest.dead_letters,
    }
    for name, checksum in checksums.items():
        try:
            if check:
                read_verified(files, name, checksum)
            else:
                _check_size(files, name, checksum.size)
        except (StateDamagedError, OSError) as error:
            return {**version, "damage": _reason(error)}
    return version


def _check_size(files: Files, name: str, expected: int) -> None:
    size = files.size(name)
    if size is None:
        raise StateDamagedError(f"{name} is missing")
    if size != expected:
        raise StateDamagedError(f"{name} has {size:,} bytes, not {expected:,}")


def _cell_manifests(manifest: Manifest) -> Mapping[tuple[int, int], bytes]:
    """Return the manifests of the cells of a distributed state, by stage and cell."""
    return {} if manifest.cells is None else manifest.cells.manifests


def _describe_state(files: Files, manifest: Manifest) -> list[dict[str, Any]]:
    """Describe the arrangements and dictionaries of a version, with the names of `explain`.

    Equal arrangements in the cells of one stage are added up.
    """
    entries = _describe_manifest(manifest, "")
    stage_entries: dict[tuple[str, str], dict[str, Any]] = {}
    for (stage, _), cell_manifest in _cell_manifests(manifest).items():
        for entry in _describe_manifest(read_cell_manifest(cell_manifest), f"stage {stage} "):
            key = entry["name"], str(entry["order"])
            if key in stage_entries:
                for number in ("rows", "segments", "bytes"):
                    stage_entries[key][number] += entry[number]
            else:
                stage_entries[key] = entry
    entries += stage_entries.values()
    find_part = _part_finder(files, manifest)
    for entry in entries:
        part, views = find_part(entry["name"], entry["order"])
        entry["stored"], entry["operator"], entry["label"] = entry["name"], None, None
        entry["views"] = list(views)
        if part is not None:
            entry["name"], entry["operator"] = part.name, part.operator
            entry["label"] = part.description
    return entries


def _part_finder(
    files: Files, manifest: Manifest
) -> Callable[[str, list[int] | None], tuple[StatePart | None, tuple[str, ...]]]:
    """Return a function from the stored name of state, and its column order, to part and views.

    The function finds nothing if the directory has no usable query text. In a distributed state,
    the circuits of the cells name the state, so all state of a stage belongs to one operator.
    """
    try:
        circuit = Circuit(read_definition(files, name=definition_name(files, manifest)))
        names = StateNames(circuit.graph)
        if manifest.cells is None:
            circuit.graph.registry.resume(manifest.plans)
            return lambda name, order: (
                names.part(name),
                () if order is None else names.views_of(name, tuple(order)),
            )
        nodes = circuit.graph.nodes
        part_of_stage = {
            f"stage {stage.number}": names.part(
                operator_trace(nodes[find_integral(circuit, stage.view)].state_name, 0)
                if stage.view
                else relation_trace(nodes[stage.node].state_name)
            )
            for stage in circuit_stages(circuit).stages
        }
    except Exception:  # a damaged file may raise any error, and the names are optional
        return lambda name, order: (None, ())

    def find(name: str, order: list[int] | None) -> tuple[StatePart | None, tuple[str, ...]]:
        stage_name = " ".join(name.split(" ")[:2])
        part = part_of_stage.get(stage_name)
        return (None, ()) if part is None else (part._replace(name=name), part.views)

    return find


def _describe_manifest(manifest: Manifest, prefix: str) -> list[dict[str, Any]]:
    """Describe the arrangements and dictionaries of one manifest."""
    arrangements = [
        {
            "name": f"{prefix}{name}",
            "order": list(order),
            "kind": "arrangement",
            **_count_segments(segments),
        }
        for name, orders in manifest.traces.items()
        for order, segments in orders.items()
    ]
    dictionaries = [
        {
            "name": f"{prefix}{name}",
            "order": None,
            "kind": "dictionary",
            **_count_segments(segments),
        }
        for name, segments in manifest.dictionaries.items()
    ]
    return arrangements + dictionaries


def _count_segments(segments: tuple[SegmentReference, ...]) -> dict[str, int]:
    return {
        "rows": sum(segment.rows for segment in segments),
        "segments": len(segments),
        "bytes": sum(segment.size for segment in segments),
    }


def _disk_usage(files: Files, newest: Manifest | None) -> dict[str, int]:
    """Return the bytes of the newest version's state, and of each folder of the directory."""
    if newest is None:
        state = 0
    else:
        outputs = {name for names in newest.outputs.values() for name in names}
        state = sum(
            checksum.size for name, checksum in newest.all_files.items() if name not in outputs
        )
    folders = ("data", "outputs", DEAD_LETTERS_FOLDER)
    return {"state": state, **{folder: _size_of_folder(files, folder) for folder in folders}}


def _size_of_folder(files: Files, folder: str) -> int:
    try:
        return sum(status.size for status in files.list_files(folder))
    except StateDamagedError:  # the folder is a link
        return 0


def _identity(files: Files) -> dict[str, Any]:
    """Return the id, the inputs and the views of the directory, from `IDENTITY_FILE`."""
    try:
        body = decode_checked(read_small_file(files, IDENTITY_FILE), IDENTITY_FILE)
        names = [name for name, _ in parse_items(body["fingerprints"])]
        inputs = {name: parse_text(columns) for name, columns in parse_items(body["inputs"])}
        identity = parse_text(body["id"])
    except (OSError, StateDamagedError, KeyError, ValueError, TypeError):
        return {"id": None, "inputs": {}, "views": []}
    views = [name.removeprefix("view ") for name in names if name.startswith("view ")]
    return {"id": identity, "inputs": inputs, "views": views}


def _dead_letters(files: Files, max_shown: int, total: int) -> dict[str, Any]:
    """Describe the dead letters: the newest, and the number of rows for each reason.

    Only the newest `MAX_DEAD_LETTER_FILES` files are read.
    """
    rows_by_reason: dict[tuple[str | None, str], int] = {}
    newest: list[dict[str, Any]] = []
    unreadable = 0
    try:
        names = files.names(DEAD_LETTERS_FOLDER)
    except StateDamagedError:  # the folder is a link
        names, unreadable = [], 1
    for name in reversed(names[-MAX_DEAD_LETTER_FILES:]):
        try:
            table = read_parquet(files.read(name), name).select(DEAD_LETTER_SCHEMA.names)
            table = table.cast(DEAD_LETTER_SCHEMA)
        except (OSError, StateDamagedError, KeyError, pa.ArrowException):
            unreadable += 1
            continue
        grouped = table.group_by(["relation", "reason"]).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            key = row["relation"], row["reason"]
            rows_by_reason[key] = rows_by_reason.get(key, 0) + row["count_all"]
        still_shown = max(0, max_shown - len(newest))
        newest += table.slice(max(0, table.num_rows - still_shown)).to_pylist()[::-1]
    most_frequent_first = sorted(rows_by_reason.items(), key=lambda item: -item[1])
    return {
        "total": total,
        "reasons": [
            {"relation": relation, "reason": reason, "rows": rows}
            for (relation, reason), rows in most_frequent_first
        ],
        "newest": newest[:max_shown],
        "unreadable_files": unreadable,
    }


def _last_metrics(files: Files) -> dict[str, Any] | None:
    """Return the metrics of the last micro-batch; None if their line is missing or incomplete."""
    try:
        lines = bytes(files.read(METRICS_FILE)[-MAX_METRICS_BYTES:]).splitlines()
        metrics = json.loads(lines[-1])
    except (OSError, StateDamagedError, ValueError, IndexError, RecursionError):
        return None
    return metrics if isinstance(metrics, dict) else None


def writer_of(folder: Path) -> int | None:
    """Return the id of the process that holds the directory's lock; None if there is no writer.

    The result is 0 if the directory is locked and the id cannot be read.
    """
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
        os.close(handle)  # this also releases the lock
    return None


def _reason(error: Exception) -> str:
    """Return the message of an error without the advice to restore the directory."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error).partition(": restore the state")[0].partition("; restore the state")[0]
