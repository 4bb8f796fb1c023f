"""State: everything that a circuit keeps between steps.

`registry` names the traces and dictionaries, `circuit_state` exports and loads them step by step,
`snapshot` makes one value of them, and `migration` moves the state of operators between circuits.
"""
