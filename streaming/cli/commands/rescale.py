"""The sub-command ``rescale``: convert a state directory to another number of cells.

Without cells, the state is embedded in one process. If the state cannot be converted, the exit
status is 2 and the directory is unchanged.
"""

from __future__ import annotations

from dataclasses import asdict

from streaming.cli.terminal.display import amount, console, print_json, size
from streaming.distributed.rescaling import RescaleResult, rescale_state
from streaming.errors import StreamingError
from streaming.state.open_files import open_files

__all__ = ["rescale"]


def rescale(*, state_dir: str, cells: int | None, embedded: bool, json: bool) -> None:
    """Convert the state of a stopped query to another number of cells, or to one process."""
    if embedded == (cells is not None):
        raise StreamingError("give either --cells with a number, or --embedded")
    found = rescale_state(open_files(state_dir), cells=cells)
    if json:
        print_json(asdict(found))
    else:
        console().print(_format(found), soft_wrap=True)


def _format(found: RescaleResult) -> str:
    before, after = [
        "embedded" if cells is None else f"{cells} cell{'s' * (cells != 1)}"
        for cells in (found.before, found.after)
    ]
    if not found.bytes_written and found.before == found.after:
        return f"version {found.batch_id}: {after} already, nothing to move"
    return (
        f"version {found.batch_id}: from {before} to {after}; {amount(found.rows)} rows in "
        f"{found.moved} of {found.stages} stages moved, {size(found.bytes_written)} written"
    )
