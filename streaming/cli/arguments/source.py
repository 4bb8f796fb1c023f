"""Source: a relation as it is named on the command line.

::

    NAME=PATH[,KEY=VALUE...]          files: Parquet, CSV, JSON or edge lists, a folder or one
    NAME=format=kafka,KEY=VALUE...    any source of Spark, by its options

Some keys are ours, the others are options of Spark's source:

=========  =========================================================================
format     Spark's name of the source; by the files' endings when there is a path
schema     the columns, ``src long, dst long``; those of the files when not given
select     SQL expressions, the columns of the relation: ``timestamp AS ts, value % 9 AS k``
feed       how the rows are changes: debezium, delta, upsert, ... (`streaming.sources.change_feeds`)
keys       rows are upserts: the last row of these columns counts
sequence   with keys, the column whose greatest value is the last change of a key in a micro-batch
strict     to delete what is not there is an error
retain     ``COLUMN LENGTH``: rows leave when they are older, ``ts 7 days``
on_expiry  with retain: ``retract`` deletes the results of rows that leave (the default), ``keep``
           keeps what was published
=========  =========================================================================

A value may hold commas, as ``,word=`` begins the next key.

A file that ends in ``.txt``, ``.edges`` or ``.snap``, or any file with ``format=snap``, is an edge
list of the SNAP collection: two or three integers in a line, between tabs or blanks, and comments
that begin with ``#``. Its columns are ``src``, ``dst`` and ``value``; ``schema=a long, b long``
gives them other names, in this order. The commands that need no Spark read edge lists; ``run`` does
not. CSV, JSON and edge lists may be compressed, as in ``.csv.gz``.

``sequence`` names a column of the relation, a number or a time, as in ``keys=nr,
sequence=updated_at``. With ``feed=debezium`` and other feeds of JSON it may also name a column of
the stream, such as Kafka's ``timestamp``; without it they use the order in the events, or Kafka's
offset. It orders the changes of one micro-batch: a change of a later micro-batch wins whatever its
sequence. Equal changes of a key are one; two different changes with the same greatest sequence are
an error that shows both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from circuits import InputOptions, Retention, SchemaError
from circuits.inputs.input_options import OnExpiry
from circuits.types.ddl import schema_of_ddl
from streaming.cli.arguments.edge_list import edge_list_schema, read_edge_list
from streaming.errors import EventsError, FeedError

__all__ = [
    "FLAT",
    "WEIGHT",
    "SourceArgument",
    "read_file",
    "rows_of_files",
    "rows_of_plain_files",
    "sources_of",
]

WEIGHT: Final = "weight"
SEQUENCE: Final = "sequence"
OWN: Final = (
    *("format", "schema", "select", "feed", "keys", "sequence", "strict", "retain", "on_expiry"),
)
#: Options of Spark's sources that look like ours.
SPARKS_OWN: Final = ("mode",)
#: Keys that have a meaning without Spark.
PLAIN: Final = ("format", "schema", "keys", "sequence", "strict", "retain", "on_expiry")
#: Our name of an edge list; Spark has none.
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
FLAT: Final = (None, "append", "weighted", "upsert", "delta")
_NEXT: Final = re.compile(r",(?=[A-Za-z_][\w.]*=)")
_KEY: Final = re.compile(r"[A-Za-z_][\w.]*=")


@dataclass(frozen=True)
class SourceArgument:
    """A relation and where its rows come from.

    Attributes:
        name: The relation.
        path: Files; None if the options say all.
        options: Options of Spark's source.
        own: What the keys of our own say.
    """

    name: str
    path: Path | None
    options: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> SourceArgument:
        """The source that a text names.

        Raises:
            EventsError: It names none.

        >>> source = SourceArgument.parse("e=in/edges,maxFilesPerTrigger=1,schema=a long, b long")
        >>> source.name, str(source.path), source.options, source.own
        ('e', 'in/edges', {'maxFilesPerTrigger': '1'}, {'schema': 'a long, b long'})
        >>> SourceArgument.parse("e=format=rate,rowsPerSecond=9").options
        {'rowsPerSecond': '9'}
        """
        name, equals, rest = text.partition("=")
        if not (name and equals and rest) or not name.isidentifier():
            raise EventsError(
                f"--source {text!r}: write NAME=PATH, as in e=in/edges, or NAME=format=kafka,... "
                "with options of Spark's source"
            )
        first, *others = _NEXT.split(rest)
        if _KEY.match(first):
            first, others = "", [first, *others]
        given: dict[str, str] = {}
        for one in others:
            key, _, value = one.partition("=")
            if key in given:
                raise EventsError(f"--source {text!r}: {key} is given twice")
            given[key] = value.strip()
        if not first and not {"format", "schema"} & set(given):
            raise EventsError(f"--source {text!r}: give a path, or format=...")
        if "://" in first:
            if not {"format", "schema"} <= set(given):
                raise EventsError(
                    f"--source {text!r}: only Spark can look there: add format=... and schema=..."
                )
            first, given["path"] = "", first
        for key in given:
            alike = [] if key in OWN else get_close_matches(key.lower(), OWN, n=1, cutoff=0.74)
            if alike and key not in SPARKS_OWN:
                raise EventsError(
                    f"--source {text!r}: there is no {key}=; do you mean {alike[0]}=?"
                )
        own = {key: value for key, value in given.items() if key in OWN}
        options = {key: value for key, value in given.items() if key not in OWN}
        return cls(name, Path(first) if first else None, options, own)

    def files(self) -> list[Path]:
        """The files there are, sorted.

        Raises:
            EventsError: There is no such path.
        """
        if self.path is None:
            return []
        if any(c in self.path.name for c in "*?["):
            return sorted(self.path.parent.glob(self.path.name))
        if not self.path.exists():
            raise EventsError(f"--source {self.name}={self.path}: there is no such file or folder")
        if self.path.is_file():
            return [self.path]
        names = (p for p in sorted(self.path.iterdir()) if not p.name.startswith((".", "_")))
        return [path for path in names if path.is_file()]

    @property
    def format(self) -> str:
        """Spark's name of the source.

        Raises:
            EventsError: It is not said and files do not tell.
        """
        if "format" in self.own:
            return self.own["format"]
        if self.path is None:
            raise EventsError(
                f"--source {self.name}: say where its rows come from: a path, or format=... with "
                "the options of that source"
            )
        for path in (*self.files()[:1], self.path):
            if (found := _format_of(path)) is not None:
                return found
        raise EventsError(
            f"--source {self.name}={self.path}: there is no file that ends in "
            f"{', '.join(FORMATS)}: add format=..., and schema=... where there is no file yet"
        )

    def schema(self) -> pa.Schema | None:
        """The columns, with ``weight`` if there is one; None if only Spark can tell.

        Raises:
            EventsError: A file cannot be read, or there is none and no schema is given, or the
                schema declares no columns.
            FeedError: A feed's events do not tell them, and no schema is given.
        """
        if "schema" in self.own:
            try:
                return schema_of_ddl(self.own["schema"])
            except SchemaError as error:
                raise EventsError(f"--source {self.name}: {error}") from error
        if self.feed not in FLAT:
            raise FeedError(
                f"--source {self.name}: the events of feed={self.feed} do not tell the columns of "
                "their rows: add schema=nr long, item string"
            )
        if self.path is None:
            return None
        files = self.files()
        if not files:
            raise EventsError(
                f"--source {self.name}={self.path}: there are no files yet, so add their columns: "
                "schema=src long, dst long"
            )
        return _schema_of_file(files[0], self.format)

    @property
    def feed(self) -> str | None:
        """The name of the feed, if one is said.

        Raises:
            FeedError: There is none of that name.
        """
        if "feed" in self.own:
            from streaming.sources.change_feeds import (
                feed_of,  # imports Spark, for which explain need not wait
            )

            feed_of(self.own["feed"])
        return self.own.get("feed")

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of ``keys``."""
        return tuple(re.split(r"[,\s]+", self.own["keys"])) if "keys" in self.own else ()

    def check_plain(self, what: str) -> None:
        """Check that the source is files that can be read without Spark.

        Raises:
            EventsError: It is not.
        """
        others = [key for key in (*self.own, *self.options) if key not in PLAIN]
        if self.path is None or others:
            raise EventsError(
                f"--source {self.name}: {what} reads files without Spark"
                + (f", for which there is no {', '.join(others)}=" if others else "")
                + ": give a path to a Parquet, CSV or JSON file or an edge list, and perhaps "
                "schema="
            )

    def check_spark(self) -> None:
        """Check that Spark can read the source.

        Raises:
            EventsError: It is an edge list.
        """
        if self.format == SNAP:
            raise EventsError(
                f"--source {self.name}={self.path}: Spark reads no edge lists; replay, explain, "
                "profile and bench do. Convert the file to Parquet, or add format=text or "
                "format=csv and schema=... if it is something else"
            )

    def rules(self) -> InputOptions | None:
        """The rules of the input; None for a plain one.

        Raises:
            EventsError: They say nothing that is known.
        """
        if not {"keys", "sequence", "strict", "retain", "on_expiry"} & set(self.own):
            return None
        strict = self.own.get("strict", "false").lower()
        if strict not in ("true", "false"):
            raise EventsError(f"--source {self.name}: strict={strict!r} is neither true nor false")
        retain = None
        if "retain" in self.own:
            column, _, length = self.own["retain"].partition(" ")
            if not length:
                raise EventsError(
                    f"--source {self.name}: retain={self.own['retain']!r}: write COLUMN LENGTH, "
                    "as in 'ts 7 days', or 'ts 3600' for a column of integers"
                )
            duration = int(length) if re.fullmatch("[0-9]{1,18}", length) else length
            retain = Retention(column, duration, on_expiry=self._on_expiry())
        elif "on_expiry" in self.own:
            raise EventsError(
                f"--source {self.name}: on_expiry={self.own['on_expiry']} says what becomes of "
                "the results of rows that expire, and none do: add retain=COLUMN LENGTH"
            )
        sequence = None if self.is_ordered_by_stream else self.own.get("sequence")
        return InputOptions(
            keys=self.keys, strict=strict == "true", retain=retain, sequence=sequence
        )

    @property
    def is_ordered_by_stream(self) -> bool:
        """True if ``sequence`` names a column of the stream that is none of the relation."""
        sequence = self.own.get("sequence")
        if sequence is None or self.feed is None:
            return False
        if self.feed in FLAT:
            return sequence == SEQUENCE
        schema = self.schema()
        return schema is None or sequence not in schema.names

    def check_sequence(self, schema: pa.Schema | None) -> None:
        """Check that ``sequence`` is a column, and comes with keys.

        Args:
            schema: The columns of the relation; None if only Spark can tell them.

        Raises:
            EventsError: It is none.
        """
        sequence = self.own.get("sequence")
        if sequence is None:
            return
        if not self.keys:
            raise EventsError(
                f"--source {self.name}: sequence={sequence} orders the changes of a key: add "
                "keys=COLUMN"
            )
        if self.is_ordered_by_stream or schema is None or sequence in (*schema.names, SEQUENCE):
            return
        raise EventsError(
            f"--source {self.name}: sequence={sequence} is no column of it; columns are "
            f"{', '.join(schema.names)}"
        )

    def lacks_order(self, schema: pa.Schema | None) -> bool:
        """Return whether there are keys and, as far as is known before Spark starts, no order.

        Args:
            schema: As for `check_sequence`.
        """
        if not self.keys or "sequence" in self.own:
            return False
        if self.feed is not None:
            from streaming.sources.change_feeds import feed_of  # imports Spark, as in `feed`
            from streaming.sources.change_feeds.change_order import OFFSETS, has_order

            known = {*OFFSETS, "_commit_version"} if self.format in ("kafka", "delta") else ()
            if has_order(feed_of(self.feed), known):
                return False
        return schema is None or SEQUENCE not in schema.names

    def _on_expiry(self) -> OnExpiry | None:
        """The value of ``on_expiry``; None if it is not given."""
        match self.own.get("on_expiry"):
            case None | "retract" | "keep" as given:
                return given
            case other:
                raise EventsError(
                    f"--source {self.name}: on_expiry={other!r}: write retract (results are "
                    "deleted with their rows) or keep (published results stay)"
                )


