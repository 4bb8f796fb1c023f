"""``python -m streaming``: the command line."""

from streaming.cli import main

if __name__ == "__main__":
    main()
