"""Views: the materialized relations of a circuit, by name, as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from circuits.codec import Codecs
from circuits.errors import UnknownViewError
from circuits.operators.integrate import Integrate
from circuits.schema import Schema

__all__ = ["Views"]


class Views(Mapping[str, pa.Table]):
    """What is materialized, as of the last step.

    A table has the columns of the view and ``weight``, how often the row is in it.
    """

    __slots__ = ("_codecs", "_integrals", "_schemas")

    def __init__(
        self,
        integrals: Mapping[str, Integrate],
        schemas: Mapping[str, Schema],
        codecs: Codecs,
    ) -> None:
        self._integrals = integrals
        self._schemas = schemas
        self._codecs = codecs

    def __getitem__(self, name: str) -> pa.Table:
        integral = self.integral(name)
        return self._schemas[name].to_table(integral.total, self._codecs)

    def integral(self, name: str) -> Integrate:
        """What keeps a view.

        Raises:
            UnknownViewError: It is not there, or not materialized.
        """
        integral = self._integrals.get(name)
        if integral is None:
            known = ", ".join(self._schemas)
            kept = ", ".join(self._integrals) or "none"
            what = "is not materialized" if name in self._schemas else f"is none of {known}"
            raise UnknownViewError(
                f"{name!r} {what}; materialized are: {kept}. "
                f"Make the circuit with materialize=[{name!r}] or materialize=True"
            )
        return integral

    def __iter__(self) -> Iterator[str]:
        return iter(self._integrals)

    def __len__(self) -> int:
        return len(self._integrals)

    def __contains__(self, name: object) -> bool:
        return name in self._integrals
