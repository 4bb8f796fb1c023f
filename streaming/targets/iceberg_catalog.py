"""IcebergCatalog: the connection to a catalog of Iceberg tables, of source tables and targets.

It needs the package ``pyiceberg``, which is imported when the catalog is first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streaming.errors import StreamingError
from streaming.redaction import redact

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

__all__ = ["IcebergCatalog"]


class IcebergCatalog:
    """A catalog of Iceberg tables; it connects when it is first used, and again after an error.

    Args:
        name: The name of the catalog in the configuration of ``pyiceberg``; empty for its default
            catalog.
        properties: Properties of the catalog, which override those of the configuration: for
            example ``{"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "file:///lake"}``.
            They may contain secrets.

    Attributes:
        name: As the argument.
        properties: As the argument.
    """

    def __init__(self, name: str = "", properties: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.properties = dict(properties or {})
        self._connection: Catalog | None = None

    def __repr__(self) -> str:
        return f"IcebergCatalog({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_connection": None}

    @property
    def description(self) -> str:
        """The catalog, for messages."""
        return f"catalog {self.name!r}" if self.name else "the default catalog"

    def connect(self) -> Catalog:
        """Return the catalog of ``pyiceberg``; call it within `report_errors`."""
        from pyiceberg.catalog import load_catalog

        if self._connection is None:
            self._connection = load_catalog(self.name or None, **self.properties)
        return self._connection

    def find_table(self, name: str) -> Table | None:
        """Return a table with its newest snapshot, or None; call it within `report_errors`."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self.connect().load_table(name)
        except NoSuchTableError:
            return None

    @contextmanager
    def report_errors(self, subject: str, error_class: type[StreamingError]) -> Iterator[None]:
        """Raise any error of ``pyiceberg``, the catalog, its database or its files as one class.

        They have no common class: ``pyiceberg`` raises a KeyError if a property is missing, and a
        catalog the errors of its database.

        Args:
            subject: Begins the message: what cannot be done.
            error_class: The class of the error; errors of this class pass.
        """
        try:
            import pyiceberg  # noqa: F401  (checks that it is installed)
        except ImportError as error:
            raise error_class(
                "an Iceberg table needs the package pyiceberg, which is not installed: run pip "
                "install 'dbsp-wcoj[iceberg]'"
            ) from error
        try:
            yield
        except error_class:
            raise
        except Exception as error:
            self._connection = None
            reason = redact(" ".join(str(error).split()))
            raise error_class(f"{subject}: {type(error).__name__}: {reason}") from error
