"""DBSP circuits: views over changing relations, Arrow tables in, Arrow tables out.

A step takes the changed rows of the inputs and returns the changed rows of the views. This layer
knows Arrow and the relational core, and no Spark; it does no I/O.
"""

from circuits.circuit import Circuit, CircuitStep
from circuits.errors import UnknownInputError

__all__ = ["Circuit", "CircuitStep", "UnknownInputError"]
