"""The files of machine code, which processes of several versions may write at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba.core.caching import IndexDataCacheFile

from dbsp_wcoj.kernels import source_stamps
from dbsp_wcoj.kernels.precompiled import KernelCacheFile

MODULE = "storage.key_sets"
KEY = ("int64", ("triple", "cpu", "features"), ("hash",))
OTHER_KEY = ("int32", ("triple", "cpu", "features"), ("hash",))


@pytest.fixture(autouse=True)
def _sources(monkeypatch):
    monkeypatch.setattr(source_stamps, "_IMPORT_TIME_NS", 2**63)  # nothing has changed since


def cache_file(place, stamp: str, line: int = 7) -> KernelCacheFile:
    file = IndexDataCacheFile(str(place), f"key_sets.f-{line}.py311", (0.0, 1))
    return KernelCacheFile(file, f"{MODULE}.f", stamp)


def names_in(place) -> set[str]:
    return {path.name for path in place.iterdir()}


def interrupt(file: KernelCacheFile, step: str, call) -> None:
    """Make a call before the first call of a step of ``save``."""
    original = getattr(file, step)

    def run(*arguments):
        setattr(file, step, original)
        call()
        return original(*arguments)

    setattr(file, step, run)


@pytest.mark.parametrize("step", ["_load_index", "_save_index", "_save_data"])
@pytest.mark.parametrize("stamp", ["old", "new"])
def test_no_process_loads_what_another_one_stored_for_something_else(tmp_path, step, stamp):
    first, second = cache_file(tmp_path, stamp), cache_file(tmp_path, "new")
    interrupt(first, step, lambda: second.save(OTHER_KEY, "code of the second"))
    first.save(KEY, "code of the first")
    for file, own in ((cache_file(tmp_path, stamp), first), (cache_file(tmp_path, "new"), second)):
        for key in (KEY, OTHER_KEY):
            code = {KEY: "code of the first", OTHER_KEY: "code of the second"}[key]
            assert file.load(key) in (code, None), own
    assert cache_file(tmp_path, "old" if stamp == "new" else "other").load(KEY) is None


def test_code_of_earlier_sources_is_removed(tmp_path):
    cache_file(tmp_path, "old").save(KEY, "old")
    cache_file(tmp_path, "old", line=3).save(KEY, "old")
    new = cache_file(tmp_path, "new")
    new.save(KEY, "new")
    new.save(OTHER_KEY, "other")
    assert len(names_in(tmp_path)) == 3
    assert (new.load(KEY), new.load(OTHER_KEY)) == ("new", "other")


def test_code_of_sources_that_were_replaced_is_neither_stored_nor_loaded(tmp_path, monkeypatch):
    cache_file(tmp_path, "new").save(KEY, "new")
    before = names_in(tmp_path)
    source = Path(source_stamps.__file__).parent / "storage" / "key_sets.py"
    monkeypatch.setattr(source_stamps, "_IMPORT_TIME_NS", source.stat().st_ctime_ns - 1)
    cache_file(tmp_path, "old").save(KEY, "old")
    assert names_in(tmp_path) == before
    assert cache_file(tmp_path, "new").load(KEY) is None
