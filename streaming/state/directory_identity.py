"""Directory identity: the views and inputs of a state directory, in its file ``state.json``.

The state depends on the views and inputs, not on the formula or the number of threads. The identity
has a fingerprint of each view and input, so that an error can name the difference, and an id, by
which targets distinguish the micro-batches of different directories. The order of
inputs and views counts, as operators, and with them parts of state, are named by their place.

Each manifest has the id and one fingerprint of the circuit, so that a lost or damaged file can be
written again for that circuit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from circuits import Circuit
from streaming.errors import StateDamagedError, StateMismatchError
from streaming.state.checksums import decode_checked, encode_checked, parse_items, parse_text
from streaming.state.files import Files, read_small_file, replace_atomically
from streaming.state.manifest import MANIFESTS, list_batch_ids, manifest_name, read_manifest

__all__ = ["FORMAT_VERSION", "DirectoryIdentity", "ensure_identity", "read_identity"]

FORMAT_VERSION: Final = 3
IDENTITY_FILE: Final = "state.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DirectoryIdentity:
    """The circuit that a state directory belongs to.

    Attributes:
        format: The version of the layout of the directory.
        id: Unique to the directory.
        fingerprints: One for each input and view, and for what is materialized.
        inputs: The columns of each input, for messages.
    """

    format: int
    id: str
    fingerprints: Mapping[str, str]
    inputs: Mapping[str, str]


def ensure_identity(files: Files, circuit: Circuit, new_id: str) -> DirectoryIdentity:
    """Return the identity of a directory; write one if the directory is new or has lost it.

    Raises:
        StateMismatchError, StateDamagedError: As for `read_identity`.
    """
    found, is_written = _found(files, circuit)
    identity = found or _of(circuit, new_id)
    if not is_written:
        replace_atomically(files, IDENTITY_FILE, encode_checked(asdict(identity)))
        files.sync_folder("")
    return identity


def read_identity(files: Files, circuit: Circuit) -> DirectoryIdentity | None:
    """Return the identity of a directory; None if it has none yet.

    Raises:
        StateMismatchError: The directory belongs to other views, or to a newer version.
        StateDamagedError: The file was changed, or is missing while there are manifests, and these
            are not of this circuit.
    """
    return _found(files, circuit)[0]


def _found(files: Files, circuit: Circuit) -> tuple[DirectoryIdentity | None, bool]:
    """Return the identity, and whether the file has it."""
    path = f"{files.location}/{IDENTITY_FILE}"
    if files.size(IDENTITY_FILE) is None:
        if not files.names(MANIFESTS):
            return None, False
        error = StateDamagedError(
            f"{path} is missing though there are manifests: restore it from a copy, or delete the "
            "state directory together with the checkpoint"
        )
        return _recovered(files, circuit, error), False
    try:
        body = decode_checked(read_small_file(files, IDENTITY_FILE), path)
    except StateDamagedError as error:
        return _recovered(files, circuit, error), False
    if body.get("format") != FORMAT_VERSION or isinstance(body["format"], bool):
        raise StateMismatchError(
            f"state directory {files.location} has format {str(body.get('format'))[:50]}, this "
            f"version reads {FORMAT_VERSION}: use the version that wrote it, or delete the "
            "directory together with the checkpoint to start again"
        )
    try:
        identity = DirectoryIdentity(
            FORMAT_VERSION,
            parse_text(body["id"]),
            {name: parse_text(one) for name, one in parse_items(body["fingerprints"])},
            {name: parse_text(one) for name, one in parse_items(body["inputs"])},
        )
    except (KeyError, ValueError) as error:
        damage = StateDamagedError(
            f"{path} is no identity of this version ({type(error).__name__}: {error}): restore it "
            "from a copy"
        )
        return _recovered(files, circuit, damage), False
    _check(files, identity, circuit)
    return identity, True


def _recovered(files: Files, circuit: Circuit, error: StateDamagedError) -> DirectoryIdentity:
    """Return the identity from the newest intact manifest, if it is of this circuit."""
    for number in reversed(list_batch_ids(files)):
        try:
            manifest = read_manifest(files, number)
        except StateDamagedError:
            continue
        if manifest.fingerprint != circuit.fingerprint:
            break
        name = manifest_name(number)
        log.warning("%s; not needed, as %s is of the same circuit", error, name)
        return _of(circuit, manifest.state_id)
    raise error


def _of(circuit: Circuit, id: str) -> DirectoryIdentity:
    columns = {
        name: ", ".join(
            f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema.fields
        )
        for name, schema in circuit.inputs.items()
    }
    return DirectoryIdentity(FORMAT_VERSION, id, dict(circuit.fingerprints), columns)


def _check(files: Files, identity: DirectoryIdentity, circuit: Circuit) -> None:
    columns = _of(circuit, "").inputs
    mine, theirs = dict(circuit.fingerprints), dict(identity.fingerprints)
    if mine == theirs:
        return
    differences = []
    for name in sorted({*mine, *theirs}):
        if name not in theirs:
            differences.append(f"{name} is new")
        elif name not in mine:
            differences.append(f"{name} is gone")
        elif mine[name] != theirs[name]:
            known = name.removeprefix("input ")
            was, now = identity.inputs.get(known), columns.get(known)
            changed = name != known and was != now
            differences.append(
                f"{name} was ({was}) and is ({now})" if changed else f"{name} is another one"
            )
    raise StateMismatchError(
        f"state directory {files.location} belongs to another circuit: {'; '.join(differences)}. "
        "Use the views, schemas and rules that it was made with (their order, formula and threads "
        "may change), or give the new circuit a new state directory and a new checkpoint"
    )
