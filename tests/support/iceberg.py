"""Commits of Iceberg tables that the package pyiceberg does not make: delete files, compactions."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyiceberg.table import Table


def new_catalog(folder: Path, name: str = "default") -> dict[str, str]:
    """Create a catalog with the namespace ``shop`` in a folder; return its properties."""
    from pyiceberg.catalog import load_catalog

    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/lake",
    }
    load_catalog(name, **properties).create_namespace("shop")
    return properties


def delete_positions(table: Table, number: int, *, as_vector: bool = False) -> None:
    """Commit a delete file, as Spark with merge-on-read does: it deletes one row of one data file.

    Nothing is deleted if the table has no row. The row may be deleted already.

    Args:
        table: The table.
        number: Chooses the data file and the row.
        as_vector: True for a deletion vector in a Puffin file, as tables of version 3 have it. The
            table has version 2, because pyiceberg does not write version 3; it reads both alike.
    """
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestEntry,
        ManifestEntryStatus,
        ManifestWriterV2,
    )
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _FastAppendFiles

    class DeleteManifestWriter(ManifestWriterV2):
        def content(self):
            return ManifestContent.DELETES

        @property
        def _meta(self):
            return {**super()._meta, "content": "deletes"}

    class DeletePositions(_FastAppendFiles):
        def _manifests(self):
            writer = DeleteManifestWriter(
                self.spec(deletes.spec_id),
                self.schema(),
                self.new_manifest_output(),
                self._snapshot_id,
                self._compression,
            )
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=deletes,
            )
            with writer:
                writer.add(entry)
            return [*self._existing_manifests(), writer.to_manifest_file()]

    tasks = [task for task in table.scan().plan_files() if task.file.record_count]
    if not tasks:
        return
    data_file = tasks[number % len(tasks)].file
    path = f"{table.location()}/data/{uuid4()}-deletes.{'puffin' if as_vector else 'parquet'}"
    position = number % data_file.record_count
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    if as_vector:
        local.write_bytes(deletion_vector(data_file.file_path, position))
    else:
        pq.write_table(pa.table({"file_path": [data_file.file_path], "pos": [position]}), local)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PUFFIN if as_vector else FileFormat.PARQUET,
        partition=data_file.partition,
        record_count=1,
        file_size_in_bytes=local.stat().st_size,
    )
    deletes.spec_id = data_file.spec_id
    with table.transaction() as transaction:
        DeletePositions(Operation.DELETE, transaction, table.io).commit()


def deletion_vector(data_file: str, position: int) -> bytes:
    """Return a Puffin file with a deletion vector of one row of a data file.

    The formats are those of the specifications of Puffin (version 1) and Roaring bitmaps.
    """
    from pyroaring import BitMap

    bitmap = BitMap([position]).serialize()
    vector = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + bitmap
    blob = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    metadata = {
        "type": "deletion-vector-v1",
        "fields": [],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
        "length": len(blob),
        "properties": {"referenced-data-file": data_file, "cardinality": "1"},
    }
    footer = json.dumps({"blobs": [metadata]}).encode()
    magic = b"PFA1"
    return magic + blob + magic + footer + struct.pack("<I", len(footer)) + bytes(4) + magic


def rewrite_files(table: Table) -> None:
    """Commit a compaction: all rows move to new data files, as ``rewrite_data_files`` of Spark."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class RewriteFiles(_OverwriteFiles):
        def _summary(self, snapshot_properties):
            return Summary(Operation.REPLACE)

    rows = table.scan().to_arrow()
    if not rows.num_rows:
        return
    with table.transaction() as transaction:
        producer = RewriteFiles(Operation.REPLACE, transaction, table.io)
        for task in table.scan().plan_files():
            producer.delete_data_file(task.file)
        for file in _dataframe_to_data_files(table.metadata, rows, table.io):
            producer.append_data_file(file)
        producer.commit()


def expire_snapshots(table: Table) -> None:
    """Remove all snapshots but the current one from the metadata of a loaded table.

    As in Java, the parent of the current one keeps its number; pyiceberg removes it.
    """
    table.metadata.snapshots[:] = [table.current_snapshot()]