def sources_of(texts: Sequence[str]) -> dict[str, SourceArgument]:
    """The sources that texts name, by relation.

    Raises:
        EventsError: There is none, or two of one name.
    """
    if not texts:
        raise EventsError("no --source: give one for each relation, as in --source e=in/edges")
    found: dict[str, SourceArgument] = {}
    for text in texts:
        source = SourceArgument.parse(text)
        if source.name in found:
            raise EventsError(f"--source {text!r}: relation {source.name!r} was given before")
        found[source.name] = source
    return found


def rows_of_files(source: SourceArgument) -> pa.Table:
    """All rows of the files of a source.

    Raises:
        EventsError: There are no files, or they cannot be read.
    """
    files = source.files()
    if not files:
        raise EventsError(f"--source {source.name}: there are no files to read")
    tables = [read_file(path, source.format) for path in files]
    table = pa.concat_tables(tables, promote_options="permissive")
    declared = source.schema() if "schema" in source.own else None
    if declared is None:
        return table
    if source.format == SNAP:
        table = _renamed(source, table, declared)
    return table.select(declared.names).cast(declared)


def _renamed(source: SourceArgument, table: pa.Table, declared: pa.Schema) -> pa.Table:
    """An edge list with the declared names, by position."""
    if len(declared) != table.num_columns:
        raise EventsError(
            f"--source {source.name}={source.path}: schema= names {len(declared)} columns, and the "
            f"edge list has {table.num_columns}: {', '.join(table.column_names)}"
        )
    return table.rename_columns(declared.names)


