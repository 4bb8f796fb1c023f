"""The command ``python -m docs.drawing``: draws the pictures, or checks them."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.drawing.pictures import PICTURES

FOLDER = Path(__file__).parent.parent / "pictures"


def main() -> int:
    """Draw all pictures, or list those that are out of date."""
    stale = []
    for name, draw in PICTURES.items():
        path = FOLDER / f"{name}.svg"
        text = draw()
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    print("drawn:" if "--check" not in sys.argv else "stale:", ", ".join(stale) or "none")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
