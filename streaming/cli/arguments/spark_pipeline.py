"""Read the specification of a declarative pipeline of Spark, as the keys of a pipeline file.

::

    name: shop                                      # spark-pipeline.yml
    storage: file:///data/storage
    database: shop                                  # or schema
    libraries:
      - glob:
          include: transformations/**
    configuration:
      dbsp_wcoj.warehouse: /data/warehouse          # the value of spark.sql.warehouse.dir
      dbsp_wcoj.inputs.orders.path: /data/orders    # a key of [inputs.orders]
      dbsp_wcoj.run.policy: incremental             # a key of [run]; or of [state]
      dbsp_wcoj.keys.cities: city                   # the key of the target table of a view

=================== ============================================================================
libraries           the files of SQL: a file, or a folder with all below it, as ``folder/**``
tables              folders of the database in the warehouse, as Spark creates them:
                    ``WAREHOUSE/DATABASE.db/TABLE``, and ``WAREHOUSE/TABLE`` in "default",
                    in lower case
source tables       the tables that a view names, and those of the settings ``inputs.NAME.KEY``
target tables       Delta tables of the names of the views; a streaming table is appended to
catalog             ``spark_catalog``; or another one, whose tables are Iceberg tables: then source
                    and target tables are in its namespace ``DATABASE``
state               the folder ``dbsp_wcoj`` of the storage
=================== ============================================================================

Spark itself ignores settings that begin with ``dbsp_wcoj``, so it can run the same file. A setting
of Spark that may change the rows of views is refused, unless it has the value that this package
computes with.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from circuits.sql import ViewStatement, find_relations, view_statements
from streaming.cli.arguments.checks import Checks
from streaming.cli.arguments.toml_table import MAX_BYTES, TomlTable
from streaming.errors import EventsError
from streaming.pipeline.sql_files import SQL_SUFFIX, read_sql_files

__all__ = ["is_spark_pipeline", "read_spark_pipeline"]

SUFFIXES: Final = (".yml", ".yaml")
CATALOG: Final = "spark_catalog"
DEFAULT_DATABASE: Final = "default"
WAREHOUSE: Final = "spark.sql.warehouse.dir"
DEFAULT_WAREHOUSE: Final = "spark-warehouse"
#: The folder of the state in the storage.
STATE_FOLDER: Final = "dbsp_wcoj"
#: Begins the settings of this package.
OWN_PREFIX: Final = "dbsp_wcoj"
#: Settings that may change the rows of views, and the values that this package computes with.
REQUIRED_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "spark.sql.ansi.enabled": ("true",),
    "spark.sql.caseSensitive": ("false",),
    "spark.sql.catalog.spark_catalog": ("org.apache.spark.sql.delta.catalog.DeltaCatalog",),
    "spark.sql.extensions": (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ),
    "spark.sql.session.timeZone": ("UTC", "Etc/UTC"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ",),
}
#: The class of a catalog of Iceberg tables in Spark.
ICEBERG_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
#: Types of catalogs that ``pyiceberg`` has, too, with the same properties.
CATALOG_TYPES: Final = ("rest", "hive", "glue")
#: Settings of a catalog in Spark that name classes of Java, or that only change how Spark works.
CATALOG_SETTINGS_OF_SPARK: Final = ("io-impl", "cache-enabled", "cache.expiration-interval-ms")
#: Settings that change only how Spark works, after "spark.sql.".
SETTINGS_WITHOUT_EFFECT: Final = frozenset(
    (
        "adaptive.advisoryPartitionSizeInBytes",
        "adaptive.autoBroadcastJoinThreshold",
        "adaptive.coalescePartitions.enabled",
        "adaptive.coalescePartitions.initialPartitionNum",
        "adaptive.coalescePartitions.minPartitionSize",
        "adaptive.coalescePartitions.parallelismFirst",
        "adaptive.enabled",
        "adaptive.localShuffleReader.enabled",
        "adaptive.skewJoin.enabled",
        "adaptive.skewJoin.skewedPartitionFactor",
        "adaptive.skewJoin.skewedPartitionThresholdInBytes",
        "autoBroadcastJoinThreshold",
        "broadcastTimeout",
        "catalogImplementation",
        "execution.arrow.maxRecordsPerBatch",
        "execution.arrow.pyspark.enabled",
        "files.maxPartitionBytes",
        "files.maxPartitionNum",
        "files.maxRecordsPerFile",
        "files.minPartitionNum",
        "files.openCostInBytes",
        "parquet.columnarReaderBatchSize",
        "parquet.compression.codec",
        "parquet.enableVectorizedReader",
        "parquet.filterPushdown",
        "shuffle.partitions",
        "sources.bucketing.enabled",
        "sources.parallelPartitionDiscovery.threshold",
        "streaming.checkpointLocation",
        "streaming.metricsEnabled",
        "streaming.minBatchesToRetain",
        "streaming.numRecentProgressUpdates",
        "streaming.stateStore.providerClass",
        "streaming.ui.enabled",
        "ui.explainMode",
        "ui.retainedExecutions",
        "warehouse.dir",
    )
)


class _YamlMapping(TomlTable):
    """A mapping of a file in YAML: reads the values of keys, as for a table in TOML.

    Keys that are no text, such as ``on``, which YAML reads as true, become text.
    """

    table_notation = "a mapping, as {key}: and lines KEY: VALUE below it"
    tables_notation = "a list of mappings, as {key}: and lines - KEY: VALUE below it"

    def __init__(self, values: Mapping[Any, Any], file: Path, name: str, checks: Checks) -> None:
        super().__init__({str(key): value for key, value in values.items()}, file, name, checks)


def is_spark_pipeline(path: Path) -> bool:
    """Return whether a file is the specification of a pipeline of Spark, by its suffix."""
    return path.suffix.lower() in SUFFIXES


def read_spark_pipeline(path: Path, checks: Checks) -> dict[str, Any]:
    """Return the keys and values that a pipeline file in TOML would have.

    Args:
        path: The specification.
        checks: Receives the problems.

    Raises:
        EventsError: The file cannot be read, or is not YAML.
    """
    spec = _YamlMapping(_read_yaml(path), path, "", checks)
    base = path.absolute().parent
    for key in ("name", "storage"):
        if spec.text(key) is None and key not in spec:
            spec.report(key, "the key is missing")
    catalog = spec.text("catalog") or CATALOG
    databases = [spec.text("database"), spec.text("schema")]
    database = next(filter(None, databases), DEFAULT_DATABASE)
    files = list(dict.fromkeys(_list_files(spec, base)))
    settings = _Settings(spec, spec.options("configuration"), catalog)
    folder = _resolve_path(settings.warehouse, base, spec, f"configuration.{WAREHOUSE}")
    storage = _resolve_path(spec.text("storage") or "", base, spec, "storage")
    if all(databases):
        spec.report("schema", "write database or schema, not both")
    if not files:
        spec.report("libraries", "no file .sql: add - glob: {include: transformations/**}")
    if not spec.report_unknown_keys():
        return {}
    if database.lower() != DEFAULT_DATABASE:
        folder = f"{folder}/{database.lower()}.db"
    sql = read_sql_files(files).with_merged_flows("spark")
    unreadable = dict(sql.find_unreadable("spark"))  # they are reported when views are compiled
    views = view_statements(sql.text_without(unreadable), "spark")
    if not unreadable:
        settings.check_keys(views)
    tables: dict[str, Any]
    if catalog == CATALOG:
        outputs = list(_outputs(spec, views, settings.keys, folder=folder))
        tables = {"inputs": _inputs(folder, views, settings.inputs), "outputs": outputs}
    else:
        tables = {
            "inputs": settings.inputs,
            "outputs": list(_outputs(spec, views, settings.keys, namespace=database)),
            "catalog": {"name": catalog, "namespace": database, "options": settings.catalog},
        }
    return {
        "query": [str(file.relative_to(base)) for file in files],
        **tables,
        "state": {"path": f"{storage}/{STATE_FOLDER}", **settings.state},
        "run": {"dialect": "spark", **settings.run},
    }


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise EventsError(f"{path} has more than {MAX_BYTES:,} bytes: name a file in YAML")
        values = yaml.safe_load(data)
    except OSError as error:
        raise EventsError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date without a day
        raise EventsError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise EventsError(f"{path} has no keys: write name, storage, libraries, ... into it")
    return values


def _list_files(spec: TomlTable, folder: Path) -> Iterator[Path]:
    """Yield the files of SQL of the libraries, in the order of their names."""
    for library in spec.tables("libraries"):
        pattern = library.table("glob")
        include = pattern.text("include")
        if include is None:
            pattern.report("include", "the key is missing: name a file, or a folder as folder/**")
            continue
        library.report_unknown_keys()
        pattern.report_unknown_keys()
        prefix = include.removesuffix("/**")
        if glob.has_magic(prefix) or Path(include).is_absolute():
            pattern.report("include", f"{include!r}: name a file, or a folder as folder/**")
            continue
        is_folder = prefix != include
        if is_folder and not (folder / prefix).is_dir():
            pattern.report(
                "include",
                f"{include!r}: there is no folder {prefix}: create it, or correct the name",
            )
        files = (folder / prefix).rglob("*") if is_folder else [folder / include]
        for file in sorted(file for file in files if file.is_file() or not is_folder):
            if file.suffix == SQL_SUFFIX:
                yield file
            elif "__pycache__" not in file.parts:
                pattern.report(
                    "include",
                    f"{file.relative_to(folder)} is not a file {SQL_SUFFIX}: write its tables in "
                    "SQL, or name a folder without it",
                )


class _Settings:
    """The settings of a specification.

    Attributes:
        warehouse: The folder of the tables.
        inputs: The keys of each source table.
        run: Keys of the table ``run`` of a pipeline file.
        state: Keys of the table ``state``.
        keys: The key columns of views.
        catalog: The properties of the catalog, if it is one of Iceberg tables.
    """

    def __init__(self, spec: TomlTable, settings: Mapping[str, str], catalog: str) -> None:
        self.warehouse = settings.get(WAREHOUSE, DEFAULT_WAREHOUSE)
        self.inputs: dict[str, dict[str, Any]] = {}
        self.run: dict[str, str] = {}
        self.state: dict[str, str] = {}
        self.keys: dict[str, list[str]] = {}
        self.catalog: dict[str, str] = {}
        self._catalog_name = catalog
        self._spec = spec
        for name, value in settings.items():
            if problem := self._read(name, value):
                spec.report(f"configuration.{name}", problem)
        if catalog != CATALOG and not self.catalog:
            spec.report(
                "catalog",
                f"{catalog!r} has no settings, so its tables are not known: write "
                f"spark.sql.catalog.{catalog}.type and its other properties, or "
                f"{OWN_PREFIX}.catalog.KEY, the properties of pyiceberg, into configuration; or "
                f"{CATALOG}",
            )

    def _read(self, name: str, value: str) -> str | None:
        """Read a setting; return the problem with it."""
        match name.split("."):
            case [word, "inputs", table, "options", *rest] if word == OWN_PREFIX and rest:
                options = self.inputs.setdefault(table, {}).setdefault("options", {})
                options[".".join(rest)] = value
            case [word, "inputs", table, key] if word == OWN_PREFIX and key != "options":
                self.inputs.setdefault(table, {})[key] = value
            case [word, "run", key] if word == OWN_PREFIX and key != "dialect":
                self.run[key] = value
            case [word, "state", key] if word == OWN_PREFIX:
                self.state[key] = value
            case [word, "catalog", key, *rest] if word == OWN_PREFIX:
                self.catalog[".".join([key, *rest])] = value
            case [word, "warehouse"] if word == OWN_PREFIX:
                self.warehouse = value
            case [word, "keys", view] if word == OWN_PREFIX:
                self.keys[view] = [column.strip() for column in value.split(",")]
            case [word, *_] if word == OWN_PREFIX:
                return (
                    f"unknown setting: write {OWN_PREFIX}.inputs.NAME.KEY, {OWN_PREFIX}.keys.VIEW, "
                    f"{OWN_PREFIX}.catalog.KEY, {OWN_PREFIX}.warehouse, {OWN_PREFIX}.run.KEY or "
                    f"{OWN_PREFIX}.state.KEY"
                )
            case ["spark", "sql", "catalog", catalog, *key] if catalog == self._catalog_name:
                if catalog != CATALOG:
                    return self._read_catalog(".".join(key), value)
                return _problem_of(name, value)
            case ["spark", "sql", *_]:
                return _problem_of(name, value)
        return None

    def check_keys(self, views: list[ViewStatement]) -> None:
        """Check that each view with keys exists, and has a target."""
        views_by_name = {view.name.lower(): view for view in views}
        for name in self.keys:
            view = views_by_name.get(name.lower())
            if view is None:
                problem = "there is no view of this name"
            elif view.is_temporary:
                problem = f"view {name.lower()!r} is temporary, so it has no target"
            else:
                continue
            self._spec.report(f"configuration.{OWN_PREFIX}.keys.{name}", problem)

    def _read_catalog(self, key: str, value: str) -> str | None:
        """Read a property of the catalog; return the problem with it."""
        if not key:
            return None if value == ICEBERG_CATALOG else f"{value!r}: write {ICEBERG_CATALOG}"
        if key == "type" and value not in CATALOG_TYPES:
            return (
                f"{value!r} is not a type of both Spark and pyiceberg: write "
                f"{', '.join(CATALOG_TYPES)}, or leave it out and write {OWN_PREFIX}.catalog.type"
            )
        if key == "catalog-impl":
            return f"leave it out, and write {OWN_PREFIX}.catalog.type, a type of pyiceberg"
        if key not in CATALOG_SETTINGS_OF_SPARK:
            self.catalog.setdefault(key, value)
        return None


def _problem_of(name: str, value: str) -> str | None:
    """Return the problem with a setting of Spark's SQL; None if there is none."""
    allowed = REQUIRED_SETTINGS.get(name, ())
    if value.casefold() in (other.casefold() for other in allowed):
        return None
    if allowed:
        return f"{value!r} may change the rows of views: write {allowed[0]}, or leave it out"
    if name.removeprefix("spark.sql.") in SETTINGS_WITHOUT_EFFECT:
        return None
    return "it is not known whether this setting changes the rows of views: leave it out"


