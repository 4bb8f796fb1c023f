"""A state directory in which an attacker replaced files.

The sink must not run their code, and must not read, write or remove anything outside of the
directory. It continues or raises an error of this library.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import shutil
import socket
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import InputOptions, compile_sql
from streaming import StateDamagedError, StateError, StreamingError, ViewSink
from streaming.cli.state_inspection import inspect_state
from streaming.distributed.rescaling import rescale_state
from streaming.state.checksums import decode_checked, encode_checked
from streaming.state.files import read_small_file
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import Manifest, manifest_name
from streaming.state.parquet import read_parquet
from streaming.state.segment import SEGMENT_SCHEMA, decode_segment
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import LINK, ROWS, check, feed, sink_on, views
from tests.support.tables import table_of

LAST = 4
SECRET = b"nobody may read or change this"
NEWEST, OLDEST = manifest_name(LAST), manifest_name(LAST - 2)


@pytest.fixture(scope="module")
def intact_state(tmp_path_factory):
    state_dir = tmp_path_factory.mktemp("intact") / "state"
    sink = ViewSink(views(), state_dir=state_dir, bad_rows="dead_letter")
    for number in range(LAST + 1):
        rows = table_of(LINK, ROWS[number]).append_column("weight", pa.array(["1", "1"]))
        bad = table_of(LINK, [(0, 0, "x")]).append_column("weight", pa.array(["no"]))
        sink(Frame(pa.concat_tables([rows, bad]), "q"), number)
    sink.close()
    return state_dir


@pytest.fixture
def state_dir(intact_state, tmp_path):
    (tmp_path / "outside").mkdir()
    for name in ("secret", "data.arrow"):
        (tmp_path / "outside" / name).write_bytes(SECRET)
    shutil.copytree(intact_state, tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture(autouse=True)
def files_outside_are_unchanged(state_dir):
    yield
    outside = state_dir.parent / "outside"
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {
        "secret": SECRET,
        "data.arrow": SECRET,
    }


def needed_file(state_dir: Path, folder: str) -> str:
    """Return the name of a file that the newest version needs."""
    manifest = Manifest.decode((state_dir / NEWEST).read_bytes(), NEWEST)
    return next(name for name in manifest.files if name.startswith(folder))


def use_directory(state_dir: Path) -> dict[str, str]:
    """Use the directory in all ways, and return the name of the error of each; empty if none."""
    outcomes = {}

    def feeding(*numbers: int) -> Callable[[], object]:
        def call() -> None:
            sink = sink_on(state_dir)
            try:
                feed(sink, *numbers)
                check(sink, numbers[-1] + 1)
            finally:
                sink.close()

        return call

    calls: dict[str, Callable[[], object]] = {
        "inspect": lambda: inspect_state(state_dir, check=True),
        "rescale": lambda: rescale_state(LocalFiles(state_dir), cells=2),
        "read": lambda: sink_on(state_dir).table("paths"),
        "continue": feeding(LAST + 1, LAST + 2, LAST + 3, LAST + 4),
        "replay": feeding(LAST),
    }
    for name, call in calls.items():
        try:
            call()
        except StreamingError as error:
            outcomes[name] = type(error).__name__
        else:
            outcomes[name] = ""
    return outcomes


class MaliciousObject:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


TARGETS = [
    "state.json",
    "views.json",
    "views.pickle",
    "epoch.json",
    "lock",
    "metrics.jsonl",
    "state.json.tmp",
    "views.json.tmp",
    "epoch.json.tmp",
    NEWEST,
    OLDEST,
    manifest_name(LAST + 1),
    f"{NEWEST}.tmp",
    "data/stray.arrow",
    "data",
    "outputs",
    "dead_letters/00000000000000000004.parquet",
    "DATA",
    "OUTPUT",
]


def target_path(state_dir: Path, name: str) -> Path:
    folders = {"DATA": "data/", "OUTPUT": "outputs/"}
    return state_dir / (needed_file(state_dir, folders[name]) if name in folders else name)


def delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", TARGETS)
def test_no_pickle_is_read_under_any_name(state_dir, name):
    path = target_path(state_dir, name)
    delete(path)
    planted = pickle.dumps(MaliciousObject(state_dir.parent / "outside" / "pwned"))
    path.write_bytes(planted + f"\ncrc32 {zlib.crc32(planted):08x}\n".encode())
    use_directory(state_dir)


def replacements(state_dir: Path) -> dict[str, Callable[[Path], object]]:
    outside = state_dir.parent / "outside"

    def create_socket(path: Path) -> None:
        working_directory = Path.cwd()
        os.chdir(path.parent)  # because paths of sockets have a small maximum length
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path.name)
        finally:
            os.chdir(working_directory)

    def create_sparse_file(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(1 << 42)

    return {
        "link to a file": lambda path: path.symlink_to(outside / "secret"),
        "link to a folder": lambda path: path.symlink_to(outside),
        "link to nothing": lambda path: path.symlink_to(outside / "new"),
        "link to itself": lambda path: path.symlink_to(path),
        "link to a device": lambda path: path.symlink_to("/dev/zero"),
        "FIFO": lambda path: os.mkfifo(path),
        "socket": create_socket,
        "folder": lambda path: path.mkdir(),
        "folder with a file": lambda path: (path.mkdir(), (path / "x").write_bytes(b"x")),
        "4 TiB": create_sparse_file,
        "empty": lambda path: path.write_bytes(b""),
    }


KINDS = list(replacements(Path()))
PAIRS = [(name, kind) for name in TARGETS for kind in KINDS]
# Each file once, with kinds in turn; the other pairs are slow tests.
QUICK_PAIRS = [(name, KINDS[index % len(KINDS)]) for index, name in enumerate(TARGETS)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [pytest.param(*p, marks=[] if p in QUICK_PAIRS else pytest.mark.slow) for p in PAIRS],
)
def test_links_and_special_files_in_place_of_a_file_are_not_followed(state_dir, name, kind):
    path = target_path(state_dir, name)
    delete(path)
    replacements(state_dir)[kind](path)
    outcomes = use_directory(state_dir)
    if name in (NEWEST, "DATA", "data") and kind != "4 TiB":
        assert outcomes["continue"], "the version that is needed is not there"


def nested_lists(levels: int) -> str:
    return "[" * levels + "]" * levels


TEXTS = {
    "a list": "[]",
    "a text": '"x"',
    "null": "null",
    "a number": "1e999",
    "NaN": '{"format": NaN, "epoch": NaN, "batch_id": NaN}',
    "infinity": '{"format": -Infinity, "batch_id": Infinity}',
    "deep nesting": f'{{"format": {nested_lists(100_000)}, "batch_id": 1}}',
    "duplicate keys": '{"format": 1, "format": 1, "batch_id": 4, "batch_id": 4}',
    "a long number": f'{{"format": 1, "epoch": 1{"0" * 10_000}}}',
    "not UTF-8": b'{"format": "\xff\xfe"}',
    "wrong types": '{"format": true, "epoch": [1], "owner": 7, "id": 3, "fingerprints": [1]}',
    "an empty object": "{}",
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "name",
    [
        NEWEST,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("state.json", "views.json", "epoch.json", OLDEST)
        ),
    ],
)
def test_invalid_json_is_a_typed_error(state_dir, name, text):
    content = TEXTS[text]
    line = content if isinstance(content, bytes) else content.encode()
    (state_dir / name).write_bytes(line + f"\ncrc32 {zlib.crc32(line):08x}\n".encode())
    outcomes = use_directory(state_dir)
    if name == NEWEST:
        assert outcomes["continue"] == "StateDamagedError"


NAMES = [
    "../outside/secret",
    "data/../../outside/data.arrow",
    "data/..",
    "data/",
    "data",
    "state.json",
    "/etc/hostname",
    "data//etc/hostname",
    "outputs/../../outside/secret",
    "data/.hidden",
    "data/a\0b",
    "data/" + "a" * 5000,
    "dead_letters/00000000000000000004.parquet",
]


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file, and its checksum with it."""
    body = decode_checked(path.read_bytes(), path.name)
    change(body)
    text = json.dumps(body).encode()
    path.write_bytes(text + f"\ncrc32 {zlib.crc32(text):08x}\n".encode())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("manifest", [NEWEST, OLDEST])
