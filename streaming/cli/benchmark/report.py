"""Bench report: one document with the results of a comparison, for JSON, CSV and the plot.

A document contains everything that is needed to repeat and to assess the comparison: query, inputs,
seed, options, versions, the machine, and the time of every step. It does not contain the name of
the host, and it names files without their folders.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from streaming.cli.arguments.limits import memory_of_machine
from streaming.cli.benchmark.repetition import Measurement
from streaming.errors import EventsError, FailedError

__all__ = [
    "add_environment",
    "check_writable",
    "machine",
    "result_of",
    "summary",
    "versions",
    "write_report",
]

FORMATS: Final = (".json", ".csv")
COLUMNS: Final = ("formula", "rows_per_step", "repetition", "step", "change", "milliseconds")
_PACKAGES: Final = ("dbsp-wcoj", "numpy", "numba", "pyarrow")
_CPU: Final = Path("/proc/cpuinfo")
#: Decimals of a time in milliseconds: ten nanoseconds.
_DECIMALS: Final = 5


def check_writable(option: str, path: Path, endings: Sequence[str]) -> None:
    """Check that a file can be written to, before anything is measured.

    Raises:
        EventsError: The ending of the file is not among ``endings``, its folder does not exist, the
            path is a folder, or this user may not write to it.
    """
    if path.suffix.lower() not in endings:
        raise EventsError(f"{option} {path}: the name has to end in {' or '.join(endings)}")
    if path.is_dir():
        raise EventsError(f"{option} {path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise EventsError(f"{option} {path}: folder {path.parent} does not exist: create it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise EventsError(f"{option} {path}: this user may not write there")


def versions() -> dict[str, str | None]:
    """Return the versions that times depend on; None for a package that is not installed."""
    version_by_package: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            version_by_package[name] = version(name)
        except PackageNotFoundError:
            version_by_package[name] = None
    return version_by_package


def machine() -> dict[str, Any]:
    """Return processor, cores, bytes of memory and system, without the name of the host."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": memory_of_machine(),
        "system": f"{platform.system()} {platform.release()}",
    }


def result_of(formula: str, size: int, measurement: Measurement) -> dict[str, Any]:
    """Return the measurements of one formula and step size; times are in milliseconds."""
    lower, upper = measurement.quartiles
    return {
        "formula": formula,
        "rows_per_step": size,
        "median_ms": _ms(measurement.median),
        "lower_quartile_ms": _ms(lower),
        "upper_quartile_ms": _ms(upper),
        "interval_ms": [_ms(end) for end in measurement.interval],
        "precision": round(measurement.precision, 4),
        "repetitions": len(measurement.repetitions),
        "stopped_by": str(measurement.stop),
        "times_ms": [
            [_ms(seconds) for seconds in repetition] for repetition in measurement.repetitions
        ],
    }


def summary(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without the time of every step.

    >>> summary({"seed": 0, "results": [{"median_ms": 1.0, "times_ms": [[1.0]]}]})
    {'seed': 0, 'results': [{'median_ms': 1.0}]}
    """
    results = [
        {key: value for key, value in result.items() if key != "times_ms"}
        for result in document["results"]
    ]
    return {**document, "results": results}


def add_environment(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the current time, the versions and the machine."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"date": now, **document, "versions": versions(), "machine": machine()}


def write_report(document: Mapping[str, Any], path: Path) -> None:
    """Write a document as JSON or CSV, by the ending of the file.

    The CSV has a line for each step; lines that begin with ``#`` come first and have the rest of
    the document, one JSON value each: ``pandas.read_csv(path, comment="#")`` reads the steps.

    Raises:
        FailedError: The file cannot be written.
    """
    if path.suffix.lower() == ".csv":
        text = _as_csv(document)
    else:
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FailedError(f"--export {path}: {error.strerror or error}") from None


def _as_csv(document: Mapping[str, Any]) -> str:
    out = io.StringIO()
    for key, value in document.items():
        if key != "results":
            out.write(f"# {key}: {json.dumps(value)}\n")
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for result in document["results"]:
        for repetition, times in enumerate(result["times_ms"], 1):
            for step, milliseconds in enumerate(times, 1):
                change = "insert" if step <= len(times) // 2 else "delete"
                rows.writerow(
                    (
                        result["formula"],
                        result["rows_per_step"],
                        repetition,
                        step,
                        change,
                        milliseconds,
                    )
                )
    return out.getvalue()


def _ms(seconds: float) -> float:
    return round(1000 * seconds, _DECIMALS)


def _processor() -> str:
    """Return the name of the processor, or its architecture if the system does not name it."""
    try:
        lines = _CPU.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
