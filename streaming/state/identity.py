"""Identity: what a state directory belongs to, in its file ``state.json``.

The state is that of certain views over certain inputs, whatever the formula or the number of
threads. The identity has a fingerprint of each of them, so that an error can name what differs, and
an id of its own, by which targets tell one directory's micro-batches from another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from circuits import Circuit
from streaming.errors import StateDamagedError, StateMismatchError
from streaming.state.files import Files
from streaming.state.manifest import sealed, unsealed

__all__ = ["FORMAT", "Identity", "identified", "identity_of"]

FORMAT: Final = 1
NAME: Final = "state.json"


@dataclass(frozen=True)
class Identity:
    """What a state directory belongs to.

    Attributes:
        format: The version of the layout of the directory.
        id: Unlike that of any other directory.
        fingerprints: One for each input and view, and for what is materialized.
        inputs: The columns of each input, for messages.
    """

    format: int
    id: str
    fingerprints: Mapping[str, str]
    inputs: Mapping[str, str]


def identified(files: Files, circuit: Circuit, new_id: str) -> Identity:
    """The identity of a directory, which is given one if it is new.

    Raises:
        StateMismatchError, StateDamagedError: As for `identity_of`.
    """
    found = identity_of(files, circuit)
    if found is not None:
        return found
    identity = Identity(FORMAT, new_id, dict(circuit.fingerprints), _columns(circuit))
    files.write(f"{NAME}.tmp", [sealed(asdict(identity))])
    files.sync(f"{NAME}.tmp")
    files.rename(f"{NAME}.tmp", NAME)
    files.sync_folder("")
    return identity


def identity_of(files: Files, circuit: Circuit) -> Identity | None:
    """The identity of a directory; None if it has none yet.

    Raises:
        StateMismatchError: The directory belongs to other views, or to a newer version.
        StateDamagedError: The file was changed, or is gone while there are manifests.
    """
    if files.size(NAME) is None:
        if files.names("manifests"):
            raise StateDamagedError(
                f"{files.location}/{NAME} is missing though there are manifests: restore it from "
                "a copy, or delete the state directory together with the checkpoint"
            )
        return None
    body = unsealed(bytes(files.read(NAME)), f"{files.location}/{NAME}")
    if body.get("format") != FORMAT:
        raise StateMismatchError(
            f"state directory {files.location} has format {body.get('format')}, this version "
            f"reads {FORMAT}: use the version that wrote it, or delete the directory together "
            "with the checkpoint to begin anew"
        )
    identity = Identity(body["format"], body["id"], body["fingerprints"], body["inputs"])
    _check(files, identity, circuit, _columns(circuit))
    return identity


def _columns(circuit: Circuit) -> dict[str, str]:
    return {
        name: ", ".join(
            f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema.fields
        )
        for name, schema in circuit.inputs.items()
    }


def _check(files: Files, identity: Identity, circuit: Circuit, columns: Mapping[str, str]) -> None:
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
        "Use the views, schemas and rules that it was made with (formula and threads may "
        "change), or give the new circuit a new state directory and a new checkpoint"
    )