def rows_of_plain_files(source: SourceArgument) -> pa.Table:
    """All rows of a relation that is measured, and so has no rules.

    Raises:
        EventsError: It has, or its files cannot be read.
    """
    source.check_plain("this command")
    if source.rules() is not None:
        raise EventsError(
            f"--source {source.name}: this command inserts and deletes rows as they are: leave "
            "keys=, strict= and retain= out"
        )
    return rows_of_files(source)


def read_file(path: Path, format: str | None = None) -> pa.Table:
    """The table of a Parquet, CSV or JSON file or an edge list.

    Raises:
        EventsError: It cannot be read.
    """
    format = format or _format_of(path) or "parquet"
    if format == SNAP:
        return read_edge_list(path)
    readers = {"csv": pyarrow.csv.read_csv, "json": pyarrow.json.read_json}
    try:
        return readers.get(format, pq.read_table)(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _format_of(path: Path) -> str | None:
    """The format that the ending of a file tells, if it is known.

    >>> _format_of(Path("a.csv")), _format_of(Path("wiki-Vote.txt.gz")), _format_of(Path("a.gz"))
    ('csv', 'snap', None)
    """
    ending = path.suffix
    if ending == ".gz":
        ending = path.with_suffix("").suffix
        return None if ending == ".parquet" else FORMATS.get(ending)
    return FORMATS.get(ending)


def _schema_of_file(path: Path, format: str) -> pa.Schema:
    if format == SNAP:
        return edge_list_schema(path)
    try:
        if format == "parquet":
            return pq.read_schema(path).remove_metadata()
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None
    return read_file(path, format).schema


def _unreadable(path: Path, error: Exception) -> EventsError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return EventsError(f"{path} is no readable Parquet, CSV or JSON file: {reason}")
