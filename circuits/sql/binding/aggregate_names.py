"""The names of aggregate functions: by the class of sqlglot's tree, or by the word in the text.

The names of window functions are here, too, for advice about a name that is unknown.

Both dialects share one table. A synonym of another system maps to the name that
`circuits.sql.aggregation.aggregate_calls` defines.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp

__all__ = ["AGGREGATE_CLASSES", "AGGREGATE_NAMES", "AGGREGATE_WORDS"]

#: Names of functions that sqlglot parses as `exp.Anonymous`, with the name of the definition.
AGGREGATE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "approx_percentile": "approx_quantile",
        "arbitrary": "first",
        "bit_and_agg": "bit_and",
        "bit_or_agg": "bit_or",
        "bit_xor_agg": "bit_xor",
        "bitand_agg": "bit_and",
        "bitmap_and_agg": "bitmap_and_agg",
        "bitor_agg": "bit_or",
        "bitxor_agg": "bit_xor",
        "bool_and": "bool_and",
        "bool_or": "bool_or",
        "every": "bool_and",
        "favg": "avg",
        "fsum": "fsum",
        "geomean": "geometric_mean",
        "geometric_mean": "geometric_mean",
        "histogram": "histogram",
        "histogram_exact": "histogram_exact",
        "json_agg": "json_array_agg",
        "json_arrayagg": "json_array_agg",
        "json_group_array": "json_array_agg",
        "json_group_object": "json_object_agg",
        "json_object_agg": "json_object_agg",
        "json_objectagg": "json_object_agg",
        "jsonb_agg": "json_array_agg",
        "jsonb_object_agg": "json_object_agg",
        "kahan_sum": "fsum",
        "kurtosis_pop": "kurtosis_pop",
        "list_agg": "array_agg",
        "map_agg": "map_agg",
        "mean": "avg",
        "percentile": "quantile_cont",
        "percentile_approx": "approx_quantile",
        "product": "product",
        "quantile_cont": "quantile_cont",
        "quantile_disc": "quantile_disc",
        "sem": "sem",
        "some": "bool_or",
        "std": "stddev_samp",
        "string_agg": "string_agg",
        "sumkahan": "fsum",
        "try_sum": "try_sum",
        "var": "var_samp",
    }
)

#: The trees of aggregate functions, with the name of the definition.
AGGREGATE_CLASSES: Final[Mapping[type[exp.Expr], str]] = MappingProxyType(
    {
        exp.Any: "bool_or",
        exp.AnyValue: "any_value",
        exp.ApproxDistinct: "approx_count_distinct",
        exp.ApproxQuantile: "approx_quantile",
        exp.ArgMax: "max_by",
        exp.ArgMin: "min_by",
        exp.ArrayAgg: "array_agg",
        exp.ArrayUniqueAgg: "collect_set",
        exp.Avg: "avg",
        exp.BitmapConstructAgg: "bitmap_construct_agg",
        exp.BitmapOrAgg: "bitmap_or_agg",
        exp.BitwiseAndAgg: "bit_and",
        exp.BitwiseOrAgg: "bit_or",
        exp.BitwiseXorAgg: "bit_xor",
        exp.Corr: "corr",
        exp.Count: "count",
        exp.CountIf: "count_if",
        exp.CovarPop: "covar_pop",
        exp.CovarSamp: "covar_samp",
        exp.First: "first",
        exp.FirstValue: "first",
        exp.GroupConcat: "string_agg",
        exp.Kurtosis: "kurtosis",
        exp.Last: "last",
        exp.LastValue: "last",
        exp.LogicalAnd: "bool_and",
        exp.LogicalOr: "bool_or",
        exp.Max: "max",
        exp.Median: "median",
        exp.Min: "min",
        exp.Mode: "mode",
        exp.PercentileCont: "quantile_cont",
        exp.PercentileDisc: "quantile_disc",
        exp.Quantile: "quantile",
        exp.RegrAvgx: "regr_avgx",
        exp.RegrAvgy: "regr_avgy",
        exp.RegrCount: "regr_count",
        exp.RegrIntercept: "regr_intercept",
        exp.RegrR2: "regr_r2",
        exp.RegrSlope: "regr_slope",
        exp.RegrSxx: "regr_sxx",
        exp.RegrSxy: "regr_sxy",
        exp.RegrSyy: "regr_syy",
        exp.Skewness: "skewness",
        exp.Stddev: "stddev_samp",
        exp.StddevPop: "stddev_pop",
        exp.StddevSamp: "stddev_samp",
        exp.Sum: "sum",
        exp.Variance: "var_samp",
        exp.VariancePop: "var_pop",
    }
)

_WINDOW_FUNCTIONS: Final = (
    *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"),
    *("percent_rank", "rank", "row_number"),
)

#: All names of aggregate and window functions in texts.
AGGREGATE_WORDS: Final[frozenset[str]] = frozenset(
    {
        *AGGREGATE_NAMES,
        *AGGREGATE_CLASSES.values(),
        *(
            name.lower()
            for tree in AGGREGATE_CLASSES
            if issubclass(tree, exp.Func)
            for name in tree.sql_names()
        ),
        *_WINDOW_FUNCTIONS,
    }
)
