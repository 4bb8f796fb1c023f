"""Codes of an ENUM: those of its labels in the dictionary of strings.

The order of codes and sort keys is not that of the labels. So the SQL front end orders the values
of an ENUM by their positions (`circuits.sql.binding.enums`).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from circuits.errors import SchemaError
from circuits.types.codecs.arrow_buffers import BoolArray, Int64Array
from circuits.types.codecs.strings import Strings
from circuits.types.enum_type import EnumType

__all__ = ["Enums", "check_labels"]


def check_labels(texts: pa.Array, type: EnumType) -> pa.Array:
    """Return the texts, after a check that each is a label of an ENUM or NULL.

    Raises:
        ArrowInvalid: A text is no label.

    >>> check_labels(pa.array(["bad"]), EnumType(["sad", "ok"]))
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: 'bad' is no label of ENUM('sad', 'ok')
    """
    is_label = pc.is_in(texts, value_set=pa.array([*type.labels, None], pa.string()))
    if not pc.all(is_label, min_count=0).as_py():
        wrong = texts.filter(pc.invert(is_label))[0].as_py()
        raise pa.ArrowInvalid(f"{wrong!r} is no label of {type.sql}")
    return texts


@dataclass(frozen=True)
class Enums(Strings):
    """The coding of an ENUM."""

    def encode(self, array: pa.Array, valid: BoolArray | None, *, adding: bool) -> Int64Array:
        """Return the codes of values; see `Strings.encode`.

        Raises:
            SchemaError: A text is no label of the ENUM.
        """
        try:
            texts = check_labels(array.storage, self.type)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{error}; correct it, or declare the column a VARCHAR") from error
        return super().encode(texts, valid, adding=adding)
