"""The tests; `from tests import naive` works from the repository root."""
