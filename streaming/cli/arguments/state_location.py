"""State location: where ``run`` keeps the state of the views, and Spark's checkpoint.

The state is in a folder of a local disk, or on S3. Spark keeps its checkpoint on a local disk: by
default in the folder of the state, and in the folder of ``--checkpoint`` if the state is on S3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.errors import StateError
from streaming.state.files import AtomicFiles, Files
from streaming.state.local_files import LocalFiles
from streaming.state.open_files import open_files
from streaming.targets.folder_checks import check_writable

__all__ = ["CHECKPOINT", "StateLocation", "check_folder"]

#: The folder of Spark's checkpoint in the folder of ``--state``.
CHECKPOINT: Final = "checkpoint"
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True)
class StateLocation:
    """The location of a state directory.

    Attributes:
        text: The location as the user wrote it.
        files: The files of the directory.
        folder: The path of the directory on a local disk; None if it is on S3.
    """

    text: str
    files: Files
    folder: Path | None

    @staticmethod
    def parse(text: str, label: str = "--state") -> StateLocation:
        """Return the location of a state directory, which may not exist yet.

        Args:
            text: A path, or a URI such as ``s3://bucket/folder``.
            label: The name of the option in error messages.

        Raises:
            StateError: The text does not name a folder, or names one on a file system that is
                neither a local disk nor S3.
        """
        if text.strip("/") in ("", "."):
            raise StateError(
                f"{label} {text}: name a folder of its own, as in --state state/, since state and "
                "checkpoint have many files"
            )
        files = open_files(text)
        if isinstance(files, LocalFiles):
            return StateLocation(text, files, Path(files.location))
        if not isinstance(files, AtomicFiles):
            raise StateError(
                f"{label} {text}: the command keeps state on a local disk or on S3; for other file "
                "systems write a job with ViewSink(state_dir=...)"
            )
        return StateLocation(text, files, None)

    def checkpoint(self, given: Path | None, label: str = "--checkpoint") -> Path:
        """Return the folder of Spark's checkpoint.

        Args:
            given: The value of ``--checkpoint``; None if the option is missing.
            label: The name of this option in error messages.

        Raises:
            StateError: The value is a URI; or it is missing, and the state is on S3.
        """
        if given is not None and _URI.match(str(given)):
            raise StateError(f"{label} {given}: name a folder on a local disk, or a mounted one")
        if given is not None:
            return given
        if self.folder is None:
            raise StateError(
                f"{label} is missing, and Spark cannot keep its checkpoint in {self.text}: name a "
                f"folder on a local disk that outlives the job, as in {label} checkpoint/"
            )
        return self.folder / CHECKPOINT


def check_folder(folder: Path, label: str) -> None:
    """Check that a folder can be created, or that files can be created in it.

    Raises:
        StateError: It is a file, or this user may not write to it.
    """
    if folder.exists() and not folder.is_dir():
        raise StateError(f"{label} {folder}: is a file; name a folder")
    try:
        check_writable(folder)
    except OSError as error:
        raise StateError(
            f"{label} {folder}: {error.filename} {error.strerror}: name a folder that this "
            "user may write to"
        ) from None
