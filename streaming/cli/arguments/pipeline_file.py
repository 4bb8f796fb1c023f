"""Read a pipeline file: the SQL, source tables, targets and state of a pipeline in TOML.

::

    query = "sql"                       # a file .sql, a folder of them, or a list of both

    [inputs.orders]                     # one table per source table
    path = "lake/orders"                # format = "delta" or "parquet"; by default it is recognized

    [inputs.customers]                  # an Iceberg table: its name with the namespace
    table = "shop.customers"

    [inputs.returns]
    path = "in/returns"
    schema = "nr long, day date"        # Parquet: needed if the folder may be empty
    removed_files = "delete"            # Parquet: or "ignore"; by default "refuse"

    [[outputs]]                         # as in a job file; by default a plain table, without weight
    target = "delta"
    path = "lake/{view}"

    [catalog]                           # of the Iceberg tables; else the default one of pyiceberg
    name = "lake"                       # in the configuration of pyiceberg
    namespace = "shop"                  # its tables need no [inputs.NAME] if a view reads them
    options = { uri = "sqlite:///catalog.db" }    # properties; they override the configuration

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
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from circuits import Circuit, SqlError
from circuits.schema import Schema
from circuits.sql import find_relations, view_statements
from streaming.cli.arguments.checks import Checks, ProblemsError
from streaming.cli.arguments.functions import load_functions
from streaming.cli.arguments.job_file import OPTIONS, read_outputs
from streaming.cli.arguments.limits import parse_limits, parse_memory_limit
from streaming.cli.arguments.sink import SinkArgument, assign_sinks, build_outputs
from streaming.cli.arguments.spark_pipeline import is_spark_pipeline, read_spark_pipeline
from streaming.cli.arguments.toml_table import TomlTable, read_toml
from streaming.cli.arguments.views import DUCKDB
from streaming.errors import SourceTableError
from streaming.pipeline.definition import PipelineDefinition
from streaming.pipeline.recomputation import POLICIES
from streaming.pipeline.sql_files import SqlFiles, read_sql_files
from streaming.pipeline.tables.delta_table import DeltaSourceTable
from streaming.pipeline.tables.iceberg_table import IcebergSourceTable, table_names
from streaming.pipeline.tables.parquet_folder import (
    REMOVED_FILES,
    ParquetFolder,
    RemovedFiles,
)
from streaming.pipeline.tables.source_table import SourceTable
from streaming.sink.output import Output
from streaming.targets.iceberg_catalog import IcebergCatalog

__all__ = ["PipelineFile", "read_pipeline"]

FORMATS: Final = ("delta", "iceberg", "parquet")
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
    options = _read_options(root)
    dialect = options.get("dialect", DUCKDB)
    if files is not None:
        files = files.with_merged_flows(dialect)
    catalog, namespace = _read_catalog(root)
    tables = dict(_read_tables(root, catalog))
    if files is not None and namespace is not None and not checks.problems:
        others = _names_read(files, dialect) - {name.casefold() for name in tables}
        tables |= _tables_of_namespace(root, catalog, namespace, others)
    has_mode = [bool({"mode", "keys"} & {*table.names}) for table in root.tables("outputs")]
    sinks = [replace(sink, catalog=catalog) for sink in read_outputs(root)]
    root.report_unknown_keys()
    if "state" not in options and not checks.problems:
        root.report("state.path", "the key is missing: name a folder for the state")
    if not tables and not checks.problems:
        assert files is not None
        unreadable = [*files.find_unreadable(dialect)]
        checks.problems += [f"{file}, {message}" for file, message in unreadable]
        if not unreadable:
            root.report("inputs", _no_source_table(path, catalog, namespace))
    limits = functions = memory_limit = None
    with checks.check():
        limits = parse_limits(*(options.get(name) for name in SHARED_OPTIONS["limits"]))
    with checks.check():
        memory_limit = parse_memory_limit(options.get("memory_limit"))
    with checks.check():
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
        dialect,
        functions,
        limits,
        memory_limit,
        options.get("policy", "auto"),
    )
    return PipelineFile(definition, options.get("every", DEFAULT_EVERY))


def _no_source_table(path: Path, catalog: IcebergCatalog, namespace: str | None) -> str:
    is_spec = is_spark_pipeline(path)
    if namespace is not None:
        where = f"no table of namespace {namespace!r} of {catalog.description}"
        key = "dbsp_wcoj.inputs.NAME.table in configuration" if is_spec else "[inputs.NAME]"
        advice = f"correct the name of the {'database' if is_spec else 'namespace'}, or add {key}"
    elif is_spec:
        where = "no folder of the warehouse"
        advice = "set dbsp_wcoj.warehouse, or dbsp_wcoj.inputs.NAME.path, in configuration"
    else:
        return (
            "there is no source table: add [inputs.NAME] with its path, or [catalog] with its "
            "namespace"
        )
    return f"there is no source table: {where} is a table that a view names: {advice}"


def _read_files(root: TomlTable, path: Path) -> SqlFiles | None:
    names = root.texts("query")
    if names is None:
        if "query" not in root:
            root.report("query", 'the key is missing: add query = "sql", a folder of files .sql')
        return None
    with root.checks.check():
        return read_sql_files([path.parent / name for name in names])
    return None


def _read_catalog(root: TomlTable) -> tuple[IcebergCatalog, str | None]:
    """Read the table ``catalog``.

    Returns:
        The catalog, and the namespace whose tables are source tables; None for no such namespace.
    """
    table = root.table("catalog")
    name, namespace = table.text("name"), table.text("namespace")
    catalog = IcebergCatalog(name or "", table.options("options"))
    table.report_unknown_keys()
    return catalog, namespace


def _names_read(files: SqlFiles, dialect: str) -> frozenset[str]:
    """Return the names, in lower case, that views read and that are not views themselves."""
    with suppress(SqlError):  # it is reported when the views are compiled
        views = view_statements(files.text, dialect)
        names = frozenset[str]().union(*(find_relations(view, dialect) for view in views))
        return names - {view.name.casefold() for view in views}
    return frozenset()


def _tables_of_namespace(
    root: TomlTable, catalog: IcebergCatalog, namespace: str, names: frozenset[str]
) -> dict[str, SourceTable]:
    """Return the Iceberg tables of a namespace that have some of the names, in lower case."""
    try:
        found = table_names(catalog, namespace)
    except SourceTableError as error:
        root.report("catalog", str(error))
        return {}
    return {
        name: IcebergSourceTable(f"{namespace}.{name}", catalog)
        for name in found
        if name.casefold() in names
    }


def _read_tables(root: TomlTable, catalog: IcebergCatalog) -> Iterator[tuple[str, SourceTable]]:
    """Read the tables ``inputs.NAME``."""
    inputs = root.table("inputs")
    for name in inputs.names:
        table = inputs.table(name)
        if not name.isidentifier():
            table.report("", "is not a name: write letters, digits and _, as in [inputs.orders]")
        with root.checks.check():
            source = _read_table(name, table, catalog)
            if source is not None:
                yield name, source


def _read_table(name: str, table: TomlTable, catalog: IcebergCatalog) -> SourceTable | None:
    """Read a table ``inputs.NAME``; None if it has a problem."""
    path, table_name = table.path("path"), table.text("table")
    format_ = table.choice("format", FORMATS)
    schema = table.text("schema")
    removed_files = table.choice("removed_files", REMOVED_FILES)
    options = table.options("options")
    is_iceberg = format_ == "iceberg" or (format_ is None and "table" in table)
    if is_iceberg:
        place, other = "table", "path"
        what = 'name the table with its namespace, as "shop.orders"'
        others = "Delta tables and folders of Parquet files"
    else:
        place, other = "path", "table"
        what, others = "name the folder of the table", "Iceberg tables"
    if place not in table:
        table.report(place, f"the key is missing: {what}")
    if other in table:
        table.report(other, f"is only for {others}: remove the key")
    if format_ is None and path is not None:
        is_delta = "://" not in path and (Path(path) / "_delta_log").is_dir()
        format_ = "delta" if is_delta else "parquet"
    if is_iceberg or format_ == "delta":
        for key in ("schema", "removed_files"):
            if key in table:
                table.report(key, "is only for folders of Parquet files: remove the key")
    if options and format_ != "delta":
        advice = "write those of a catalog into [catalog]" if is_iceberg else "remove the key"
        table.report("options", f"are only for Delta tables: {advice}")
    if not table.report_unknown_keys():
        return None
    if is_iceberg:
        assert table_name is not None
        parts = table_name.split(".")
        if len(parts) == 1 or not all(map(str.strip, parts)):
            table.report("table", f'{table_name!r}: write its namespace, too, as in "shop.orders"')
            return None
        return IcebergSourceTable(table_name, catalog)
    assert path is not None
    if format_ == "delta":
        return DeltaSourceTable(path, storage_options=options or None)
    declared = None if schema is None else Schema.of(name, schema).arrow_columns
    removal = cast(RemovedFiles, removed_files or "refuse")
    return ParquetFolder(path, declared=declared, removed_files=removal)


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
