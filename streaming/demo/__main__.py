"""``python -m streaming.demo``."""

from streaming.demo import main

if __name__ == "__main__":
    main()
