"""Manifests: encoding, the files of a version, and detection of damage."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import StateDamagedError, StateError
from streaming.state import manifest as manifest_module
from streaming.state.cell_versions import CellVersions
from streaming.state.manifest import FileChecksum, Manifest
from streaming.state.segment_references import SegmentReference

MANIFEST = Manifest(
    batch_id=7,
    query_id="q",
    steps=8,
    traces={
        "relation e": {
            (0, 1): (SegmentReference("data/a", 0, 5, 40), SegmentReference("data/b", 2, 1, 8)),
            (1, 0): (),
        }
    },
    dictionaries={"text": (SegmentReference("data/b", 1, 3, 30),)},
    dictionary_lengths={"text": 3},
    watermarks={"horizon e": -5},
    plans={"#1": [["ä", "b"]]},
    digests={"e": 4_000_000_000},
    outputs={"triangles": ("outputs/x-0.parquet", "outputs/x-1.parquet"), "none": ()},
    dead_letters=2,
    files={
        "data/a": FileChecksum(100, 1),
        "data/b": FileChecksum(200, 2),
        "outputs/x-0.parquet": FileChecksum(3, 3),
        "outputs/x-1.parquet": FileChecksum(4, 4),
    },
)


def test_a_manifest_is_decoded_from_its_encoding():
    assert Manifest.decode(MANIFEST.encode(), "manifest") == MANIFEST


def test_a_manifest_that_would_not_be_read_again_is_not_written(monkeypatch):
    monkeypatch.setattr("streaming.state.manifest.MAX_SMALL_FILE_BYTES", 100)
    with pytest.raises(
        StateError, match=r"micro-batch 7 has [\d,]+ bytes.* is 100: use fewer cells"
    ):
        MANIFEST.encode()


def test_the_data_files_do_not_include_the_outputs():
    assert MANIFEST.data_files == ["data/a", "data/b"]


@given(st.data())
def test_every_flipped_bit_and_every_changed_length_is_detected(data):
    encoded = MANIFEST.encode()
    position = data.draw(st.integers(0, len(encoded) - 1))
    flipped = bytearray(encoded)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    for changed in (bytes(flipped), encoded[:position], encoded + b"x"):
        with pytest.raises(StateDamagedError, match="manifest"):
            Manifest.decode(changed, "manifest")


def test_versions_of_more_cells_than_are_cached_read_each_of_them_once(monkeypatch):
    decoded = []
    read, decode = manifest_module.read_cell_manifest.__wrapped__, Manifest.decode

    def count(data, name):
        decoded.append(data)
        return decode(data, name)

    monkeypatch.setattr(Manifest, "decode", count)
    monkeypatch.setattr(manifest_module, "read_cell_manifest", lru_cache(maxsize=2)(read))
    cells = {
        (0, n): replace(MANIFEST, files={**MANIFEST.files, f"data/{n}": FileChecksum(n, n)})
        for n in range(5)
    }
    encoded = {key: cell.encode() for key, cell in cells.items()}
    version = replace(MANIFEST, cells=CellVersions(5, [], encoded))
    files = [dict(version.all_files) for _ in range(3)]
    assert files[0].keys() == MANIFEST.files.keys() | {f"data/{n}" for n in range(5)}
    assert len(decoded) == 5
    assert version.sizes["stage 0 text"] == (5 * 3, 5 * 30)
    assert [dict(version.all_files), version.sizes] == [files[-1], version.sizes]
    assert len(decoded) == 5
    changed = encoded | {(0, 4): replace(cells[0, 4], batch_id=8).encode()}
    later = replace(version, cells=CellVersions(5, [], changed))
    assert later.sizes == version.sizes and later.all_files == version.all_files
    assert len(decoded) == 6
    del version, later
    gc.collect()
    assert replace(MANIFEST, cells=CellVersions(5, [], encoded)).sizes["stage 0 text"] == (15, 150)
    assert 6 < len(decoded) <= 11