def test_names_in_a_manifest_do_not_lead_out_of_the_directory(state_dir, manifest, name):
    """The sink drops the oldest version with its files when it continues."""

    def add(body: dict[str, Any]) -> None:
        body["files"][name] = [len(SECRET), zlib.crc32(SECRET)]
        body["outputs"]["paths"] = [name]

    forge(state_dir / manifest, add)
    outside = [Path("/etc/hostname")] if Path("/etc/hostname").exists() else []
    outcomes = use_directory(state_dir)
    assert all(path.exists() for path in outside)
    if manifest == NEWEST:
        assert outcomes["continue"] == "StateDamagedError"


def variants(value: Any, change: Callable[[Any], Iterable[Any]]) -> Iterable[Any]:
    """Return copies of a JSON value, each with one part of it changed."""
    yield from change(value)
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: item for name, item in value.items() if name != key}
            for new in variants(part, change):
                yield {**value, key: new}
    elif isinstance(value, list):
        for index, part in enumerate(value):
            for new in variants(part, change):
                yield [*value[:index], new, *value[index + 1 :]]


WRONG_VALUES = [None, True, -1, 2**62, 2**70, 0.5, "x", "../outside/secret", [], {}, [[]]]


def test_a_manifest_with_any_wrong_value_is_read_or_a_typed_error(state_dir):
    data = (state_dir / NEWEST).read_bytes()
    body = decode_checked(data, NEWEST)
    rng = np.random.default_rng(0)
    forged = [*variants(body, lambda part: WRONG_VALUES)]
    for number in rng.permutation(len(forged))[:250]:
        text = encode_checked(forged[number]) if isinstance(forged[number], dict) else b""
        (state_dir / NEWEST).write_bytes(text)
        sink = sink_on(LocalFiles(state_dir))
        with contextlib.suppress(StreamingError):
            sink.table("paths")
    (state_dir / NEWEST).write_bytes(data)


