"""Executes the notebooks of the examples, each in a kernel of its own.

::

    python -m tests.support.notebooks     # execute all and store what they print
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def read_notebook(path: Path) -> Any:
    """Read a notebook."""
    return nbformat.read(path, as_version=4)


def execute(path: Path) -> Any:
    """Execute a notebook with this Python and the packages of this checkout."""
    notebook = read_notebook(path)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.execute(env=environment, cwd=str(path.parent))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, different in every run
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def outputs(notebook: Any) -> list[str]:
    """Return the output of each cell as text."""
    return [
        "".join(
            output.get("text") or output.get("data", {}).get("text/plain", output.get("ename", ""))
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


if __name__ == "__main__":
    for path in NOTEBOOKS:
        nbformat.write(execute(path), path)
