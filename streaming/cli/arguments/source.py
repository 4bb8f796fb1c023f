"""Parse the option ``--source``: a relation and the location of its rows.

::

    NAME=PATH[,KEY=VALUE...]          a file or a folder of Parquet, CSV, JSON or edge lists
    NAME=format=kafka,KEY=VALUE...    any source of Spark, by its options

The following keys are options of this program; all other keys are options of Spark's source:

=========  =========================================================================
format     Spark's name of the source; for files, the default follows from the file name ending
schema     the columns as Spark DDL, ``src long, dst long``; the default is those of the files
select     SQL expressions for the columns of the relation: ``timestamp AS ts, value % 9 AS k``
feed       the format of the changes: debezium, delta, upsert, ...
           (`streaming.sources.change_feeds`)
keys       the primary key: a row replaces the row with the same values in these columns
sequence   with keys: the column that orders the changes of a key in a micro-batch
strict     ``true``: the deletion of a row that does not exist is an error
retain     ``COLUMN LENGTH``: how long rows are kept, by event time, as in ``ts 7 days``
on_expiry  with retain: ``retract`` deletes the results of expired rows (the default), ``keep``
           keeps published results
lateness   ``COLUMN LENGTH``: how late rows may be; later rows are rejected, as in ``ts 5 minutes``
keep       ``all``: keep all rows and columns, for views that are added later
=========  =========================================================================

A value may contain commas, because only ``,word=`` begins the next key.

``schema``, a CREATE TABLE of the query and the columns of the first file name the columns of the
relation. The integer column ``weight`` of a file is read as well: a negative weight deletes a row,
and a row without a weight is inserted once. In a stream of Parquet, ORC and JSON files, some files
may have ``weight`` and others not. In a stream of CSV files, all have it or none, because Spark
reads their columns by position. With ``keys``, the column ``sequence`` of the first file is read,
too, except from ORC files. With ``feed=append``, ``upsert`` or ``delta``, the feed alone tells
deletions from insertions.

A file that ends in ``.txt``, ``.edges`` or ``.snap``, or any file with ``format=snap``, is an edge
list of the SNAP collection: two or three integers in a line, separated by tabs or blanks, and
comments that begin with ``#``. Its columns are ``src``, ``dst`` and ``value``; ``schema=a long,
b long`` renames them, in this order. The commands that do not use Spark read edge lists; ``run``
does not. CSV, JSON and edge lists may be compressed, as in ``.csv.gz``.

``sequence`` names a column of the relation, a number or a time, as in ``keys=nr,
sequence=updated_at``. With ``feed=debezium`` and other JSON feeds it may also name a column of the
stream, such as Kafka's ``timestamp``; by default these feeds use the order in the events, or
Kafka's offset. The sequence orders only the changes of one micro-batch: a change of a later
micro-batch always wins. Equal changes of a key count once; two different changes with the same
greatest sequence raise an error that shows both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from circuits import InputOptions, Lateness, Retention, SchemaError
from circuits.inputs.input_options import OnExpiry
from circuits.schema import WEIGHT
from circuits.types.ddl import schema_of_ddl
from streaming.cli.arguments.edge_list import edge_list_schema, read_edge_list
from streaming.errors import EventsError, FeedError

__all__ = [
    "DELTA_COLUMNS",
    "FLAT_FEEDS",
    "FORMATS_BY_NAME",
    "WEIGHTED_FEEDS",
    "SourceArgument",
    "parse_sources",
    "read_file",
    "read_plain_rows",
    "read_rows",
]

#: The column of a stream that orders changes, unless the setting ``sequence`` names another one.
SEQUENCE_COLUMN: Final = "sequence"
SETTINGS: Final = (
    *("format", "schema", "select", "feed", "keys", "sequence", "strict", "retain", "on_expiry"),
    *("lateness", "keep"),
)
#: Options of Spark's sources that resemble a setting of this program.
SPARK_OPTIONS: Final = ("mode",)
#: Settings that apply without Spark.
PLAIN_SETTINGS: Final = (
    "format",
    "schema",
    "keys",
    "sequence",
    "strict",
    "retain",
    "on_expiry",
    "lateness",
    "keep",
)
#: The format of edge lists; Spark has no such format.
SNAP: Final = "snap"
FORMATS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".txt": SNAP,
    ".edges": SNAP,
    ".snap": SNAP,
}
#: Feeds whose rows have the columns of the relation.
FLAT_FEEDS: Final = (None, "append", "weighted", "upsert", "delta")
#: Columns of a change data feed of Delta Lake that are not columns of the relation.
DELTA_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp")
#: Feeds that read the column ``weight``.
WEIGHTED_FEEDS: Final = (None, "weighted")
#: Formats in which Spark finds a column by its name, and reads NULL if a file lacks it.
FORMATS_BY_NAME: Final = ("parquet", "orc", "json")
_NEXT_KEY: Final = re.compile(r",(?=[A-Za-z_][\w.]*=)")
_KEY: Final = re.compile(r"[A-Za-z_][\w.]*=")


@dataclass(frozen=True)
class SourceArgument:
    """A relation and the location of its rows.

    Attributes:
        name: The relation.
        path: A file, a folder or a pattern; None if the options describe the source completely.
        options: Options of Spark's source.
        keys: Columns of the primary key; empty if the table has none.
        settings: The values of this program's options (`SETTINGS`) by name, without ``keys``.
        label: The name of the source in error messages, such as ``--source pay``.
        declared: The columns that the query declares; None if it does not.
    """

    name: str
    path: Path | None
    options: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    label: str = field(default="--source", compare=False)
    declared: pa.Schema | None = None

    @classmethod
    def parse(cls, text: str) -> SourceArgument:
        """Parse a value of ``--source``.

        Raises:
            EventsError: The text is not a source.

        >>> source = SourceArgument.parse("e=in/edges,maxFilesPerTrigger=1,schema=a long, b long")
        >>> source.name, str(source.path), source.options, source.settings
        ('e', 'in/edges', {'maxFilesPerTrigger': '1'}, {'schema': 'a long, b long'})
        >>> SourceArgument.parse("e=format=rate,rowsPerSecond=9").options
        {'rowsPerSecond': '9'}
        """
        label = f"--source {text!r}"
        name, equals, location = text.partition("=")
        if not (name and equals and location) or not name.isidentifier():
            raise EventsError(
                f"{label}: write NAME=PATH, as in e=in/edges, or NAME=format=kafka,... with the "
                "options of Spark's source"
            )
        path, *pairs = _NEXT_KEY.split(location)
        if _KEY.match(path):  # the location is described by options
            path, pairs = "", [path, *pairs]
        values: dict[str, str] = {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            if key in values:
                raise EventsError(f"{label}: {key} is given twice")
            values[key] = value.strip()
        for key in values:
            similar = [] if key in SETTINGS else get_close_matches(key.lower(), SETTINGS, 1, 0.74)
            if similar and key not in SPARK_OPTIONS:
                raise EventsError(f"{label}: unknown option {key}=; did you mean {similar[0]}=?")
        keys = tuple(re.split(r"[,\s]+", values.pop("keys"))) if "keys" in values else ()
        settings = {key: value for key, value in values.items() if key in SETTINGS}
        options = {key: value for key, value in values.items() if key not in SETTINGS}
        source = cls.of(name, path, options=options, keys=keys, settings=settings, label=label)
        return replace(source, label=f"--source {name}")

    @classmethod
    def of(
        cls,
        name: str,
        path: str,
        *,
        options: dict[str, str],
        keys: tuple[str, ...],
        settings: dict[str, str],
        label: str,
    ) -> SourceArgument:
        """Return a source whose ``path`` is a local path, a URI, or empty.

        Raises:
            EventsError: A path, a format or a schema is missing.
        """
        if not path and not {"format", "schema"} & set(settings):
            raise EventsError(f"{label}: give a path, or format=...")
        if "://" in path:
            if not {"format", "schema"} <= set(settings):
                raise EventsError(
                    f"{label}: only Spark can read {path}: add format=... and schema=..."
                )
            path, options = "", options | {"path": path}
        return cls(name, Path(path) if path else None, options, keys, settings, label)

    def files(self) -> list[Path]:
        """Return the existing files of the path, sorted.

        Raises:
            EventsError: The path does not exist.
        """
        if self.path is None:
            return []
        if any(c in self.path.name for c in "*?["):
            return sorted(self.path.parent.glob(self.path.name))
        if not self.path.exists():
            raise EventsError(f"{self.label}: {self.path}: file or folder not found")
        if self.path.is_file():
            return [self.path]
        visible_paths = (
            p for p in sorted(self.path.iterdir()) if not p.name.startswith((".", "_"))
        )
        return [path for path in visible_paths if path.is_file()]

    @property
    def format(self) -> str:
        """Spark's name of the source.

        Raises:
            EventsError: Neither ``format`` nor the ending of a file names it.
        """
        if "format" in self.settings:
            return self.settings["format"]
        if self.path is None:
            raise EventsError(
                f"{self.label}: name the location of its rows: a path, or format=... with the "
                "options of that source"
            )
        for path in (*self.files()[:1], self.path):
            if (format := _format_of(path)) is not None:
                return format
        raise EventsError(
            f"{self.label}: {self.path}: no file ends in "
            f"{', '.join(FORMATS)}: add format=..., and schema=... if the files do not exist yet"
        )

    @property
    def is_declared(self) -> bool:
        """True if the columns are those of ``schema=``, or of a CREATE TABLE of the query."""
        return "schema" in self.settings or self.declared is not None

    def schema(self) -> pa.Schema | None:
        """Return the columns of the relation; None if only Spark knows them.

        They are those of ``schema=``, those of the query's CREATE TABLE, or those of the first
        file. In the first and the last case they contain ``weight`` if it is one of them.

        Raises:
            EventsError: A file cannot be read, or there is neither a file nor a schema, or the
                schema is not valid.
            FeedError: The feed needs a schema, and there is none.
        """
        if "schema" in self.settings:
            try:
                return schema_of_ddl(self.settings["schema"])
            except SchemaError as error:
                raise EventsError(f"{self.label}: {error}") from error
        if self.declared is not None:
            return self.declared
        if self.feed not in FLAT_FEEDS:
            raise FeedError(
                f"{self.label}: events of feed={self.feed} do not contain the columns of their "
                "rows: add schema=nr long, item string"
            )
        if self.path is None:
            return None
        files = self.files()
        if not files:
            raise EventsError(
                f"{self.label}: {self.path}: no files exist yet, so add their columns: "
                "schema=src long, dst long"
            )
        return _schema_of_file(files[0], self.format)

    def stream_schema(self) -> pa.Schema | None:
        """Return the columns that a stream reads; None if only Spark knows them.

        They are the columns of the relation, and ``weight`` and ``sequence`` as the description of
        this module says. With ``feed=delta``, they are also those of `DELTA_COLUMNS` that the first
        file has.

        Raises:
            EventsError, FeedError: As `schema`.
        """
        schema = self.schema()
        if schema is None:
            return None
        known = {name.casefold() for name in schema.names}
        is_weighted = WEIGHT not in known and self.feed in WEIGHTED_FEEDS
        is_ordered = SEQUENCE_COLUMN not in known and bool(self.keys)
        of_delta = tuple(name for name in DELTA_COLUMNS if name not in known)
        if self.feed != "delta":
            of_delta = ()
        if self.format == "csv":
            names = ((WEIGHT,) if is_weighted else ()) + ((SEQUENCE_COLUMN,) if is_ordered else ())
            names += of_delta
            return self._insert_by_position(schema, names)
        if self.format not in FORMATS_BY_NAME:
            return schema
        files = self.files()
        # JSON has no types: an integer is read as such, and anything else is an error of Spark.
        needs_types = self.format == "parquet" or (
            self.format == "json" and (is_ordered or bool(of_delta))
        )
        types = {}
        if files and needs_types and (is_weighted or is_ordered or of_delta):
            types = {field.name: field for field in _schema_of_file(files[0], self.format)}
        if is_weighted:
            field = types.get(WEIGHT, pa.field(WEIGHT, pa.int64()))
            if _is_weight(field):
                is_unsigned = pa.types.is_unsigned_integer(field.type)
                schema = schema.append(field if is_unsigned else field.with_type(pa.int64()))
        if is_ordered and SEQUENCE_COLUMN in types:
            schema = schema.append(types[SEQUENCE_COLUMN])
        for name in of_delta:
            if name in types:
                schema = schema.append(types[name])
            elif name == DELTA_COLUMNS[0]:  # every row has a kind of change
                schema = schema.append(pa.field(name, pa.string()))
        return schema

    def _insert_by_position(self, schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
        """Insert columns of changes where the header of the first CSV file has them."""
        files = self.files()
        if not (files and names) or self.options.get("header", "true").lower() != "true":
            return schema
        delimiter = self.options.get("sep") or self.options.get("delimiter") or ","
        columns = _columns_of_csv(files[0], delimiter) if len(delimiter) == 1 else {}
        for place, (name, type_) in enumerate(columns.items()):
            if name in names and place <= len(schema):
                schema = schema.insert(place, pa.field(name, type_))
        return schema

    @property
    def feed(self) -> str | None:
        """The name of the feed, if there is one.

        Raises:
            FeedError: No feed has this name.
        """
        if "feed" in self.settings:
            # Imports Spark, which takes seconds; explain does not need it.
            from streaming.sources.change_feeds import find_feed

            find_feed(self.settings["feed"])
        return self.settings.get("feed")

    def check_without_spark(self, command: str) -> None:
        """Check that the rows are in files that can be read without Spark.

        Args:
            command: The command that reads them, for the error message.

        Raises:
            EventsError: Only Spark can read the source.
        """
        unsupported = [key for key in (*self.settings, *self.options) if key not in PLAIN_SETTINGS]
        if self.path is None or unsupported:
            raise EventsError(
                f"{self.label}: {command} reads files without Spark"
                + (f", which does not support {', '.join(unsupported)}=" if unsupported else "")
                + ": give a path to a Parquet, CSV or JSON file or an edge list, and schema= if "
                "the file does not contain its columns"
            )

    def check_spark(self) -> None:
        """Check that Spark can read the source.

        Raises:
            EventsError: The source is an edge list.
        """
        if self.format == SNAP:
            raise EventsError(
                f"{self.label}: {self.path}: Spark cannot read edge lists; the commands replay, "
                "explain, profile and bench can. Convert the file to Parquet; if it is not an edge "
                "list, add format=text or format=csv and schema=..."
            )

    def input_options(self) -> InputOptions | None:
        """Return keys, retention and constraints of the input; None if it has none of them.

        Raises:
            EventsError: A setting has an invalid value.
        """
        names = {"sequence", "strict", "retain", "on_expiry", "lateness", "keep"}
        if not self.keys and not names & set(self.settings):
            return None
        strict = self.settings.get("strict", "false").lower()
        if strict not in ("true", "false"):
            raise EventsError(f"{self.label}: strict={strict!r} must be true or false")
        retain = lateness = None
        if "retain" in self.settings:
            retain = Retention(*self._column_and_duration("retain"), on_expiry=self._on_expiry())
        elif "on_expiry" in self.settings:
            raise EventsError(
                f"{self.label}: on_expiry={self.settings['on_expiry']} applies only to rows that "
                "expire: add retain=COLUMN LENGTH"
            )
        if "lateness" in self.settings:
            lateness = Lateness(*self._column_and_duration("lateness"))
        sequence = None if self.is_ordered_by_stream else self.settings.get("sequence")
        keep = self.settings.get("keep")
        if keep not in (None, "all"):
            raise EventsError(f"{self.label}: keep={keep!r}: write keep=all, or leave it out")
        return InputOptions(
            self.keys,
            strict == "true",
            retain,
            sequence,
            lateness,
            None if keep is None else "all",
        )

    def _column_and_duration(self, setting: str) -> tuple[str, str | int]:
        """Return the column and the duration of ``retain`` or ``lateness``."""
        column, _, length = self.settings[setting].partition(" ")
        if not length:
            raise EventsError(
                f"{self.label}: {setting}={self.settings[setting]!r}: write COLUMN LENGTH, "
                "as in 'ts 7 days', or 'ts 3600' for a column of integers"
            )
        return column, int(length) if re.fullmatch("[0-9]{1,18}", length) else length

    @property
    def is_ordered_by_stream(self) -> bool:
        """Return whether ``sequence`` names a column of the stream, not of the relation."""
        sequence = self.settings.get("sequence")
        if sequence is None or self.feed is None:
            return False
        if self.feed in FLAT_FEEDS:
            return sequence == SEQUENCE_COLUMN
        schema = self.schema()
        return schema is None or sequence not in schema.names

    def check_sequence(self, schema: pa.Schema | None) -> None:
        """Check that ``sequence`` is a column and that there are keys.

        Args:
            schema: The columns of the relation; None if only Spark knows them.

        Raises:
            EventsError: ``sequence`` is not a column, or there are no keys.
        """
        sequence = self.settings.get("sequence")
        if sequence is None:
            return
        if not self.keys:
            raise EventsError(
                f"{self.label}: sequence={sequence} orders the changes of a key: add keys=COLUMN"
            )
        if (
            self.is_ordered_by_stream
            or schema is None
            or sequence in (*schema.names, SEQUENCE_COLUMN)
        ):
            return
        raise EventsError(
            f"{self.label}: sequence={sequence} is not a column; columns: {', '.join(schema.names)}"
        )

    def lacks_order(self, schema: pa.Schema | None) -> bool:
        """Return whether the relation has keys, but the order of its changes is not known.

        An order that only Spark can find is not known.

        Args:
            schema: The columns of the relation; None if only Spark knows them.
        """
        if not self.keys or "sequence" in self.settings:
            return False
        if self.feed is not None:
            from streaming.sources.change_feeds import find_feed  # imports Spark, as in `feed`
            from streaming.sources.change_feeds.change_order import OFFSET_COLUMNS, has_order

            order_columns = (
                {*OFFSET_COLUMNS, "_commit_version"} if self.format in ("kafka", "delta") else ()
            )
            if has_order(find_feed(self.feed), order_columns):
                return False
        return schema is None or SEQUENCE_COLUMN not in schema.names

    def _on_expiry(self) -> OnExpiry | None:
        """Return the value of ``on_expiry``, or None."""
        match self.settings.get("on_expiry"):
            case None | "retract" | "keep" as value:
                return value
            case other:
                raise EventsError(
                    f"{self.label}: on_expiry={other!r}: write retract (results are "
                    "deleted with their rows) or keep (published results stay)"
                )


def parse_sources(texts: Sequence[str]) -> dict[str, SourceArgument]:
    """Parse all values of ``--source``; return the sources by relation.

    Raises:
        EventsError: There is no source, or two sources have one name.
    """
    if not texts:
        raise EventsError(
            "no --source: give a source for each relation, as in --source e=in/edges, or name a "
            "job file with [inputs.e]"
        )
    sources: dict[str, SourceArgument] = {}
    for text in texts:
        source = SourceArgument.parse(text)
        if source.name in sources:
            raise EventsError(f"--source {text!r}: relation {source.name!r} has a source already")
        sources[source.name] = source
    return sources


def read_rows(source: SourceArgument, *, keep_others: bool = False) -> pa.Table:
    """Read all rows of the files of a source.

    Args:
        source: The source.
        keep_others: True to keep the columns of the files that are not declared.

    Returns:
        The columns of the relation, and ``weight`` if a file has it: 1 for rows without a weight.

    Raises:
        EventsError: There are no files, they cannot be read, or they lack a declared column.
    """
    files = source.files()
    if not files:
        raise EventsError(f"{source.label}: no files to read")
    tables = [read_file(path, source.format) for path in files]
    if any(WEIGHT in table.column_names for table in tables):
        tables = [_with_weight(table) for table in tables]
    table = pa.concat_tables(tables, promote_options="permissive")
    declared = source.schema() if source.is_declared else None
    if declared is None:
        return table
    if source.format == SNAP:
        table = _rename_columns(source, table, declared)
    missing = [name for name in declared.names if name not in table.column_names]
    if missing:
        raise EventsError(
            f"{source.label}: the files lack the column {missing[0]!r}; columns: "
            f"{', '.join(table.column_names)}"
        )
    others = table.drop_columns(declared.names)
    kept = [
        field.name
        for field in others.schema
        if (_is_weight(field) if field.name == WEIGHT else keep_others)
    ]
    fields = [*declared, *others.select(kept).schema]
    return table.select([field.name for field in fields]).cast(pa.schema(fields))


def _is_weight(field: pa.Field) -> bool:
    """Return whether a column ``weight`` that is not declared is the weight of its row."""
    return bool(pa.types.is_integer(field.type) or pa.types.is_null(field.type))


def _with_weight(table: pa.Table) -> pa.Table:
    """Return rows with a weight; rows without one are inserted once."""
    if WEIGHT not in table.column_names:
        return table.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))
    weights = table.column(WEIGHT)
    if not weights.null_count:
        return table
    weights = weights.cast(pa.int64()) if pa.types.is_null(weights.type) else weights
    filled = pc.fill_null(weights, pa.scalar(1).cast(weights.type))
    return table.set_column(table.column_names.index(WEIGHT), WEIGHT, filled)


def _rename_columns(source: SourceArgument, table: pa.Table, declared: pa.Schema) -> pa.Table:
    """Rename the columns of an edge list, by position."""
    if len(declared) != table.num_columns:
        raise EventsError(
            f"{source.label}: {source.path}: schema= names {len(declared)} columns, but the "
            f"edge list has {table.num_columns}: {', '.join(table.column_names)}"
        )
    return table.rename_columns(declared.names)


def read_plain_rows(source: SourceArgument) -> pa.Table:
    """Read the rows of a relation for a measurement, which allows no input options.

    Of files with weights, these are the rows that remain: each as often as its weights add up to.

    Raises:
        EventsError: The relation has keys, retention or ``strict``, or its files cannot be read, or
            have weights with columns of lists, structs or maps.
    """
    source.check_without_spark("this command")
    if source.input_options() is not None:
        raise EventsError(
            f"{source.label}: this command inserts and deletes rows unchanged: remove "
            "keys=, strict= and retain="
        )
    table = read_rows(source)
    declared = source.schema() if source.is_declared else None
    is_column = declared is not None and WEIGHT in declared.names
    if WEIGHT not in table.column_names or is_column:
        return table
    return _remaining_rows(source, table)


def _remaining_rows(source: SourceArgument, table: pa.Table) -> pa.Table:
    """Return each row as often as its weights add up to."""
    weights, rows = table.column(WEIGHT), table.drop_columns([WEIGHT])
    if not _is_weight(table.schema.field(WEIGHT)):
        raise EventsError(f"{source.label}: weight is a {weights.type}, not an integer")
    if pc.all(pc.equal(weights, 1), min_count=0).as_py():
        return rows
    try:
        groups = table.group_by(rows.column_names, use_threads=False)
        sums = groups.aggregate([(WEIGHT, "sum")])
    except pa.ArrowNotImplementedError as error:
        raise EventsError(
            f"{source.label}: rows with weights cannot be added up: {error}"
        ) from None
    counts = np.maximum(sums.column(f"{WEIGHT}_sum").to_numpy().astype(np.int64), 0)
    remaining = sums.select(rows.column_names).take(pa.array(np.arange(len(sums)).repeat(counts)))
    return remaining.cast(rows.schema)


def read_file(path: Path, format: str | None = None) -> pa.Table:
    """Read a Parquet, CSV or JSON file or an edge list.

    Raises:
        EventsError: The file cannot be read.
    """
    format = format or _format_of(path) or "parquet"
    if format == SNAP:
        return read_edge_list(path)
    readers = {"csv": pyarrow.csv.read_csv, "json": pyarrow.json.read_json}
    try:
        table = readers.get(format, pq.read_table)(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None
    if format == "csv":
        for field in table.schema:
            if pa.types.is_binary(field.type):  # Arrow's type of texts that are not UTF-8
                reason = f"column {field.name!r} is not UTF-8 text: save the file as UTF-8"
                raise EventsError(f"{path}: {reason}")
    return table


def _format_of(path: Path) -> str | None:
    """Return the format for the ending of a file name, or None.

    >>> _format_of(Path("a.csv")), _format_of(Path("wiki-Vote.txt.gz")), _format_of(Path("a.gz"))
    ('csv', 'snap', None)
    """
    ending = path.suffix
    if ending == ".gz":
        ending = path.with_suffix("").suffix
        return None if ending == ".parquet" else FORMATS.get(ending)
    return FORMATS.get(ending)


def _schema_of_file(path: Path, format: str) -> pa.Schema:
    """Return the columns of a file."""
    if format == SNAP:
        return edge_list_schema(path)
    try:
        if format == "parquet":
            return pq.read_schema(path).remove_metadata()
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None
    return read_file(path, format).schema


def _columns_of_csv(path: Path, delimiter: str) -> dict[str, pa.DataType]:
    """Return the columns of a CSV file, from its header and its first rows."""
    options = pyarrow.csv.ParseOptions(delimiter=delimiter)
    try:
        with pyarrow.csv.open_csv(path, parse_options=options) as reader:
            return {field.name: field.type for field in reader.schema}
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> EventsError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return EventsError(f"{path} is not a readable Parquet, CSV or JSON file: {reason}")