def _resolve_path(text: str, folder: Path, spec: TomlTable, key: str) -> str:
    """Return a path, relative to a folder, or a URI; the URI of a local file becomes a path.

    ``?`` and ``#`` are characters of the name. A URI of a file without its full path is a problem
    of the key.
    """
    if text.startswith("file:"):
        path = unquote(text.removeprefix("file:").removeprefix("//"))
        if not path.startswith("/"):
            spec.report(key, f"{text!r}: write file:/// and a full path, or a path without file:")
        return path.rstrip("/") or "/"
    return text.rstrip("/") if "://" in text else str(folder / text)


def _inputs(
    folder: str, views: list[ViewStatement], settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the tables of a folder that views name, and the tables of settings."""
    tables: dict[str, dict[str, Any]] = {}
    if "://" not in folder and Path(folder).is_dir():
        children = sorted(child for child in Path(folder).iterdir() if child.is_dir())
        tables = {child.name.casefold(): {"path": str(child)} for child in children}
    relations = {name for view in views for name in find_relations(view, "spark")}
    others = {view.name.casefold() for view in views} | {name.casefold() for name in settings}
    inputs = {name: table for name, table in tables.items() if name in relations - others}
    for name, keys in settings.items():
        inputs[name] = {**tables.get(name.casefold(), {}), **keys}
    return inputs


def _outputs(
    spec: TomlTable,
    views: list[ViewStatement],
    keys: Mapping[str, list[str]],
    *,
    folder: str = "",
    namespace: str = "",
) -> Iterator[dict[str, Any]]:
    """Yield the output of each view that is not temporary.

    It is a Delta table in a folder, or an Iceberg table of a namespace.
    """
    keys = {name.lower(): columns for name, columns in keys.items()}
    for view in views:
        if view.is_temporary:
            continue
        name = view.name.lower()
        output: dict[str, Any] = {"view": view.name}
        if namespace:
            output |= {"target": "iceberg", "table": f"{namespace}.{view.name}"}
        else:
            path = f"{folder}/{name}"
            is_other = "://" not in path and Path(path).is_dir() and any(Path(path).iterdir())
            if is_other and not (Path(path) / "_delta_log").is_dir():
                spec.report(
                    "", f"view {view.name!r}: {path} is not a Delta table: remove it, or its files"
                )
            output |= {"target": "delta", "path": path}
        if name in keys:
            output["keys"] = keys[name]
        elif view.is_streaming:
            output["mode"] = "append"
        yield output
