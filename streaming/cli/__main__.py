"""``python -m streaming.cli``."""

from streaming.cli import main

if __name__ == "__main__":
    main()
