"""The sub-command ``clone``: copy a state directory, to run other views beside it."""

from __future__ import annotations

from streaming.cli.arguments.state_location import CHECKPOINT
from streaming.cli.terminal.display import console, print_json, size
from streaming.state.clone import clone_state

__all__ = ["clone"]


def clone(*, state_dir: str, copy: str, json: bool) -> None:
    """Copy the state of a stopped query, to run it with other views and new targets beside it."""
    result = clone_state(state_dir, copy, folders=(CHECKPOINT,))
    if json:
        print_json(
            {
                "batch": result.batch_id,
                "id": result.id,
                "linked_bytes": result.linked_bytes,
                "copied_bytes": result.copied_bytes,
                "copied_folders": list(result.folders),
            }
        )
        return
    # Spark's checkpoint may be outside of the directory, and is if that is in an object store.
    checkpoint = "" if CHECKPOINT in result.folders else "copy Spark's checkpoint, too; "
    console().print(
        f"{copy}: version {result.batch_id:,}; {size(result.linked_bytes)} linked, "
        f"{size(result.copied_bytes)} copied; {checkpoint}each view writes all its rows to its "
        "target with the next micro-batch",
        soft_wrap=True,
    )
