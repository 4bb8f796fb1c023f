"""Runtime: the circuit graph, operators, nested circuits, evaluation, committed versions."""
