"""The Arrow type of an ENUM: its values are the labels of a fixed list, in that order."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa

__all__ = ["EnumType"]


class EnumType(pa.ExtensionType):  # type: ignore[misc]
    """The type of an ENUM; its values are stored as texts.

    Attributes:
        labels: The labels in their order, each once.

    >>> mood = EnumType(["sad", "ok"])
    >>> mood == EnumType(["sad", "ok"]), mood == EnumType(["ok", "sad"])
    (True, False)
    >>> pa.array(["ok", None], mood).to_pylist()
    ['ok', None]
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = tuple(labels)
        super().__init__(pa.string(), "dbsp_wcoj.enum")

    @property
    def sql(self) -> str:
        """The type in SQL, for messages."""
        return f"ENUM({', '.join(map(repr, self.labels))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnumType) and other.labels == self.labels

    def __hash__(self) -> int:
        return hash(self.labels)

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps(self.labels).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> EnumType:
        return cls(json.loads(serialized))


pa.register_extension_type(EnumType([]))