def test_dropping_a_version_with_any_wrong_value_removes_nothing_else(state_dir):
    body = decode_checked((state_dir / OLDEST).read_bytes(), OLDEST)
    before = sorted(path.name for path in (state_dir / "dead_letters").iterdir())
    forged = [
        *variants({"files": body["files"], "outputs": body["outputs"]}, lambda part: WRONG_VALUES)
    ]
    for number, changes in enumerate(forged[:: max(1, len(forged) // 30)]):
        if not isinstance(changes, dict):
            continue
        copy = state_dir.parent / f"copy {number}"
        shutil.copytree(state_dir, copy)
        (copy / OLDEST).write_bytes(encode_checked({**body, **changes}))
        sink = sink_on(copy)
        feed(sink, LAST + 1, LAST + 2)
        check(sink, LAST + 3)
        sink.close()
        assert sorted(path.name for path in (copy / "dead_letters").iterdir()) == before
        shutil.rmtree(copy)


def forge_segment(state_dir: Path, change: Callable[[bytes], bytes]) -> None:
    """Change a data file of the newest version, and its checksum with it."""
    name = needed_file(state_dir, "data/")
    data = change((state_dir / name).read_bytes())
    (state_dir / name).write_bytes(data)
    for number in range(LAST - 2, LAST + 1):
        forge(
            state_dir / manifest_name(number),
            lambda body: body["files"].update(
                {name: [len(data), zlib.crc32(data)]} if name in body["files"] else {}
            ),
        )


def test_positions_outside_of_a_segment_are_typed_errors(state_dir):
    """Compiled code reads the rows at these positions."""
    rng = np.random.default_rng(1)
    data = (state_dir / needed_file(state_dir, "data/")).read_bytes()
    outcomes = set()
    for _ in range(40):
        copy = state_dir.parent / "copy"
        shutil.copytree(state_dir, copy)
        offset = 8 * int(rng.integers(1, len(data) // 8 - 1))
        word = int(rng.choice([-1, 0, 1, 7, 2**20, 2**40, -(2**62), 2**62]))
        forge_segment(copy, lambda d, offset=offset, word=word: replace_word(d, offset, word))
        try:
            feed(sink := ViewSink(views(), state_dir=copy), LAST + 1)
        except StreamingError as error:
            outcomes.add(type(error).__name__)
        finally:
            sink.close()
        shutil.rmtree(copy)
    assert "StateDamagedError" in outcomes


def replace_word(data: bytes, offset: int, word: int) -> bytes:
    return data[:offset] + word.to_bytes(8, "little", signed=True) + data[offset + 8 :]


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_segment_is_refused_before_it_is_decompressed(codec):
    bomb = pa.array([np.zeros(1 << 20, np.int64)], SEGMENT_SCHEMA.field("words").type)
    batch = pa.record_batch([["x"], bomb, [b""]], schema=SEGMENT_SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(
        sink, SEGMENT_SCHEMA, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as out:
        out.write_batch(batch)
    data = memoryview(bytearray(sink.getvalue()))
    assert len(data) < 1 << 17
    with pytest.raises(StateDamagedError, match="not an uncompressed record batch"):
        decode_segment(data, "data/bomb.arrow")


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"compression": "gzip", "use_dictionary": False},
        {"compression": "none"},  # with dictionaries
    ],
)
def test_a_compressed_parquet_file_is_refused_before_it_is_decompressed(options):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"s": ["a" * 1000] * 10_000}), sink, **options)
    with pytest.raises(StateDamagedError, match="is compressed"):
        read_parquet(sink.getvalue(), "outputs/bomb.parquet")


def test_a_parquet_file_with_too_many_rows_for_its_bytes_is_refused():
    sink = pa.BufferOutputStream()
    table = pa.table({"n": pa.nulls(1 << 24, pa.int64())})
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    with pytest.raises(StateDamagedError, match="16777216 rows in"):
        read_parquet(sink.getvalue(), "outputs/bomb.parquet")


@pytest.mark.parametrize("data", [b"", b"ARROW1\0\0", b"ARROW1\0\0" + b"\xff" * 64, b"PAR1" * 9])
def test_a_file_that_is_not_a_segment_or_parquet_is_a_typed_error(data):
    with pytest.raises(StateDamagedError, match="is not a segment"):
        decode_segment(memoryview(bytearray(data)), "x")
    with pytest.raises(StateDamagedError, match="is not a Parquet file"):
        read_parquet(data, "x")


def test_a_changed_view_definition_is_refused(state_dir):
    for change in (
        lambda body: body["source"].update(text="SELECT src FROM link"),
        lambda body: body["source"].update(text="DROP TABLE link"),
        lambda body: body["source"].update(text="(" * 20_000),
        lambda body: body["source"].update(language="python"),
        lambda body: body["source"].update(more=1),
        lambda body: body.update(schemas={"link": "!!"}),
        lambda body: body.update(schemas={"link": base64.b64encode(b"\xff" * 200).decode()}),
        lambda body: body.update(schemas=[1]),
        lambda body: body["options"].update(plans={}),
        lambda body: body["options"].update(input_options={"link": {"keys": "src"}}),
        lambda body: body["options"].update(
            input_options={"link": {"retain": {"duration": {"x": 1}}}}
        ),
        lambda body: body["options"].update(materialize=[7]),
        lambda body: body["options"].update(max_iterations={"a": 1}),
        lambda body: body.pop("source"),
    ):
        data = (state_dir / "views.json").read_bytes()
        forge(state_dir / "views.json", change)
        with pytest.raises(StateError):
            rescale_state(LocalFiles(state_dir), cells=2)
        (state_dir / "views.json").write_bytes(data)


def test_view_definitions_are_stored_as_text_that_compiles_to_the_same_circuit(tmp_path):
    circuit = compile_sql(
        "SELECT city, count(*) AS n FROM link GROUP BY city",
        {"link": LINK},
        name="per_city",
        input_options={"link": InputOptions(keys=("src", "dst"))},
        formula="auto",
    )
    sink = ViewSink(circuit, state_dir=tmp_path)
    feed(sink, 0)
    sink.close()
    body = decode_checked(read_small_file(LocalFiles(tmp_path), "views.json"), "views.json")
    assert body["source"]["text"].startswith("SELECT city") and body["source"]["name"] == "per_city"
    assert body["options"]["input_options"]["link"]["keys"] == ["src", "dst"]
    assert b"\x80" not in (tmp_path / "views.json").read_bytes()  # the first byte of a pickle
    assert rescale_state(LocalFiles(tmp_path), cells=2).after == 2
