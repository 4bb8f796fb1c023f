"""Views: the materialized relations of a circuit, by name, as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from circuits.errors import UnknownViewError
from circuits.runtime.circuit_version import CircuitVersion
from circuits.schema import Schema
from dbsp_wcoj import Trace
from dbsp_wcoj.generic_join import view_to_zset

__all__ = ["Views"]


class Views(Mapping[str, pa.Table]):
    """The materialized views of one version of the circuit, whatever is committed later.

    A table has the columns of the view and ``weight``, how often the row is in it. Any number of
    threads may read.
    """

    __slots__ = ("_codecs", "_kept", "_schemas", "_state")

    def __init__(
        self, state: CircuitVersion, kept: Mapping[str, str], schemas: Mapping[str, Schema]
    ) -> None:
        self._state = state
        # The name of the trace that keeps a view.
        self._kept = kept
        self._schemas = schemas
        self._codecs = state.codecs()

    def __getitem__(self, name: str) -> pa.Table:
        schema, trace = self._schemas.get(name), self.trace(name)
        assert schema is not None
        return schema.to_table(view_to_zset(trace, schema.arity), self._codecs)

    def trace(self, name: str) -> Trace:
        """The rows of a view in codes, to be read only.

        Raises:
            UnknownViewError: It is not there, or not materialized.
        """
        kept = self._kept.get(name)
        if kept is None:
            known = ", ".join(self._schemas)
            names = ", ".join(self._kept) or "none"
            what = "is not materialized" if name in self._schemas else f"is none of {known}"
            raise UnknownViewError(
                f"{name!r} {what}; materialized are: {names}. "
                f"Make the circuit with materialize=[{name!r}] or materialize=True"
            )
        return self._state.trace(kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, name: object) -> bool:
        return name in self._kept
