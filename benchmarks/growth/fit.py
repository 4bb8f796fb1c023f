"""Fits growth exponents: the slope of a line through points in logarithms, by least squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.result import Row


def exponent(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return ``(slope, R²)`` of log y over log x; y grows as x to the power of the slope.

    >>> exponent([1, 10, 100], [3.0, 30.0, 300.0])
    (1.0, 1.0)
    """
    log_x, log_y = np.log(x), np.log(y)
    slope, offset = np.polyfit(log_x, log_y, 1)
    residual = float(((log_y - slope * log_x - offset) ** 2).sum())
    variation = float(((log_y - log_y.mean()) ** 2).sum())
    return round(float(slope), 6), round(1.0 - residual / variation, 6) if variation > 0 else 1.0


def fit_exponent(subject: str, rows: Sequence[Row], x: str, y: str) -> Row:
    """Fit column ``y`` over column ``x``; return the row of the table of exponents."""
    points = [
        (float(row[x]), float(row[y]))
        for row in rows
        if isinstance(row.get(x), int | float) and isinstance(row.get(y), int | float)
    ]
    points = [(a, b) for a, b in points if a > 0 and b > 0]
    slope, fit = exponent(*zip(*points, strict=True)) if len(points) > 1 else (None, None)
    return {
        "what": subject,
        "of": y,
        "by": x,
        "from": points[0][0] if points else None,
        "to": points[-1][0] if points else None,
        "points": len(points),
        "exponent": slope,
        "R²": fit,
    }
