"""The simulated disk keeps synced data, and may lose all other data at a crash."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.simulated_files import Crash, Fault, SimulatedDisk

SEEDS = range(400)


def content_of(disk, name):
    return disk.content(name) if name in disk.names() else None


def outcomes(prepare, *names):
    """Return the contents of the files after a power loss, for many seeds; None if missing."""
    contents_by_seed = set()
    for seed in SEEDS:
        disk = SimulatedDisk(seed)
        files = disk.files()
        prepare(files)
        disk.lose_power()
        contents = tuple(content_of(disk, name) for name in names)
        contents_by_seed.add(contents if len(names) > 1 else contents[0])
    return contents_by_seed


def write_durably(files, name, content):
    files.write(name, [content])
    files.sync(name)
    files.sync_folder(name.rpartition("/")[0])
    files.sync_folder("")


def test_synced_bytes_under_a_synced_name_are_always_there():
    assert outcomes(lambda files: write_durably(files, "data/a", b"one"), "data/a") == {b"one"}


def test_unsynced_bytes_may_be_complete_missing_truncated_zero_or_garbage():
    def prepare(files):
        files.write("a", [b"x" * 200])
        files.sync_folder("")

    result = outcomes(prepare, "a")
    assert {b"x" * 200, b"", bytes(200)} < result
    assert any(0 < len(content) < 200 for content in result)
    assert any(len(content) == 200 and len(set(content)) > 2 for content in result)
    assert None not in result


def test_an_overwritten_file_may_be_the_old_one_the_new_one_or_a_mixture():
    def prepare(files):
        write_durably(files, "a", b"x" * 200)
        files.write("a", [b"y" * 200])

    result = outcomes(prepare, "a")
    assert {b"x" * 200, b"y" * 200, b""} < result
    assert any(set(content) == set(b"xy") for content in result)


def test_a_synced_file_without_a_synced_name_is_complete_or_missing():
    def prepare(files):
        files.write("a", [b"one"])
        files.sync("a")

    assert outcomes(prepare, "a") == {b"one", None}


def test_a_new_folder_may_be_missing_until_the_directory_is_synced():
    def prepare(files):
        files.write("data/a", [b"one"])
        files.sync("data/a")
        files.sync_folder("data")

    assert outcomes(prepare, "data/a") == {b"one", None}


def test_after_a_rename_either_name_both_or_none_may_exist():
    def prepare(files):
        write_durably(files, "a", b"one")
        files.rename("a", "b")

    assert outcomes(prepare, "a", "b") == {
        (b"one", None),
        (None, b"one"),
        (b"one", b"one"),
        (None, None),
    }


def test_after_a_rename_over_a_file_the_old_or_the_new_one_exists():
    def prepare(files):
        write_durably(files, "a", b"old")
        write_durably(files, "b", b"new")
        files.rename("b", "a")

    assert outcomes(prepare, "a") == {b"old", b"new"}


def test_renames_are_kept_in_any_order():
    def prepare(files):
        write_durably(files, "a", b"one")
        write_durably(files, "b", b"two")
        files.rename("a", "c")
        files.rename("b", "d")

    result = outcomes(prepare, "c", "d")
    assert result == {(x, y) for x in (b"one", None) for y in (b"two", None)}


def test_a_removed_file_may_reappear_until_the_folder_is_synced():
    def prepare(files):
        write_durably(files, "a", b"one")
        files.remove("a")

    def prepare_and_sync(files):
        prepare(files)
        files.sync_folder("")

    assert outcomes(prepare, "a") == {b"one", None}
    assert outcomes(prepare_and_sync, "a") == {None}


def test_only_the_appended_text_of_a_file_may_be_lost():
    def prepare(files):
        write_durably(files, "log", b"one ")
        files.append("log", "two")

    result = outcomes(prepare, "log")
    assert {b"one ", b"one two"} <= result


def test_a_sync_after_a_failed_sync_guarantees_nothing():
    def prepare(files):
        files.write("a", [b"one"])
        files.sync_folder("")
        files._disk.plan(Fault(0, "error"))
        with pytest.raises(OSError, match="sync a"):
            files.sync("a")
        files.sync("a")

    assert {b"one", b""} <= outcomes(prepare, "a")


def test_writes_of_a_killed_process_are_visible_but_not_synced():
    for seed in SEEDS:
        disk = SimulatedDisk(seed)
        files = disk.files()
        files.write("data/a", [b"one"])
        disk.kill()
        assert content_of(disk, "data/a") == b"one"
    result = set()
    for seed in SEEDS:
        disk = SimulatedDisk(seed)
        files = disk.files()
        files.write("data/a", [b"one"])
        disk.kill()
        disk.files().sync_folder("data")
        disk.lose_power()
        result.add(content_of(disk, "data/a"))
    assert {None, b"", b"one"} <= result


@pytest.mark.parametrize("kind", ["power", "kill"])
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_crash_ends_the_process_and_frees_its_lock(kind, when):
    disk = SimulatedDisk(1)
    files = disk.files()
    files.lock()
    disk.plan(Fault(1, kind, when))
    files.write("a", [b"one"])
    with pytest.raises(Crash) as raised:
        files.write("b", [b"two"])
    assert raised.value.power == (kind == "power")
    for call in (lambda: files.remove("a"), files.unlock, lambda: files.read("a")):
        with pytest.raises(Crash):
            call()
    assert not isinstance(raised.value, Exception)
    disk.files().lock()
    if kind == "kill":
        assert content_of(disk, "a") == b"one"
        assert {"before": content_of(disk, "b") is None, "during": True}.get(
            when, content_of(disk, "b") == b"two"
        )


@pytest.mark.parametrize(
    ("when", "contents"), [("before", {None}), ("during", {b"", b"o", b"on"}), ("after", {b"one"})]
)
def test_an_error_writes_nothing_a_part_or_all_and_the_process_continues(when, contents):
    for seed in range(50):
        disk = SimulatedDisk(seed)
        files = disk.files()
        disk.plan(Fault(0, "error", when))
        with pytest.raises(OSError, match="write a"):
            files.write("a", [b"one"])
        assert content_of(disk, "a") in {*contents, b"one" if when == "during" else None}
        files.write("a", [b"two"])
        assert bytes(files.read("a")) == b"two"


def test_a_full_disk_refuses_writes_until_there_is_space():
    disk = SimulatedDisk(1)
    files = disk.files()
    write_durably(files, "old", b"one")
    disk.plan(Fault(0, "full", "during"))
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            files.write("a", [b"one"])
    files.remove("old")
    disk.tidy()
    files.write("a", [b"one"])


def test_overwriting_a_file_that_was_read_fails_the_test():
    disk = SimulatedDisk(1)
    files = disk.files()
    files.write("a", [b"one"])
    files.read("a")
    with pytest.raises(AssertionError, match="mapped"):
        files.write("a", [b"two"])


def test_the_same_seed_gives_the_same_disk():
    def run(seed):
        disk = SimulatedDisk(seed)
        files = disk.files()
        for n in range(20):
            files.write(f"{'abc'[n % 3]}/{n % 7}", [bytes([n]) * 100 * n])
            files.sync_folder("abc"[n % 2])
        disk.lose_power()
        return [(name, disk.content(name)) for name in disk.names()]

    assert run(5) == run(5)
    assert len({tuple(run(seed)) for seed in range(20)}) > 10


def test_any_sequence_of_calls_keeps_what_is_synced():
    """Compare with a model of the guarantee: synced bytes under synced names are kept."""
    for seed in range(1500):
        rng, disk = Random(seed), SimulatedDisk(f"disk {seed}")
        files = disk.files()
        # By name: the bytes of a file, whether these are synced, whether it is certain that the
        # name exists or not, and whether a folder is synced.
        bytes_of, synced, has_certain_name, folders = {}, {}, {}, {"": True}
        for _ in range(rng.randrange(1, 30)):
            name = rng.choice(["a", "b", "d/a", "d/b", "e/a"])
            folder = name.rpartition("/")[0]
            call = rng.randrange(6)
            if call < 2:
                has_certain_name[name] = has_certain_name.get(name, False) and name in bytes_of
                bytes_of[name] = rng.randbytes(rng.randrange(200))
                synced[name] = False
                folders.setdefault(folder, False)
                files.write(name, [bytes_of[name]])
            elif call == 2 and name in bytes_of:
                synced[name] = True
                files.sync(name)
            elif call == 3:
                has_certain_name.update(
                    {n: True for n in has_certain_name if n.rpartition("/")[0] == folder}
                )
                if folder == "":
                    folders.update(dict.fromkeys(folders, True))
                files.sync_folder(folder)
            elif call == 4 and name in bytes_of:
                new = f"{folder}/c" if folder else "c"
                bytes_of[new], synced[new] = bytes_of.pop(name), synced.pop(name)
                has_certain_name[name] = has_certain_name[new] = False
                files.rename(name, new)
            elif call == 5:
                has_certain_name[name] = has_certain_name.get(name, True) and name not in bytes_of
                bytes_of.pop(name, None)
                files.remove(name)
        assert {name: disk.content(name) for name in disk.names()} == bytes_of
        disk.lose_power()
        for name, is_certain in has_certain_name.items():
            exists = name in disk.names()
            if not is_certain or not folders.get(name.rpartition("/")[0], True):
                continue
            assert exists == (name in bytes_of), (seed, name)
            if exists and synced[name]:
                assert disk.content(name) == bytes_of[name], (seed, name)
