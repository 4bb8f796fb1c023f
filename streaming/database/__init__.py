"""Database: live views for a program without Spark.

=================  ===============================================================================
`database`         `Database`: insert, delete, upsert; read and query views; on disk if wanted
`transaction`      `Transaction`: changes of several inputs as one step
`result`           `Result`: the rows of a view or query, for Arrow, pandas, polars and notebooks
`subscriptions`    the changes of a view after each step, for a callback or an async iterator
=================  ===============================================================================

The state is kept by the same store as that of a `streaming.ViewSink`. Nothing here imports PySpark.
"""
