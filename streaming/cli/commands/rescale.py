"""The sub-command ``rescale``: convert a state directory to another number of cells.

A state is either divided into cells or embedded in one process. If the state cannot be converted,
the exit status is 2 and the directory is unchanged.
"""

from __future__ import annotations

from dataclasses import asdict

from streaming.cli.arguments.functions import load_functions
from streaming.cli.terminal.display import amount, console, print_json, size
from streaming.distributed.rescaling import RescaleResult, rescale_state
from streaming.errors import StreamingError
from streaming.state.open_files import open_files

__all__ = ["rescale"]


def rescale(
    *, state_dir: str, cells: int | None, embedded: bool, functions: str | None, json: bool
) -> None:
    """Convert the state of a stopped query to another number of cells, or to one process."""
    if embedded == (cells is not None):
        raise StreamingError("give either --cells with a number, or --embedded")
    user_functions = load_functions(functions)
    result = rescale_state(open_files(state_dir), cells=cells, functions=user_functions)
    if json:
        print_json(asdict(result))
    else:
        console().print(_format(result), soft_wrap=True)


def _format(result: RescaleResult) -> str:
    before, after = [
        "embedded" if cells is None else f"{cells} cell{'s' * (cells != 1)}"
        for cells in (result.before, result.after)
    ]
    if not result.bytes_written and result.before == result.after:
        return f"version {result.batch_id}: {after} already; nothing was changed"
    return (
        f"version {result.batch_id}: from {before} to {after}; {amount(result.rows)} rows in "
        f"{result.moved} of {result.stages} stages moved, {size(result.bytes_written)} written"
    )
