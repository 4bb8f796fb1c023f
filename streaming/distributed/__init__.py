"""HyperCube: the same views on Spark executors, each cell of a grid one embedded circuit.

::

    stages      a circuit, cut where rows have to change places
    shares      into how many parts each variable of a join is hashed
    grid        which cells want a row; ``routing``: in Spark's expressions, ``placing``: in numpy
    skew        which values are heavy, and how their rows are spread
    planning    the grid of a stage by sizes, rates and counts; ``explanation``: what is told of it
    evenness    how full cells are, and another grid where some are too full
    cell        the circuit of a stage's cells; ``task``: its step on an executor, with its files
    held        what a worker keeps of its cells
    rows        those of a stage in one table; ``wire``: their columns on the way
    pipeline    one micro-batch through all stages, by the grids of a ``layout``
    distributed the engine of a sink: a driver's circuit above the pipeline
    moving      state from one grid to another; ``stage_cells``: with its files

The exact delta of a view is the sum of what the cells give. There is no second join and no cluster
of our own: a cell is a `circuits.Circuit`, and Spark places its tasks.
"""
