"""Incremental worst-case-optimal joins over Z-sets.

The relational core: Z-sets, traces, prefix extenders, the generic join and the delta formulas. No
input or output, no clock, no threads of its own, no randomness.

>>> from dbsp_wcoj import DeltaQuery, ZSet
>>> view = DeltaQuery("n() :- e(a, b), e(b, c), e(a, c)")
>>> view.step({"e": ZSet.from_rows([(1, 2), (2, 3), (1, 3)])}).to_dict()
{(): 1}
"""

from dbsp_wcoj.delta_query import DeltaQuery, PreparedStep, Stats
from dbsp_wcoj.errors import (
    ArgumentTypeError,
    ArityError,
    ColumnTypeError,
    DbspWcojError,
    FormulaError,
    LimitError,
    QuerySyntaxError,
    UnknownRelationError,
    UnsafeVariableError,
    VariableOrderError,
    WeightError,
    WeightOverflowError,
)
from dbsp_wcoj.formulas import CustomFormula, DeltaTerm, Formula
from dbsp_wcoj.generic_join import generic_join, generic_join_chunks
from dbsp_wcoj.limits import Budget, StepLimits
from dbsp_wcoj.query import Query
from dbsp_wcoj.storage.relations import Relations, RelationsStep
from dbsp_wcoj.storage.trace import Trace
from dbsp_wcoj.version import __version__
from dbsp_wcoj.warm_up import warm_up
from dbsp_wcoj.zset import ZSet

__all__ = [
    "ArgumentTypeError",
    "ArityError",
    "Budget",
    "ColumnTypeError",
    "CustomFormula",
    "DbspWcojError",
    "DeltaQuery",
    "DeltaTerm",
    "Formula",
    "FormulaError",
    "LimitError",
    "PreparedStep",
    "Query",
    "QuerySyntaxError",
    "Relations",
    "RelationsStep",
    "Stats",
    "StepLimits",
    "Trace",
    "UnknownRelationError",
    "UnsafeVariableError",
    "VariableOrderError",
    "WeightError",
    "WeightOverflowError",
    "ZSet",
    "__version__",
    "generic_join",
    "generic_join_chunks",
    "warm_up",
]
