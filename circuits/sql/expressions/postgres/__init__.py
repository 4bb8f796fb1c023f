"""Functions and operators with another meaning in PostgreSQL than in DuckDB: one file per family.

They apply to the dialects postgres, redshift, risingwave and materialize. Each file has a table of
readers. For these dialects, `circuits.sql.expressions.readers` replaces the general readers
by those in the tables.
"""
