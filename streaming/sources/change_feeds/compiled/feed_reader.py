"""Feed reader: read a micro-batch with a feed, as rows of relations and dead letters.

The reader collects the columns that the feed needs by one ``toArrow()``. It decodes rows in Arrow,
and the plain events in Arrow and kernels. The others are few: Spark's expressions decode them
again, which takes about a second for any number of them, and give the reason if an event is
invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from circuits.schema import Schema
from streaming.errors import FeedError
from streaming.sources.change_feeds.canal import CanalFeed
from streaming.sources.change_feeds.compiled.canal import CanalDecoder
from streaming.sources.change_feeds.compiled.debezium import DebeziumDecoder
from streaming.sources.change_feeds.compiled.images import RowReader, relations_of
from streaming.sources.change_feeds.compiled.maxwell import MaxwellDecoder
from streaming.sources.change_feeds.compiled.scanner import Integers, Scanner
from streaming.sources.change_feeds.debezium import DebeziumFeed
from streaming.sources.change_feeds.events import ColumnNames, check_events
from streaming.sources.change_feeds.feed import SEQUENCE, ChangeFeed
from streaming.sources.change_feeds.flat import FlatDecoder, FlatFeed
from streaming.sources.change_feeds.maxwell import MaxwellFeed
from streaming.sources.change_feeds.stream_columns import (
    read_sequence,
    read_texts,
    select_columns,
    sequence_column,
)
from streaming.sources.dead_letters import DeadLetters
from streaming.sources.envelope import Changes, KeyOptions, decode_batch

__all__ = ["FeedReader"]

VALUE: Final = "value"
ORDER: Final = "stream_order"
#: A feed of events in JSON that has a compiled decoder.
EventFeed = DebeziumFeed | MaxwellFeed | CanalFeed
DECODERS: Final[Mapping[type, Any]] = {
    DebeziumFeed: DebeziumDecoder,
    MaxwellFeed: MaxwellDecoder,
    CanalFeed: CanalDecoder,
}


class FeedReader:
    """Reads micro-batches with a feed.

    Args:
        feed: The feed. One without a compiled decoder decodes all its events by Spark. None for
            rows that have the columns of the inputs, or are in an envelope.
        inputs: The inputs of the circuit.
        input_options: Their options.
        relation: The input of rows without a tag.
    """

    def __init__(
        self,
        feed: ChangeFeed | None,
        inputs: Mapping[str, Schema],
        input_options: Mapping[str, KeyOptions],
        *,
        relation: str | None = None,
    ) -> None:
        self.feed = feed
        self.inputs = inputs
        self._options = input_options
        self.relation = relation
        self._schemas = {name: schema.arrow_columns for name, schema in inputs.items()}
        self._keys = {
            name: tuple(options.keys) for name, options in input_options.items() if options.keys
        }
        self._events: _EventReader | None = None
        self._checked: StructType | None = None  # the columns of the stream that fit the feed

    def collect(self, df: DataFrame) -> pa.Table:
        """Return what `decode` needs of a micro-batch, by one action.

        Raises:
            FeedError: As `select`.
        """
        return self.select(df).toArrow()

    def select(self, df: DataFrame) -> DataFrame:
        """Return the frame with the columns that `decode` needs; nothing is evaluated.

        Raises:
            FeedError: The feed does not fit the columns of the stream or the inputs.
        """
        feed = self.feed
        if feed is None or isinstance(feed, FlatFeed):
            return df
        if not isinstance(feed, EventFeed):
            return feed.envelope(df, self._schemas, keys=self._keys)
        if self._checked != df.schema:
            relations = (feed.relation, *feed.tables.values())
            check_events(feed, df, self._schemas, feed.value, feed.sequence, relations)
            self._checked = df.schema
        order = sequence_column(feed.sequence, df.schema.names)
        return select_columns(df, [feed.value] if order is None else [feed.value, order])

    def decode(self, table: pa.Table, session: SparkSession | None) -> Changes:
        """Return the changes of a collected micro-batch.

        Args:
            table: The result of `collect`.
            session: Decodes the events that are not plain; None if there are none.

        Raises:
            FeedError: An event is not plain, and there is no session; or the column that orders
                the events is not an integer or a time.
        """
        feed = self.feed
        if isinstance(feed, FlatFeed):
            decoder = FlatDecoder(feed, table.column_names, self._schemas, self._keys)
            return self._decode_envelope(decoder.decode(table))
        if not isinstance(feed, EventFeed):
            return self._decode_envelope(table)
        if self._events is None:
            self._events = _EventReader(feed, self.inputs, self._keys, self._options)
        # `select` has kept the values and the column that orders them.
        others = [name for name in table.column_names if name != feed.value]
        order = feed.sequence or (others[0] if others else None)
        table = pa.table(
            {
                VALUE: read_texts(feed, table, feed.value),
                ORDER: read_sequence(feed, table, order),
            }
        )
        if table.column(VALUE).null_count:
            table = table.filter(pc.is_valid(table.column(VALUE)))
        changes, refused = self._events.decode(table)
        if len(refused):
            if session is None:
                raise FeedError(f"{len(refused)} events are not plain: give a Spark session")
            exact = replace(feed, value=VALUE, sequence=ORDER)
            frame = session.createDataFrame(table.take(pa.array(refused)))
            envelope = exact.envelope(frame, self._schemas, keys=self._keys).toArrow()
            changes += self._decode_envelope(envelope)
        return changes

    def _decode_envelope(self, table: pa.Table) -> Changes:
        return decode_batch(table, self.inputs, relation=self.relation, input_options=self._options)


class _EventReader:
    """Decodes the plain events of a feed."""

    def __init__(
        self,
        feed: EventFeed,
        inputs: Mapping[str, Schema],
        keys: Mapping[str, tuple[str, ...]],
        input_options: Mapping[str, KeyOptions],
    ) -> None:
        schemas = {name: schema.arrow_columns for name, schema in inputs.items()}
        names = ColumnNames(feed.rename, feed.match_case, schemas)
        columns, relations = relations_of(schemas, keys, names)
        if not feed.tables:
            # Also inputs that are not among ``relations``: their events are refused, not unknown.
            feed = replace(feed, tables={name: name for name in schemas})
        self._decoder = DECODERS[type(feed)](feed, columns, relations)
        self._scanner = Scanner(self._decoder.shape)
        hidden = feed.placeholders if isinstance(feed, DebeziumFeed) else ()
        self._rows = {
            name: RowReader(
                relation,
                inputs[name],
                getattr(input_options.get(name), "sequence", None) or SEQUENCE,
                feed.encoding,
                hidden,
            )
            for name, relation in relations.items()
        }

    def decode(self, table: pa.Table) -> tuple[Changes, Integers]:
        """Return the changes of the plain events, and the numbers of the others."""
        texts, orders = table.column(VALUE), table.column(ORDER)
        parts: dict[str, list[pa.Table]] = {}
        all_refused: list[npt.NDArray[Any]] = [np.empty(0, np.int64)]
        for events in self._scanner.scan(texts):
            refused = ~events.accepted
            own_orders = orders.slice(events.first, len(events))
            for group in self._decoder.groups(events, own_orders, refused):
                if len(group.events):
                    rows = self._rows[group.relation].read(events, group, refused)
                    parts.setdefault(group.relation, []).append(rows)
            all_refused.append(np.flatnonzero(refused) + events.first)
        tables = {name: pa.concat_tables(tables) for name, tables in parts.items()}
        return Changes(tables, DeadLetters.empty()), np.concatenate(all_refused)
