"""Tests of `streaming.database`: live views without Spark."""
