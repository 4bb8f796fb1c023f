"""Functions and operators with another meaning in PostgreSQL than in DuckDB: one file per family.

They are those of the dialects postgres, redshift, risingwave and materialize.
`circuits.sql.expressions.readers` joins their tables, whose entries replace those of the other
dialects.
"""
