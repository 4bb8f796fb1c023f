"""Monitoring: metrics, health and traces of a running sink for the tools of operators.

::

    monitor          SinkMonitor: what a sink has done, and whether it is healthy and ready
    prometheus       the metrics of a monitor in the format of Prometheus
    server           /metrics, /healthz and /readyz on a port of their own
    query_listener   Spark's progress events, as more metrics of a monitor
    tracing          a span of OpenTelemetry for each micro-batch and each of its phases

``prometheus`` needs the extra ``metrics``, ``tracing`` the extra ``tracing``.
"""

from streaming.monitoring.monitor import SinkMonitor
from streaming.monitoring.server import MetricsServer, serve_metrics

__all__ = ["MetricsServer", "SinkMonitor", "serve_metrics"]
