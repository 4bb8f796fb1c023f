"""Rules for the files of the repository: none is large, and every picture is shown on a page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE_BYTES = 200_000


def tracked_files() -> list[Path]:
    """Return the files of the repository that exist in this checkout."""
    output = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
    ).stdout
    paths = [ROOT / name for name in output.split("\0") if name]
    assert paths
    return [path for path in paths if path.is_file()]


def test_no_file_is_large_except_pictures_that_a_page_shows() -> None:
    large = [path for path in tracked_files() if path.stat().st_size > MAX_FILE_BYTES]

    assert [path for path in large if path not in pictures_on_pages()] == []


def test_every_picture_of_the_documentation_is_shown_on_a_page() -> None:
    pictures = {path for path in tracked_files() if path.is_relative_to(ROOT / "docs" / "pictures")}

    assert pictures - pictures_on_pages() == set()


def pictures_on_pages() -> set[Path]:
    """The pictures that Markdown pages refer to, by an image or by a picture tag."""
    shown = set()
    for page in (path for path in tracked_files() if path.suffix == ".md"):
        text = page.read_text()
        for place in re.findall(r"!\[[^]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
            shown.add((page.parent / (place[0] or place[1])).resolve())
    return shown
