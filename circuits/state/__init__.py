"""State: everything that a circuit keeps between steps.

`current_state` holds the operators, their dictionaries and the turns of the writers; it commits
steps and replaces the state as a whole. `registry` names the traces and dictionaries,
`circuit_state` exports and loads them step by step, `snapshot` makes one value of them, and
`migration` moves the state of operators between circuits. `program_change` moves the state of a
program to another program: `reuse` finds equal sub-plans, `kept_rows` the whole rows that the state
has, and `backfill` computes the rest.
"""
