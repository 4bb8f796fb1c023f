"""CREATE TABLE: the input relations that a text declares.

A declaration gives the columns of an input and, with a PRIMARY KEY, the way to read its rows. The
rows themselves come from the caller, so everything that says where they are stored has no effect.
The parts of a declaration have these effects:

================================= ================================================================
NOT NULL                          checked: a row with NULL there is refused
NOT NULL of a field of a struct   unchecked, with a notice
PRIMARY KEY                       the input takes upserts: the last row of a key replaces the others
PRIMARY KEY ... NOT ENFORCED      unchecked, with a notice; also any PRIMARY KEY in dialect spark
UNIQUE, CHECK, FOREIGN KEY        unchecked, with a notice: they do not change a view of valid rows
DEFAULT                           unused, with a notice: a row has a value for every column
WITH, USING, LOCATION, ...        unused, with a notice: the rows come from the caller
COMMENT, NULL                     read and dropped: they have no effect in any engine
WATERMARK FOR, LATENESS           the input refuses late rows (`circuits.inputs.Lateness`)
APPEND ONLY, CREATE SINK, ...     no effect, with a notice (`circuits.sql.syntax.statement_words`)
a AS expr, GENERATED ALWAYS AS    queries compute it (`circuits.sql.computed_columns`)
a AS PROCTIME()                   no column, with a notice: a query that reads it is refused
METADATA                          unused, with a notice: a row has a value for the column
identities, ...                   refused: a view without them would have other rows
================================= ================================================================

A table that an ``INSERT INTO`` names is a sink, so it is not an input (`circuits.sql.statements`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import InputOptionsError
from circuits.inputs.input_options import InputOptions, Lateness
from circuits.plan.columns import JSON_KIND, Field
from circuits.sql.computed_columns import PROCESSING_TIME, ComputedColumn
from circuits.sql.syntax.collations import is_byte_order
from circuits.sql.syntax.parsing import UNCHECKED_COLUMN_PART
from circuits.sql.syntax.source import SqlSource
from circuits.sql.syntax.types import (
    PADDED_TEXTS,
    arrow_type,
    has_required_field,
    json_kind_of_type,
)
from circuits.types.functions.casting.interval_texts import (
    SECOND,
    UnknownUnitError,
    parse_interval,
)

__all__ = [
    "WEIGHT_COLUMN",
    "Declarations",
    "TableDeclaration",
    "inserted_table",
    "read_declarations",
    "view_properties",
]

#: The column of the weights of the rows of a relation.
WEIGHT_COLUMN: Final = "weight"
# Types whose parameter limits the digits of a second; the codes count microseconds.
TIME_TYPES: Final = frozenset(
    {
        *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMPTZ),
        *(exp.DType.TIMESTAMPLTZ, exp.DType.TIME, exp.DType.DATETIME),
    }
)
MAX_SECOND_DIGITS: Final = 6
# Properties that say where and how an engine stores the rows of a table.
STORAGE_PROPERTIES: Final = (
    *(exp.Property, exp.FileFormatProperty, exp.PartitionedByProperty, exp.LocationProperty),
    *(exp.RowFormatDelimitedProperty, exp.ClusteredByProperty, exp.EngineProperty),
)
# A property of a view that changes its rows, by its lower-case name.
CHANGING_PROPERTIES: Final = {
    "emit_final": "the view would be emitted only when it is final; write EMIT ON WINDOW CLOSE",
}
UNCHECKED_CONSTRAINTS: Final[dict[type[exp.Expr], str]] = {
    exp.CheckColumnConstraint: "CHECK",
    exp.ForeignKey: "FOREIGN KEY",
    exp.Reference: "REFERENCES",
    exp.UniqueColumnConstraint: "UNIQUE",
}


@dataclass(frozen=True)
class TableDeclaration:
    """A CREATE TABLE.

    Attributes:
        name: The name of the table.
        fields: The columns that its rows have.
        computed: The computed columns.
        keys: The columns of an enforced primary key; empty if it has none.
        lateness: The column of a watermark, and how late its rows may be; None without one.
    """

    name: str
    fields: tuple[Field, ...]
    keys: tuple[str, ...] = ()
    lateness: tuple[str, str | int] | None = None
    computed: tuple[ComputedColumn, ...] = ()

    @property
    def options(self) -> InputOptions:
        """The way to read the rows: the keys and the lateness."""
        lateness = Lateness(*self.lateness) if self.lateness else None
        return InputOptions(keys=self.keys, lateness=lateness)

    @property
    def schema(self) -> pa.Schema:
        """The columns that the rows have as an Arrow schema."""
        return pa.schema(
            [
                pa.field(
                    f.name, f.type, f.nullable, {JSON_KIND: f.json_kind} if f.json_kind else None
                )
                for f in self.fields
            ]
        )


@dataclass(frozen=True)
class Declarations:
    """The declarations of a text: tables, sinks and temporary views.

    Attributes:
        tables: Every CREATE TABLE, by its name.
        sinks: The tables that an INSERT INTO names, in lower case; they are not inputs.
        temporary_views: The views that other statements use and that are not published.
        notices: The parts without an effect, each with its line and column.
    """

    tables: Mapping[str, TableDeclaration] = field(default_factory=dict)
    sinks: frozenset[str] = frozenset()
    temporary_views: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, TableDeclaration]:
        """The tables that are inputs."""
        return {
            name: table for name, table in self.tables.items() if name.casefold() not in self.sinks
        }


def read_declarations(statements: Iterable[tuple[SqlSource, exp.Expr]]) -> Declarations:
    """Return the tables, sinks and notices of parsed statements, each with its text.

    Raises:
        SqlError: A table is declared twice, or a column has no valid type.
        UnsupportedSqlError: A part of a declaration is not supported.
    """
    tables: dict[str, TableDeclaration] = {}
    sinks: set[str] = set()
    temporary_views: list[str] = []
    notices: list[str] = []
    sources: list[SqlSource] = []
    for source, tree in statements:
        if source not in sources:
            sources.append(source)
            notices += source.notices
        if isinstance(tree, exp.Insert):
            sinks.add(inserted_table(source, tree)[0].name.casefold())
        elif isinstance(tree, exp.Create) and tree.kind == "TABLE":
            table, table_notices = _read_table(source, tree)
            notices += table_notices
            is_new = table.name.casefold() not in map(str.casefold, tables)
            if is_new:
                tables[table.name] = table
            elif not tree.args.get("exists"):
                raise source.error(
                    tree.this, f"table {table.name!r} is declared twice; drop one declaration"
                )
        elif isinstance(tree, exp.Create) and tree.kind == "VIEW":
            is_temporary, view_notices = view_properties(source, tree)
            notices += view_notices
            if is_temporary:
                target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
                temporary_views.append(target.name)
    return Declarations(tables, frozenset(sinks), tuple(temporary_views), tuple(notices))


def inserted_table(source: SqlSource, tree: exp.Insert) -> tuple[exp.Table, list[exp.Identifier]]:
    """Return the table of an INSERT INTO and the names in its column list.

    Raises:
        UnsupportedSqlError: The target is not the name of a table.
    """
    target, names = tree.this, []
    if isinstance(target, exp.Schema):
        source.allow_arguments(target, "this", "expressions")
        target, names = target.this, target.expressions
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
        raise source.unsupported(tree, "INSERT INTO this target", "name a table", word="into")
    source.allow_arguments(target, "this")
    for name in names:
        if not isinstance(name, exp.Identifier):
            raise source.unsupported(name, "this column of INSERT INTO", "give names only")
    return target, names


#: Properties of views that say how a table stores its rows.
LAYOUT_PROPERTIES: Final[Mapping[type[exp.Expr], str]] = {
    exp.ClusteredByProperty: "CLUSTERED BY",
    exp.ClusterProperty: "CLUSTER BY",
    exp.FileFormatProperty: "USING",
    exp.PartitionedByProperty: "PARTITIONED BY",
}


def view_properties(source: SqlSource, tree: exp.Create) -> tuple[bool, list[str]]:
    """Return whether a view is temporary, and the notices about its properties.

    Raises:
        UnsupportedSqlError: A property would change the rows of the view.
    """
    is_temporary, notices = False, []
    for part in _properties(source, tree):
        if isinstance(part, exp.TemporaryProperty):
            is_temporary = True
        elif isinstance(part, exp.Property) and type(part) is exp.Property:
            name = part.name.casefold()
            if name in CHANGING_PROPERTIES:
                raise source.unsupported(part, f"property {name}", CHANGING_PROPERTIES[name])
            notices.append(_notice(source, part, f"property {part.name!r} of the view"))
        elif type(part) in LAYOUT_PROPERTIES:
            notices.append(_notice(source, tree.this, f"{LAYOUT_PROPERTIES[type(part)]} of a view"))
        elif not isinstance(part, exp.MaterializedProperty | exp.SchemaCommentProperty):
            raise source.unsupported(
                tree, f"CREATE with {part.key}", "write CREATE VIEW", word="create"
            )
        source.mark_read(part)
    return is_temporary, notices


def _read_table(source: SqlSource, tree: exp.Create) -> tuple[TableDeclaration, list[str]]:
    if tree.expression is not None:
        raise source.unsupported(
            tree.this, "CREATE TABLE with AS SELECT", "write CREATE VIEW", word="create"
        )
    source.allow_arguments(tree, "this", "kind", "replace", "exists", "properties")
    if any(isinstance(part, exp.StreamingTableProperty) for part in _properties(source, tree)):
        raise source.unsupported(
            tree.this,
            "CREATE STREAMING TABLE without a query",
            "write CREATE STREAMING TABLE t AS SELECT ..., or CREATE FLOW for it in a pipeline",
            word="create",
        )
    if not isinstance(tree.this, exp.Schema):
        raise source.unsupported(
            tree.this, "CREATE TABLE without columns", "write CREATE TABLE t (a BIGINT, ...)"
        )
    source.allow_arguments(tree.this, "this", "expressions")
    target = tree.this.this
    source.allow_arguments(target, "this")
    reader = _TableReader(source)
    for part in tree.this.expressions:
        reader.read_part(part)
    for part in _properties(source, tree):
        reader.read_property(part)
    source.mark_read(tree)
    return reader.table(tree, target.name), reader.notices


class _TableReader:
    """The columns and constraints of one CREATE TABLE, while they are read."""

    def __init__(self, source: SqlSource) -> None:
        self.notices: list[str] = []
        self._source = source
        self._types: dict[str, pa.DataType] = {}
        self._computed: dict[str, ComputedColumn] = {}
        self._required: set[str] = set()
        self._json_kinds: dict[str, str] = {}
        self._keys: tuple[exp.Identifier, ...] | None = None
        self._is_enforced = not source.is_spark
        # The node for errors, the name of the column, and how late its rows may be.
        self._lateness: tuple[exp.Expr, str, str | int] | None = None

    def table(self, tree: exp.Create, name: str) -> TableDeclaration:
        """Return the table that has been read."""
        if not self._types:
            only = "only computed columns" if self._computed else "no columns"
            raise self._source.error(tree.this, f"table {name!r} has {only}; add one")
        keys = tuple(self._column_name(key, key.name, "PRIMARY KEY") for key in self._keys or ())
        repeated = next((key for key in keys if keys.count(key) > 1), None)
        if repeated is not None:
            raise self._source.error(
                (self._keys or ())[0], f"column {repeated!r} is twice in PRIMARY KEY; drop one"
            )
        for key_node, key in zip(self._keys or (), keys, strict=True):
            if key in self._computed:
                raise self._source.unsupported(
                    key_node, "a computed column in PRIMARY KEY", "name columns that the rows have"
                )
        required = self._required | set(keys)
        fields = tuple(
            Field(column, type, column not in required, self._json_kinds.get(column, ""))
            for column, type in self._types.items()
        )
        lateness = None
        if self._lateness is not None:
            error_node, time, duration = self._lateness
            column = self._column_name(error_node, time, "WATERMARK")
            is_integer = column in self._types and pa.types.is_integer(self._types[column])
            lateness = column, "0 seconds" if duration == 0 and not is_integer else duration
        computed = tuple(self._computed.values())
        enforced_keys = keys if self._is_enforced else ()
        return TableDeclaration(name, fields, enforced_keys, lateness, computed)

    def read_part(self, part: exp.Expr) -> None:
        """Read a column or a constraint of the table."""
        if isinstance(part, exp.ColumnDef):
            self._read_column(part)
        elif isinstance(part, exp.Constraint):
            for inner in part.expressions:
                self.read_part(inner)
        elif isinstance(part, exp.PrimaryKey):
            options = [str(option).upper() for option in part.args.get("options") or []]
            self._set_keys(part, part.expressions, is_enforced="NOT ENFORCED" not in options)
        else:
            self._read_constraint(part, part)

    def read_property(self, part: exp.Expr) -> None:
        """Read a property of the table."""
        if isinstance(part, exp.TemporaryProperty | exp.SchemaCommentProperty):
            return
        if not isinstance(part, STORAGE_PROPERTIES):
            construct = self._source.describe(part).removesuffix(" PROPERTY")
            raise self._source.unsupported(
                part, f"{construct} in CREATE TABLE", "list the columns and leave it out"
            )
        name = f"property {part.name!r}" if type(part) is exp.Property else "the storage"
        self._add_notice(part, f"{name} of the table")

    def _read_column(self, node: exp.ColumnDef) -> None:
        name = node.name
        constraints = [constraint.kind for constraint in node.args.get("constraints") or []]
        computed = [kind for kind in constraints if isinstance(kind, exp.ComputedColumnConstraint)]
        if node.kind is None and not computed:
            raise self._source.error(node, f"column {name!r} has no type; add one, as in a BIGINT")
        if name.casefold() == WEIGHT_COLUMN:
            raise self._source.error(
                node, f"column {name!r} has the name of the weights of the rows; rename it"
            )
        if name.casefold() in map(str.casefold, self._names):
            raise self._source.error(node, f"column {name!r} is declared twice; drop one")
        if computed:
            self._read_computed_column(node, computed[0])
            constraints.remove(computed[0])
        elif node.kind is not None:
            self._types[name] = self._read_type(node.kind)
            if has_required_field(node.kind):
                part = f"NOT NULL in the type of column {name!r}"
                self._add_notice(node, part, "the fields are not checked")
            kind = json_kind_of_type(self._source, node.kind)
            if node.kind.this != exp.DType.JSONB:
                kind = kind.replace("jsonb", "json")  # within a list, it is not in normal form
            self._json_kinds[name] = kind
            if self._source.is_postgres and node.kind.this in PADDED_TEXTS:
                effect = "blanks at the end of its values count; CAST(c AS CHAR(n)) leaves them out"
                self._add_notice(node, f"the padding of CHAR column {name!r}", effect)
        for kind in constraints:
            if isinstance(kind, exp.NotNullColumnConstraint):
                if kind.args.get("allow_null"):
                    continue
                self._required.add(name)
                if computed:
                    part = "NOT NULL of a computed column"
                    self._add_notice(node, part, "its values are not checked")
            elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
                options = [str(option).upper() for option in kind.args.get("options") or []]
                self._set_keys(node, [node.this], is_enforced="NOT ENFORCED" not in options)
            elif not isinstance(kind, exp.CommentColumnConstraint):
                self._read_constraint(node, kind)

    @property
    def _names(self) -> list[str]:
        """The names of all columns so far."""
        return [*self._types, *self._computed]

    def _read_computed_column(
        self, node: exp.ColumnDef, constraint: exp.ComputedColumnConstraint
    ) -> None:
        self._source.allow_arguments(constraint, "this", "persisted")
        if _is_processing_time(constraint.this):
            self._source.unreadable_columns[node.name.casefold()] = PROCESSING_TIME
            self._add_notice(node, f"column {node.name!r}", "no view can read PROCTIME()")
            return
        type = None if node.kind is None else self._read_type(node.kind)
        position = len(self._names)
        self._computed[node.name] = ComputedColumn(node.name, constraint.this, type, position)

    def _read_constraint(self, error_node: exp.Expr, kind: exp.Expr) -> None:
        if isinstance(kind, exp.WatermarkColumnConstraint):
            self._read_watermark(error_node, kind)
            return
        if isinstance(kind, exp.GeneratedAsIdentityColumnConstraint):
            raise self._source.unsupported(
                error_node,
                "an identity column",
                "give each row a value, and leave GENERATED out",
            )
        if isinstance(kind, exp.CollateColumnConstraint):
            name = kind.this.name
            if not is_byte_order(name, is_spark=self._source.is_spark):
                raise self._source.unsupported(
                    error_node,
                    f"COLLATE {name} in CREATE TABLE",
                    "leave it out, and write COLLATE at the comparisons and sort keys",
                )
            self._source.mark_read(kind)
            return
        if isinstance(kind, exp.DefaultColumnConstraint):
            self._add_notice(error_node, "DEFAULT", "each row must have a value for the column")
        elif type(kind) in UNCHECKED_CONSTRAINTS:
            name = UNCHECKED_CONSTRAINTS[type(kind)]
            self._add_notice(error_node, name, "the rows are not checked")
        elif (part := kind.meta.get(UNCHECKED_COLUMN_PART)) is not None:  # such as METADATA
            self._add_notice(error_node, part, "each row must have a value for the column")
        else:
            construct = self._source.describe(kind)
            raise self._source.unsupported(
                error_node,
                f"{construct.removesuffix(' COLUMN CONSTRAINT')} in CREATE TABLE",
                "give each column a name, a type and NOT NULL or PRIMARY KEY",
            )

    def _set_keys(self, error_node: exp.Expr, keys: list[exp.Expr], *, is_enforced: bool) -> None:
        if self._keys is not None:
            raise self._source.error(error_node, "the table has two primary keys; drop one")
        for key in keys:
            if not isinstance(key, exp.Identifier):
                raise self._source.unsupported(
                    key, "an expression in PRIMARY KEY", "give names of columns only"
                )
        self._keys = tuple(key for key in keys if isinstance(key, exp.Identifier))
        self._is_enforced = self._is_enforced and is_enforced
        if not self._is_enforced:
            self._add_notice(
                error_node,
                "a PRIMARY KEY that is not enforced",
                "a second row of a key does not replace the first; for upserts give "
                "input_options={table: InputOptions(keys=...)}",
            )

    def _column_name(self, error_node: exp.Expr, name: str, clause: str) -> str:
        for column in self._names:
            if column.casefold() == name.casefold():
                return column
        raise self._source.error(
            error_node, f"unknown column {name!r} in {clause}; columns: {', '.join(self._names)}"
        )

    def _read_watermark(self, error_node: exp.Expr, node: exp.WatermarkColumnConstraint) -> None:
        """Read ``WATERMARK FOR ts AS ts - bound``, or ``LATENESS bound`` after a column."""
        bound = node.args.get("expression")
        if isinstance(error_node, exp.ColumnDef):
            name = error_node.name
        else:
            name = node.this.name
            if isinstance(bound, exp.Column) and bound.name.casefold() == name.casefold():
                bound = exp.Literal.number(0)
            elif (
                isinstance(bound, exp.Sub)
                and isinstance(bound.this, exp.Column)
                and bound.this.name.casefold() == name.casefold()
            ):
                bound = bound.expression
            else:
                bound = None
        value: str | int | None = None
        if isinstance(bound, exp.Interval) and isinstance(bound.this, exp.Literal):
            unit = bound.args.get("unit")
            value = _duration_text(bound) if unit is None else f"{bound.this.name} {unit.name}"
            value = value.strip().lower()
        elif isinstance(bound, exp.Literal) and bound.is_int:
            value = int(bound.name)
        if value is None:
            raise self._source.unsupported(
                error_node,
                "this watermark",
                "write WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, with the same column",
            )
        if self._lateness is not None:
            raise self._source.error(error_node, "the table has two watermarks; drop one")
        try:
            Lateness(name, value)
        except InputOptionsError as error:
            raise self._source.error(error_node, str(error)) from None
        self._lateness = error_node, name, value

    def _read_type(self, node: exp.DataType) -> pa.DataType:
        digits = [part.name for part in node.expressions if isinstance(part, exp.DataTypeParam)]
        if node.this in TIME_TYPES and digits:
            if not digits[0].isdigit() or int(digits[0]) > MAX_SECOND_DIGITS:
                raise self._source.unsupported(
                    node, f"a time with {digits[0]} digits of a second", "use 6 digits or fewer"
                )
            node = exp.DataType(this=node.this)
        if node.this == exp.DType.INTERVAL and not node.expressions:
            return pa.duration("us")
        return arrow_type(self._source, node)

    def _add_notice(self, node: exp.Expr, part: str, effect: str = "") -> None:
        self.notices.append(_notice(self._source, node, part, effect))


def _duration_text(interval: exp.Interval) -> str:
    """Return the seconds of an interval such as ``'1 day 02:03:04'``; a text without as it is."""
    text: str = interval.this.name
    try:
        total = parse_interval(text)
    except UnknownUnitError:
        return text
    if total is None or total.months:
        return text
    micros = total.days * 86_400 * SECOND + total.microseconds
    return text if micros < 0 else f"{micros // SECOND}.{micros % SECOND:06d} seconds"


def _is_processing_time(node: exp.Expr) -> bool:
    """Return whether an expression is ``PROCTIME()``."""
    node = node.unnest()
    return isinstance(node, exp.Anonymous) and node.name.casefold() == "proctime"


def _properties(source: SqlSource, tree: exp.Create) -> list[exp.Expr]:
    properties = tree.args.get("properties")
    if properties is None:
        return []
    source.allow_arguments(properties, "expressions")
    return list(properties.expressions)


def _notice(source: SqlSource, node: exp.Expr, part: str, effect: str = "") -> str:
    error = source.error(node, "")  # for the position of the node
    return f"line {error.line}, column {error.column}: {part} has no effect" + (
        f"; {effect}" if effect else ""
    )
