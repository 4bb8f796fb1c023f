"""Functions of numbers, in the types of DuckDB and, with the prefix ``ansi``, of Spark."""
