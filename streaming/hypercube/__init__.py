"""HyperCube: the same views on Spark executors, each cell of a grid one embedded circuit.

::

    stages      a circuit, cut where rows have to change places
    shares      into how many parts each variable of a join is hashed
    grid        which cells want a row; ``routing``: the same in Spark's expressions
    cell        the circuit of a stage's cells; ``task``: its step on an executor, with its files
    pipeline    one micro-batch through all stages

The exact delta of a view is the sum of what the cells give. There is no second join and no cluster
of our own: a cell is a `circuits.Circuit`, and Spark places its tasks.
"""
