"""Rules of inputs: what a relation makes of the rows that it is given, before any view sees them.

::

    rows given  ->  keyed or weighted  ->  strict  ->  retained  ->  delta of the relation

`rules` is what a user writes, `ruled` the chain. What the rules need to know is the relation as it
was; so they keep no state of their own but the horizon of `retain`: they read arrangements of the
relation's one trace, which joins share.
"""

from circuits.inputs.input_options import InputOptions, Retention
from circuits.inputs.rejected_rows import RejectedRows

__all__ = ["InputOptions", "RejectedRows", "Retention"]
