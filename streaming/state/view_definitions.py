"""View definitions: the text, schemas and options of the views, in the file ``views.json``.

A query has its own circuit and does not need the file. A command that works on the directory
without the query, such as `streaming.distributed.rescaling`, compiles the views from the file
again::

    {"format": 2,
     "source": {"language": "sql", "text": ..., "name": ..., "dialect": ...},
     "schemas": {"e": <an Arrow IPC schema message in base64>},
     "options": {"outputs": [...], "formula": ..., "input_options": {...}, ...},
     "functions": {"score": "(double) -> double"}}

The member ``functions`` is there only if the views call user-defined functions. It has their
declarations, not their code: a program that opens the directory passes the functions.

So nothing in a state directory is executable: no pickle is written or read. The compiled views must
have the fingerprints that ``state.json`` contains; the caller compares them.

A circuit that was built from plans has no query text. Its file has ``"source": null``, and a
command that needs the views raises an error that says so. Directories of earlier versions have a
``views.pickle`` instead. It is never read; the first start of the query writes ``views.json``
beside it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from circuits.circuit import Circuit
from circuits.circuit_spec import CircuitSpec, SourceText
from circuits.compile import plans_of
from circuits.inputs.input_options import InputOptions, Lateness, Retention
from circuits.options import CircuitOptions
from circuits.user_functions import UserFunction
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.planning.formula_candidates import parse_formula
from streaming.errors import StateDamagedError, StateError, StateMismatchError
from streaming.state.checksums import decode_checked, encode_checked
from streaming.state.files import Files, read_small_file, replace_atomically

__all__ = [
    "DEFINITION_FILE",
    "check_definition",
    "encode_definition",
    "read_definition",
    "write_definition",
]

DEFINITION_FILE: Final = "views.json"
OLD_PICKLE_FILE: Final = "views.pickle"
FORMAT_VERSION: Final = 2
#: Options of earlier versions that changed how a step was computed, but no result.
OLD_OPTIONS: Final = ("parts",)
MICROSECOND: Final = timedelta(microseconds=1)
HOW_TO_WRITE: Final = "start the query once with this version, which writes the file"


def write_definition(files: Files, spec: CircuitSpec) -> None:
    """Write the file, unless it already has this content.

    Raises:
        OSError: The file system failed.
    """
    data = encode_definition(spec)
    try:
        if read_small_file(files, DEFINITION_FILE) == data:
            return
    except OSError:
        pass  # missing, too long or not a regular file: replaced below, or an error there
    replace_atomically(files, DEFINITION_FILE, data)


def check_definition(files: Files, spec: CircuitSpec) -> None:
    """Check that views have the dialect and the user-defined functions of the directory.

    A directory without a readable file is accepted: the fingerprints of the views are compared
    in any case (`streaming.state.directory_identity`), but do not tell why they differ.

    Raises:
        StateMismatchError: The views are in another dialect of SQL, or call user-defined functions
            that are missing or have other declarations.
    """
    path = f"{files.location}/{DEFINITION_FILE}"
    try:
        body = decode_checked(read_small_file(files, DEFINITION_FILE), path)
    except (OSError, StateDamagedError):
        return
    source = body.get("source")
    if spec.source is not None and isinstance(source, Mapping):
        dialects = source.get("dialect"), spec.source.dialect
        if spec.source.language == source.get("language") == "sql" and dialects[0] != dialects[1]:
            raise StateMismatchError(
                f"state directory {files.location} has views in SQL dialect {dialects[0]!r}, and "
                f"these views are in dialect {dialects[1]!r}, in which the same text can mean "
                f"something else: use dialect {dialects[0]!r}, or a new state directory and a new "
                "checkpoint"
            )
    given = {name: function.signature for name, function in spec.functions.items()}
    _check_signatures(files, body, {**given, **spec.user_signatures})


def _check_signatures(files: Files, body: Mapping[str, Any], signatures: Mapping[str, str]) -> None:
    """Raise an error if the functions of a directory are missing or have other declarations."""
    stored = body.get("functions", {})
    if not isinstance(stored, Mapping):
        return
    missing = [name for name in stored if name not in signatures]
    if missing:
        raise StateMismatchError(
            f"state directory {files.location}: its views call the user-defined functions "
            f"{', '.join(f'{name}{stored[name]}' for name in missing)}, which are not given: give "
            "them (functions= in Python, --functions on the command line), or a new state "
            "directory and a new checkpoint"
        )
    for name, signature in stored.items():
        if signature != signatures[name]:
            raise StateMismatchError(
                f"state directory {files.location}: the user-defined function {name} was declared "
                f"as {signature} and is now {signatures[name]}: use the declaration that the state "
                "was made with, or a new state directory and a new checkpoint"
            )


def read_definition(
    files: Files,
    functions: Mapping[str, UserFunction] | None = None,
    *,
    name: str = DEFINITION_FILE,
) -> CircuitSpec:
    """Compile the views from the file.

    Args:
        files: The state directory.
        functions: The user-defined functions that the views call, by lower-case name.
        name: The name of the file.

    Raises:
        StateError: The file does not exist, or the circuit was built from plans.
        StateDamagedError: The file is damaged, or its text does not compile.
        StateMismatchError: A newer version of the package wrote the file, or a function is missing
            or has another declaration.
        OSError: The file system failed.
    """
    functions = functions or {}
    path = f"{files.location}/{name}"
    if files.size(name) is None:
        remark = ""
        if files.size(OLD_PICKLE_FILE) is not None:
            remark = f" ({OLD_PICKLE_FILE}, of an earlier version, is not read)"
        raise StateError(f"{path} is missing{remark}: {HOW_TO_WRITE}")
    body = decode_checked(read_small_file(files, name), path)
    if body.get("format") != FORMAT_VERSION:
        raise StateMismatchError(
            f"{path} has format {body.get('format')!r}, this version reads {FORMAT_VERSION}: use "
            "the version that wrote it"
        )
    if "source" in body and body["source"] is None:
        raise StateError(
            f"{path}: the views were built from plans and have no text that can be compiled "
            "again: call streaming.distributed.rescaling.rescale_state(files, cells=..., "
            "spec=circuit.spec) from Python"
        )
    _check_signatures(files, body, {name: f.signature for name, f in functions.items()})
    try:
        return _compile(body, functions)
    except (
        AttributeError,
        DbspWcojError,
        KeyError,
        MemoryError,
        OSError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
        pa.ArrowException,
    ) as error:
        raise StateDamagedError(
            f"{path} cannot be compiled ({type(error).__name__}: {error}): remove it and "
            f"{HOW_TO_WRITE}"
        ) from error


def encode_definition(spec: CircuitSpec) -> bytes:
    """Return the content of the file."""
    schemas = {
        name: base64.b64encode(schema.serialize()).decode() for name, schema in spec.schemas.items()
    }
    options, source = _to_json(spec.options), _to_json(spec.source)
    body = {"format": FORMAT_VERSION, "source": source, "schemas": schemas, "options": options}
    signatures = spec.user_signatures
    return encode_checked({**body, "functions": signatures} if signatures else body)


def _to_json(value: Any) -> Any:
    """Convert an option to a value of JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        # A field without `compare` does not change the views, so it is not stored.
        names = [field.name for field in fields(value) if field.compare]
        return {name: _to_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: _to_json(member) for name, member in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(element) for element in value]
    if isinstance(value, timedelta):
        return {"microseconds": value // MICROSECOND}
    return str(value) if isinstance(value, str) else value  # a member of a StrEnum as plain text


def _compile(body: Mapping[str, Any], functions: Mapping[str, UserFunction]) -> CircuitSpec:
    """Compile the views from the parsed content of the file."""
    source = SourceText(**body["source"])
    schemas = {
        name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        for name, text in body["schemas"].items()
    }
    options = {
        name: _parse_option(name, value)
        for name, value in body["options"].items()
        if name not in OLD_OPTIONS
    }
    plans = plans_of(source, schemas, functions)
    spec = CircuitSpec(plans, schemas, CircuitOptions(**options), source, dict(functions))
    Circuit(spec)  # raises an error if an option is invalid
    return spec


def _parse_option(name: str, value: Any) -> Any:
    """Convert a value of JSON to the type of the option's field."""
    if name == "input_options":
        return {relation: _parse_input_options(members) for relation, members in value.items()}
    if name == "formula":
        return parse_formula(value)
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        default = next(field.default for field in fields(CircuitOptions) if field.name == name)
        if not is_dataclass(default) or isinstance(default, type):
            raise TypeError(f"option {name!r} must not be an object")
        return type(default)(**value)  # an option whose value is a dataclass, such as `limits`
    return value


def _parse_input_options(members: Mapping[str, Any]) -> InputOptions:
    values = dict(members)
    if values.get("retain") is not None:
        values["retain"] = Retention(**_with_timedelta(values["retain"]))
    if values.get("lateness") is not None:
        values["lateness"] = Lateness(**_with_timedelta(values["lateness"]))
    return InputOptions(**values)


def _with_timedelta(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a retention or lateness; its duration may be an object of JSON."""
    values = dict(members)
    if isinstance(values["duration"], dict):
        values["duration"] = timedelta(**values["duration"])
    return values
