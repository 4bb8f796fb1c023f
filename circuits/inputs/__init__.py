"""Inputs: from the rows that a user passes to the delta of a relation, before any view reads it.

::

    rows  ->  tables  ->  upserts or weights  ->  strict deletes  ->  retention  ->  delta

`tables` and `python_rows` convert rows to Arrow tables, and `encoded_inputs` encodes these.
`input_options` declares the options of an input, and `checked_input` applies them by `upserts`,
`strict_deletes` and `retention`; `rejected_rows` describes the rows that they reject. `finality`
checks which views may keep results whose rows have expired. `missing_deletions` counts the
deletions of rows that do not exist in an input without options.

The options need the relation as it was before the step. They read its trace, which joins share, so
the watermark is their only additional state.

Not here: the types of columns (`circuits.schema`, `circuits.types`).
"""

from circuits.inputs.input_options import InputOptions, Lateness, Retention
from circuits.inputs.rejected_rows import RejectedRows

__all__ = ["InputOptions", "Lateness", "RejectedRows", "Retention"]
