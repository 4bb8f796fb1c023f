"""``python -m streaming.demo``."""

from streaming.demo.command import main

if __name__ == "__main__":
    main()
