"""Read a pipeline file: the SQL, source tables, targets and state of a pipeline in TOML.

::

    query = "sql"                       # a file .sql, a folder of them, or a list of both

    [inputs.orders]                     # one table per source table
    path = "lake/orders"                # format = "delta" or "parquet"; by default it is recognized

    [inputs.returns]
    path = "in/returns"
    schema = "nr long, day date"        # Parquet: needed if the folder may be empty
    removed_files = "delete"            # Parquet: or "ignore"; by default "refuse"

    [[outputs]]                         # as in a job file; by default a plain table, without weight
    target = "delta"
    path = "lake/{view}"

    [state]
    path = "state"
    memory_limit = "4G"

    [run]
    dialect = "spark"                   # the default is "duckdb"
    functions = "scoring.py:FUNCTIONS"
    policy = "auto"                     # or "incremental" or "full": views that Spark recomputes
    every = "10 seconds"                # for `dbsp-wcoj pipeline run`

    [limits]                            # as in a job file

Paths are relative to the folder of the file. All problems are reported at once. A file ``.yml`` is
the specification of a declarative pipeline of Spark (`streaming.cli.arguments.spark_pipeline`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from circuits import Circuit
from circuits.schema import Schema
from streaming.cli.arguments.checks import Checks, ProblemsError
from streaming.cli.arguments.functions import load_functions
from streaming.cli.arguments.job_file import OPTIONS, read_outputs
from streaming.cli.arguments.limits import parse_limits, parse_memory_limit
from streaming.cli.arguments.sink import SinkArgument, assign_sinks, build_outputs
from streaming.cli.arguments.spark_pipeline import is_spark_pipeline, read_spark_pipeline
from streaming.cli.arguments.toml_table import TomlTable, read_toml
from streaming.cli.arguments.views import DUCKDB
from streaming.pipeline.definition import PipelineDefinition
from streaming.pipeline.recomputation import POLICIES
from streaming.pipeline.sql_files import SqlFiles, read_sql_files
from streaming.pipeline.tables.delta_table import DeltaSourceTable
from streaming.pipeline.tables.parquet_folder import (
    REMOVED_FILES,
    ParquetFolder,
    RemovedFiles,
)
from streaming.pipeline.tables.source_table import SourceTable
from streaming.sink.output import Output

__all__ = ["PipelineFile", "read_pipeline"]

FORMATS: Final = ("delta", "parquet")
DEFAULT_EVERY: Final = "10 seconds"
#: The options of a job file that a pipeline has, too.
SHARED_OPTIONS: Final = {
    "run": ("dialect", "functions", "every"),
    "state": ("path", "memory_limit"),
    "limits": ("max_step_rows", "max_step_bytes", "max_seconds"),
}


@dataclass(frozen=True)
class PipelineFile:
    """The contents of a pipeline file.

    Attributes:
        definition: The pipeline.
        every: The pause after each refresh of ``run``.
    """

    definition: PipelineDefinition
    every: str


def read_pipeline(path: Path) -> PipelineFile:
    """Read a pipeline file.

    Raises:
        EventsError: The file cannot be read, is neither TOML nor YAML, or has problems; all are
            reported.
    """
    checks = Checks()
    if is_spark_pipeline(path):
        values = read_spark_pipeline(path, checks)
        if checks.problems:
            raise ProblemsError(checks.problems)
    else:
        values = read_toml(path)
    root = TomlTable(values, path, "", checks)
    files = _read_files(root, path)
    tables = dict(_read_tables(root))
    has_mode = [bool({"mode", "keys"} & {*table.names}) for table in root.tables("outputs")]
    sinks = list(read_outputs(root))
    options = _read_options(root)
    root.report_unknown_keys()
    if "state" not in options and not checks.problems:
        root.report("state.path", "the key is missing: name a folder for the state")
    if not tables and not checks.problems:
        root.report("inputs", _no_source_table(path))
    limits = functions = memory_limit = None
    with checks.check():
        limits = parse_limits(*(options.get(name) for name in SHARED_OPTIONS["limits"]))
        memory_limit = parse_memory_limit(options.get("memory_limit"))
        functions = load_functions(options.get("functions"))
    if checks.problems:
        raise ProblemsError(checks.problems)
    assert files is not None and limits is not None and functions is not None
    plain = [sink for sink, has in zip(sinks, has_mode, strict=True) if not has]
    definition = PipelineDefinition(
        files,
        tables,
        options["state"],
        partial(_outputs, sinks, plain),
        options.get("dialect", DUCKDB),
        functions,
        limits,
        memory_limit,
        options.get("policy", "auto"),
    )
    return PipelineFile(definition, options.get("every", DEFAULT_EVERY))


def _no_source_table(path: Path) -> str:
    advice = "add [inputs.NAME] with its path"
    if is_spark_pipeline(path):
        advice = (
            "no folder of the warehouse is a table that a view names: set spark.sql.warehouse.dir, "
            "or dbsp_wcoj.inputs.NAME.path, in configuration"
        )
    return f"there is no source table: {advice}"


def _read_files(root: TomlTable, path: Path) -> SqlFiles | None:
    names = root.texts("query")
    if names is None:
        if "query" not in root:
            root.report("query", 'the key is missing: add query = "sql", a folder of files .sql')
        return None
    with root.checks.check():
        return read_sql_files([path.parent / name for name in names])
    return None


def _read_tables(root: TomlTable) -> Iterator[tuple[str, SourceTable]]:
    """Read the tables ``inputs.NAME``."""
    inputs = root.table("inputs")
    for name in inputs.names:
        table = inputs.table(name)
        if not name.isidentifier():
            table.report("", "is not a name: write letters, digits and _, as in [inputs.orders]")
        path = table.path("path")
        format_ = table.choice("format", FORMATS)
        schema = table.text("schema")
        removed_files = table.choice("removed_files", REMOVED_FILES)
        options = table.options("options")
        if path is None and "path" not in table:
            table.report("path", "the key is missing: name the folder of the table")
        if not table.report_unknown_keys() or path is None:
            continue
        if format_ is None:
            is_delta = "://" not in path and (Path(path) / "_delta_log").is_dir()
            format_ = "delta" if is_delta else "parquet"
        if format_ == "delta":
            for key in ("schema", "removed_files"):
                if key in table:
                    table.report(key, "is for Parquet; a Delta table records it: remove the key")
            yield name, DeltaSourceTable(path, storage_options=options or None)
            continue
        if options:
            table.report("options", "are for Delta tables: remove the key")
        declared = None
        if schema is not None:
            with root.checks.check():
                declared = Schema.of(name, schema).arrow_columns
        removal = cast(RemovedFiles, removed_files or "refuse")
        yield name, ParquetFolder(path, declared=declared, removed_files=removal)


def _read_options(root: TomlTable) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, keys in SHARED_OPTIONS.items():
        table = root.table(name)
        for key in keys:
            option, read = OPTIONS[name][key]
            value = read(table, key)
            if value is not None:
                options[option] = value
        if name == "run" and (policy := table.choice("policy", POLICIES)) is not None:
            options["policy"] = policy
            if policy == "full" and options.get("dialect") != "spark":
                table.report("policy", 'Spark computes these views: write dialect = "spark", too')
        table.report_unknown_keys()
    return options


def _outputs(
    sinks: list[SinkArgument], plain: list[SinkArgument], circuit: Circuit
) -> list[Output]:
    """Return the outputs of the views; a plain table has each row of its view once."""
    assigned = assign_sinks(sinks, circuit)
    plain_views = {view for view, sink in assigned.items() if any(sink is other for other in plain)}
    return [
        Output(
            output.view, output.target, "upsert", circuit.schema(output.view).arrow_columns.names
        )
        if output.view in plain_views
        else output
        for output in build_outputs(assigned)
    ]
