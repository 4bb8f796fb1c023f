"""The sub-command ``rescale``: a state directory between one process and cells on executors.

Exit status 0: the directory has the form that was asked for. 2: it cannot have it, and is as it
was; one line on the error output says why.
"""

from __future__ import annotations

from typing import Annotated, Final

import pyarrow as pa
import typer

from dbsp_wcoj import DbspWcojError
from streaming.errors import StreamingError
from streaming.rescaling import Rescaled, rescaled
from streaming.state.files import files_of

__all__ = ["rescale"]

REFUSED: Final = 2


def rescale(
    state_dir: Annotated[
        str, typer.Argument(help="The state directory: a path, or a URI of pyarrow.")
    ],
    cells: Annotated[
        int | None, typer.Option(min=1, help="Distribute it over so many cells.")
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Bring it into one process.")
    ] = False,
) -> None:
    """Move the state of a query that is stopped to another number of cells, or to one process."""
    try:
        if embedded == (cells is not None):
            raise StreamingError("give either --cells with a number, or --embedded")
        found = rescaled(files_of(state_dir), cells=cells)
    except (DbspWcojError, OSError, pa.ArrowException) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(REFUSED) from error
    typer.echo(_shown(found))


def _shown(found: Rescaled) -> str:
    before, after = [
        "embedded" if cells is None else f"{cells} cell{'s' * (cells != 1)}"
        for cells in (found.before, found.after)
    ]
    if not found.bytes_written and found.before == found.after:
        return f"version {found.batch_id}: {after} already, nothing to move"
    return (
        f"version {found.batch_id}: from {before} to {after}; {found.rows:,} rows in "
        f"{found.moved} of {found.stages} stages moved, {found.bytes_written:,} bytes written"
    )
