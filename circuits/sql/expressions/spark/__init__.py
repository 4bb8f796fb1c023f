"""The functions of Spark by name, with the semantics of Spark 4: one file per family.

`circuits.sql.expressions.spark_functions` joins the tables of the families.
"""
