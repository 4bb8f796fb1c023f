"""HyperCube: the views run on Spark executors, and each cell of a grid is a separate circuit.

::

    engine          the engine of a sink: a circuit in the driver above the pipeline
    pipeline        one micro-batch through all stages, with the grids of a layout
    batch_job       the same as one Spark job, in which no row passes through the driver
    planning/       stages    a circuit, cut where rows have to be exchanged
                    shares    the number of parts that each variable of a join is hashed into
                    grid      the cells that receive a row; grid_layout: the grids of all stages
                    skew      heavy values, and how their rows are spread
                    grid_planning, load_balance    choose a grid, and another one when loads differ
                    job_layout    where stages and views run in the job of a micro-batch
    execution/      routing   rows to cells in Spark's expressions; placement: the same in numpy
                    cell      the circuit of a cell; task: its step on an executor, with its files
                    executor_cache    the cells that a worker keeps between steps; loaded_cell: one
                    of them, whose large files are mapped
                    stage_rows, transport    all rows of a stage in one table; its column types
                    job_tasks, packets    the tasks of a job, and the rows that they exchange
                    view_deltas    the deltas of views, summed and written by tasks
    rescaling       the state of a stopped query for another number of cells
    spark_settings  the settings of Spark that these jobs need
    migration       the state of one grid, converted to another; stage_cells: with its files
    explain         the plan as text

The exact delta of a view is the sum of the deltas of the cells. There is no second join algorithm
and no cluster manager: a cell is a `circuits.Circuit`, and Spark schedules its tasks.
"""
