"""Inputs: from the rows that a user passes to the delta of a relation, before any view reads it.

::

    rows  ->  tables  ->  upserts or weights  ->  strict deletes  ->  retention  ->  delta

`tables` and `python_rows` convert rows to Arrow tables. `input_options` declares the options of an
input, and `checked_input` applies them. `finality` checks which views allow results that outlive
their rows. The options need the relation as it was before the step. They read arrangements of its
one trace, which joins share, so their only state of their own is the watermark.

Not here: the types of columns (`circuits.schema`, `circuits.types`).
"""

from circuits.inputs.input_options import InputOptions, Retention
from circuits.inputs.rejected_rows import RejectedRows

__all__ = ["InputOptions", "RejectedRows", "Retention"]
