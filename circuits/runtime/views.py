"""Views: the materialized views of a circuit, by name, as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from circuits.errors import UnknownViewError
from circuits.runtime.circuit_version import CircuitVersion
from circuits.schema import Schema
from dbsp_wcoj import Trace
from dbsp_wcoj.generic_join import relation_to_zset

__all__ = ["Views"]


class Views(Mapping[str, pa.Table]):
    """The materialized views of one version of the circuit; later commits do not change them.

    A table has the columns of the view and ``weight``, the number of times that the row occurs in
    the view. Any number of threads may read.
    """

    __slots__ = ("_codecs", "_schemas", "_state", "_trace_names")

    def __init__(
        self, state: CircuitVersion, trace_names: Mapping[str, str], schemas: Mapping[str, Schema]
    ) -> None:
        self._state = state
        # The name of the trace of each view, by the name of the view.
        self._trace_names = trace_names
        self._schemas = schemas
        self._codecs = state.codecs()

    def __getitem__(self, name: str) -> pa.Table:
        schema, trace = self._schemas.get(name), self.trace(name)
        assert schema is not None
        return schema.to_table(relation_to_zset(trace, schema.arity), self._codecs)

    def trace(self, name: str) -> Trace:
        """Return the rows of a view, as int64 codes; do not change the trace.

        Raises:
            UnknownViewError: The view does not exist or is not materialized.
        """
        trace_name = self._trace_names.get(name)
        if trace_name is None:
            if name not in self._schemas:
                raise UnknownViewError(
                    f"unknown view {name!r}; inputs and views: {', '.join(self._schemas)}"
                )
            raise UnknownViewError(
                f"{name!r} is not materialized; materialized views: "
                f"{', '.join(self._trace_names) or 'none'}. Make the circuit with "
                f"materialize=[{name!r}] or materialize=True"
            )
        return self._state.trace(trace_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._trace_names)

    def __len__(self) -> int:
        return len(self._trace_names)

    def __contains__(self, name: object) -> bool:
        return name in self._trace_names
