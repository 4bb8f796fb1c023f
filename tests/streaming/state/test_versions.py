"""Versions remove only files that no manifest can name."""

from __future__ import annotations

from pathlib import Path

import pytest

from circuits import compile_sql
from streaming.errors import StateDamagedError, StateLockedError
from streaming.state.local_files import LocalFiles
from streaming.state.store import Store
from streaming.state.versions import DATA, Versions

OLD_FILE = f"{DATA}/{0:020}-0123456789ab-0.3-0.arrow"


class KeptFiles(LocalFiles):
    """A directory in which manifests cannot be removed."""

    def remove(self, name: str) -> None:
        if name.startswith("manifests/"):
            raise PermissionError(name)
        super().remove(name)


def write_versions(folder: Path) -> str:
    """Write some versions of a directory that keeps more than it needs; return its id."""
    circuit = compile_sql("SELECT k, count(*) AS n FROM t GROUP BY k", {"t": "k bigint not null"})
    store = Store(LocalFiles(folder), circuit, keep=9)
    for number in range(3):
        assert store.find(number, None) is None
        step = circuit.prepare({"t": [{"k": number}]})
        store.write(number, None, step, outputs=step.outputs, digests={})
        step.commit()
        store.confirm_commit()
    id = store.id
    store.close()
    return id


def versions_of(files: LocalFiles, id: str, monkeypatch) -> Versions:
    """Return the last two versions; all files of older micro-batches count as abandoned."""
    monkeypatch.setattr("streaming.state.versions.ABANDONED_BATCHES", 0)
    versions = Versions(files, 2)
    versions.read(id)
    return versions


def raise_error(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [StateDamagedError("replaced"), StateLockedError("taken")])
def test_an_error_of_the_owner_is_raised_before_files_are_removed(tmp_path, monkeypatch, error):
    versions = versions_of(LocalFiles(tmp_path), write_versions(tmp_path), monkeypatch)
    versions.remove_unreferenced(lambda: None)
    (tmp_path / OLD_FILE).write_bytes(b"left")
    with pytest.raises(type(error), match=str(error)):
        versions.remove_abandoned(lambda: raise_error(error))
    assert (tmp_path / OLD_FILE).exists()
    versions.remove_abandoned(lambda: raise_error(OSError("no file system")))  # a warning
    assert (tmp_path / OLD_FILE).exists()
    versions.remove_abandoned(lambda: None)
    assert not (tmp_path / OLD_FILE).exists()


@pytest.mark.parametrize(
    "name", ["state", "views", "epoch", "unpublished", "published", "recomputed_columns"]
)
def test_temporary_files_that_a_killed_process_left_are_removed(tmp_path, monkeypatch, name):
    versions = versions_of(LocalFiles(tmp_path), write_versions(tmp_path), monkeypatch)
    temporary = tmp_path / f"{name}.json.0123456789ab.tmp"
    temporary.write_bytes(b"left")
    versions.remove_unreferenced(lambda: None)
    assert not temporary.exists()


def test_nothing_is_removed_while_an_older_manifest_may_name_it(tmp_path, monkeypatch):
    id = write_versions(tmp_path)
    (tmp_path / OLD_FILE).write_bytes(b"named by the version that cannot be removed")
    versions = versions_of(KeptFiles(tmp_path), id, monkeypatch)
    versions.remove_abandoned(lambda: None)  # before the other manifests were looked for
    versions.remove_unreferenced(lambda: None)
    versions.remove_abandoned(lambda: None)
    assert (tmp_path / OLD_FILE).exists()

    # The next commit of the same process tries again.
    monkeypatch.setattr(KeptFiles, "remove", LocalFiles.remove)
    versions.remove_unreferenced(lambda: None)
    assert not (tmp_path / OLD_FILE).exists()
