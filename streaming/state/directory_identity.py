"""Directory identity: the views and inputs of a state directory, in its file ``state.json``.

The identity consists of

- an id, by which targets distinguish the micro-batches of different directories;
- a fingerprint (a hash of the definition) of each view and input, so that an error can name the
  views and inputs that differ. The delta formula of joins and the number of threads may differ.

Each manifest contains the id and one fingerprint of the whole circuit. So a lost or damaged
``state.json`` can be written again for the same circuit.

A clone (`streaming.state.clone`) writes the identity first, with `UNFINISHED_CLONE` in place of the
format. Until it has written its manifest, no version of the package takes the directory for an
empty one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from circuits import Circuit
from streaming.errors import StateDamagedError, StateMismatchError
from streaming.state.checksums import decode_checked, encode_checked, parse_items, parse_text
from streaming.state.files import Files, create_atomically, read_small_file, replace_atomically
from streaming.state.manifest import list_batch_ids, manifest_name, read_manifest

__all__ = [
    "FORMAT_VERSION",
    "IDENTITY_FILE",
    "READABLE_FORMATS",
    "UNFINISHED_CLONE",
    "DirectoryIdentity",
    "check_not_unfinished",
    "check_same_circuit",
    "ensure_identity",
    "find_identity",
    "has_same_relations",
    "read_identity",
    "update_identity",
    "upgrade_identity",
]

FORMAT_VERSION: Final = 8
#: The formats that this version reads. Format 8 may have runs with narrow values
#: (`dbsp_wcoj.kernels.storage.run_layout`), and is like format 7 otherwise.
READABLE_FORMATS: Final = (7, FORMAT_VERSION)
IDENTITY_FILE: Final = "state.json"
UNFINISHED_CLONE: Final = "unfinished clone"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DirectoryIdentity:
    """The circuit that a state directory belongs to.

    Attributes:
        format: The version of the layout of the directory.
        id: Unique to the directory.
        fingerprints: One for each input and view, and one for the list of materialized views.
        inputs: The columns of each input, for messages.
    """

    format: int
    id: str
    fingerprints: Mapping[str, str]
    inputs: Mapping[str, str]


def ensure_identity(files: Files, circuit: Circuit, new_id: str) -> DirectoryIdentity:
    """Return the identity of a directory; write one if the directory is new or has lost it.

    The directory may belong to other views: its versions tell (`streaming.state.program_change`).

    Raises:
        StateMismatchError: A newer version of the package wrote the directory.
        StateDamagedError: As for `read_identity`.
    """
    # If a clone did not write the identity again after its manifest, it is written here.
    existing, is_written = _read(files, circuit)
    identity = existing or _identity_of(circuit, new_id)
    if existing is None:
        # Two sinks may start in a new directory at the same time, and both must use one id.
        if not create_atomically(files, IDENTITY_FILE, encode_checked(asdict(identity))):
            return ensure_identity(files, circuit, new_id)
        files.sync_folder("")
    elif not is_written:
        _write(files, identity)
    return identity


def upgrade_identity(files: Files, identity: DirectoryIdentity) -> DirectoryIdentity:
    """Return the identity with the current format, and write it if it had an earlier one.

    Call it immediately before a manifest is committed: earlier versions of the package refuse the
    directory from then on, and the errors before that may advise to go back to one.

    Raises:
        OSError: The file system failed.
    """
    if identity.format == FORMAT_VERSION:
        return identity
    log.warning(
        "%s is raised from format %s to %s: earlier versions of the package cannot open it",
        files.location,
        identity.format,
        FORMAT_VERSION,
    )
    identity = replace(identity, format=FORMAT_VERSION)
    _write(files, identity)
    return identity


def update_identity(
    files: Files, circuit: Circuit, identity: DirectoryIdentity
) -> DirectoryIdentity:
    """Write that a directory belongs to a circuit, unless its file says so; return its identity.

    Raises:
        OSError: The file system failed.
    """
    new = replace(_identity_of(circuit, identity.id), format=identity.format)
    if new != identity:
        _write(files, new)
    return new


def _write(files: Files, identity: DirectoryIdentity) -> None:
    replace_atomically(files, IDENTITY_FILE, encode_checked(asdict(identity)))
    files.sync_folder("")


def find_identity(files: Files, circuit: Circuit) -> DirectoryIdentity | None:
    """Return the identity of a directory, which may be of other views; None if it has none yet.

    Raises:
        StateMismatchError: A newer version of the package wrote the directory.
        StateDamagedError: As for `read_identity`.
    """
    return _read(files, circuit)[0]


def read_identity(files: Files, circuit: Circuit) -> DirectoryIdentity | None:
    """Return the identity of a directory; None if it has none yet.

    Raises:
        StateMismatchError: The directory belongs to other views, or to a newer version.
        StateDamagedError: The file was changed, or is missing while there are manifests, and these
            are not of this circuit; or the directory is an unfinished clone.
    """
    identity = _read(files, circuit)[0]
    if identity is not None and not _is_of_newest_version(files, circuit):
        check_same_circuit(files, identity, circuit)
    return identity


def _is_of_newest_version(files: Files, circuit: Circuit) -> bool:
    """Return True if the newest version is of a circuit.

    After a crash in a change of the views, it can be of other views than the file.
    """
    for batch_id in reversed(list_batch_ids(files)):
        try:
            return read_manifest(files, batch_id).fingerprint == circuit.fingerprint
        except (StateDamagedError, FileNotFoundError):
            continue
    return False


def _read(files: Files, circuit: Circuit) -> tuple[DirectoryIdentity | None, bool]:
    """Return the identity, from the file or from a manifest, and whether the file has it."""
    path = f"{files.location}/{IDENTITY_FILE}"
    if files.size(IDENTITY_FILE) is None:
        if not list_batch_ids(files):
            return None, False
        error = StateDamagedError(
            f"{path} is missing though there are manifests: restore it from a copy, or delete the "
            "state directory together with the checkpoint"
        )
        return _recover(files, circuit, error), False
    try:
        body = decode_checked(read_small_file(files, IDENTITY_FILE), path)
    except StateDamagedError as error:
        return _recover(files, circuit, error), False
    is_clone = body.get("format") == UNFINISHED_CLONE
    if is_clone:
        check_not_unfinished(files)
        body["format"] = FORMAT_VERSION
    if body.get("format") not in READABLE_FORMATS or type(body["format"]) is not int:
        readable = " and ".join(map(str, READABLE_FORMATS))
        raise StateMismatchError(
            f"state directory {files.location} has format {str(body.get('format'))[:50]}, this "
            f"version reads {readable}: use the version that wrote it, or delete the "
            "directory together with the checkpoint to start again"
        )
    try:
        identity = DirectoryIdentity(
            body["format"],
            parse_text(body["id"]),
            {name: parse_text(text) for name, text in parse_items(body["fingerprints"])},
            {name: parse_text(text) for name, text in parse_items(body["inputs"])},
        )
    except (KeyError, ValueError) as error:
        damage = StateDamagedError(
            f"{path} is not a valid identity ({type(error).__name__}: {error}): restore it "
            "from a copy"
        )
        return _recover(files, circuit, damage), False
    return identity, not is_clone


def check_not_unfinished(files: Files) -> None:
    """Check that a directory is not a clone whose manifest was not written.

    Raises:
        StateDamagedError: It is one.
        OSError: The file system failed.
    """
    if list_batch_ids(files) or files.size(IDENTITY_FILE) is None:
        return
    path = f"{files.location}/{IDENTITY_FILE}"
    try:
        body: Any = decode_checked(read_small_file(files, IDENTITY_FILE), path)
    except StateDamagedError:
        return  # is reported when the directory is opened
    if body.get("format") == UNFINISHED_CLONE:
        raise StateDamagedError(
            f"state directory {files.location} has only a part of another one, of an interrupted "
            "clone: delete it, and clone the other one again"
        )


def _recover(files: Files, circuit: Circuit, error: StateDamagedError) -> DirectoryIdentity:
    """Return the identity from the newest intact manifest, if it is of this circuit."""
    for number in reversed(list_batch_ids(files)):
        try:
            manifest = read_manifest(files, number)
        except StateDamagedError:
            continue
        if manifest.fingerprint != circuit.fingerprint:
            break
        name = manifest_name(number)
        log.warning("%s; recovered from %s, which is of the same circuit", error, name)
        return _identity_of(circuit, manifest.state_id)
    raise error


def _identity_of(circuit: Circuit, id: str) -> DirectoryIdentity:
    columns = {
        name: ", ".join(
            f"{field.name} {field.type}{'' if field.nullable else ' not null'}"
            for field in schema.fields
        )
        for name, schema in circuit.inputs.items()
    }
    return DirectoryIdentity(FORMAT_VERSION, id, dict(circuit.fingerprints), columns)


def has_same_relations(identity: DirectoryIdentity, circuit: Circuit) -> bool:
    """Return True if a directory has the views and inputs of a circuit, maybe by other plans."""
    other = _identity_of(circuit, identity.id)
    return (
        identity.fingerprints.keys() == other.fingerprints.keys()
        and identity.inputs == other.inputs
    )


def check_same_circuit(files: Files, identity: DirectoryIdentity, circuit: Circuit) -> None:
    """Check that a directory belongs to the views and inputs of a circuit.

    Raises:
        StateMismatchError: It belongs to others; the message names those that differ.
    """
    expected, stored = dict(circuit.fingerprints), dict(identity.fingerprints)
    if expected == stored:
        return
    columns = _identity_of(circuit, "").inputs
    differences = []
    for name in sorted({*expected, *stored}):
        if name not in stored:
            differences.append(f"{name} is new")
        elif name not in expected:
            differences.append(f"{name} was removed")
        elif expected[name] != stored[name]:
            relation = name.removeprefix("input ")
            was, now = identity.inputs.get(relation), columns.get(relation)
            has_new_columns = name.startswith("input ") and was != now
            differences.append(
                f"{name} was ({was}) and is ({now})" if has_new_columns else f"{name} has changed"
            )
    raise StateMismatchError(
        f"state directory {files.location} belongs to another circuit: {'; '.join(differences)}. "
        "Use the views, schemas and input options that it was made with (their order, formula and "
        "threads may change), or give the new circuit a new state directory and a new checkpoint"
    )
