"""The files for operators in `examples`: a dashboard, a container and a service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from circuits import InputOptions, Lateness, compile_sql
from streaming import ViewSink
from streaming.cli.arguments import declarations
from streaming.monitoring import SinkMonitor
from streaming.monitoring.prometheus import metrics_text, registry_of
from tests.streaming.sink.test_view_sink import Frame

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CONTAINER = EXAMPLES / "Containerfile"
SERVICE = EXAMPLES / "dbsp-wcoj@.service"


def exposed_labels() -> dict[str, set[str]]:
    """Return the labels of each metric, by the name of its samples."""
    columns = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us"))])
    circuit = compile_sql(
        "SELECT a.k FROM e a JOIN e b ON a.k = b.k",
        {"e": columns},
        input_options={"e": InputOptions(lateness=Lateness("ts", "1 hour"))},
    )
    sink = ViewSink(circuit)
    monitor = SinkMonitor(sink)
    sink(Frame(pa.table({"k": ["x"], "ts": [0]}).cast(columns), "q"), 0)
    text, _ = metrics_text(registry_of(monitor))
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        for suffix in suffixes.get(family.type, [""]):
            labels[f"{family.name}{suffix}"] = {"le"} if suffix == "_bucket" else set()
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_the_dashboard_and_the_page_name_only_metrics_that_exist() -> None:
    labels = exposed_labels()
    dashboard = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
    expressions = [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    for title, expression, legend in expressions:
        names = re.findall(r"\b(?:dbsp_wcoj|process)_\w+", expression)
        assert names and set(names) <= set(labels), title
        known = {"instance"}.union(*(labels[name] for name in names))
        empty = [name for name in names if not labels[name]]  # a metric without samples here
        used = {*re.findall(r"\{\{(\w+)\}\}", legend), *re.findall(r"(\w+)[!=]=?~?\"", expression)}
        assert used <= known or empty, title
        assert expression.count("(") == expression.count(")")
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])

    page = (ROOT / "docs/how-to/monitoring.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page.partition("its prefix `dbsp_wcoj_`")[2], re.MULTILINE)
    documented = set()
    for names in rows:
        first = ""
        for name in re.findall(r"`([a-z_]+)`", names.partition("|")[0]):
            first = name if not name.startswith("_") else first.rpartition("_")[0] + name
            documented.add(f"dbsp_wcoj_{first}")
        if "up == 0" in names:
            break
    own = {re.sub(r"_(bucket|sum|count)$", "", n) for n in labels if n.startswith("dbsp_wcoj_")}
    assert own <= documented, own - documented
    assert set(re.findall(r"\bdbsp_wcoj_\w+", page)) - {"dbsp_wcoj_"} <= set(labels)


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file with their arguments."""
    lines = re.sub(r"^#.*\n", "", CONTAINER.read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", " ", lines)
    return [
        (name, arguments)
        for name, _, arguments in (s.partition(" ") for s in joined.splitlines())
        if name
    ]


def test_the_container_file_is_well_formed() -> None:
    steps = instructions()
    known = "FROM ENV COPY RUN USER WORKDIR VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    assert {name for name, _ in steps} <= set(known.split())
    (image,) = [arguments for name, arguments in steps if name == "FROM"]
    assert re.fullmatch(r"python:3\.\d+-slim", image)  # a version, not the newest one
    assert [arguments for name, arguments in steps if name == "USER"][-1] != "root"
    for name, arguments in steps:
        if name == "COPY":
            assert all((ROOT / source).exists() for source in arguments.split()[:-1])
    extras = set(re.search(r"/src\[([\w,]+)\]", CONTAINER.read_text())[1].split(","))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras <= set(project["optional-dependencies"])
    assert "s3" in extras  # so that the state may be on S3
    for name in ("ENTRYPOINT", "CMD"):  # a list, so that the process receives the signals
        (arguments,) = [arguments for step, arguments in steps if step == name]
        assert isinstance(json.loads(arguments), list)


def options_of(command: str) -> set[str]:
    return set(re.findall(r"--[\w-]+", command))


def test_the_container_and_the_service_use_options_of_run() -> None:
    known = {f"--{name.replace('_', '-')}" for name in declarations.run.__annotations__}
    (command,) = [arguments for name, arguments in instructions() if name == "CMD"]
    service = re.search(r"^ExecStart=(.*)$", SERVICE.read_text(), re.MULTILINE)[1]
    for text in (command, service):
        assert options_of(text) and options_of(text) <= known


def test_the_service_waits_longer_for_the_end_than_the_command() -> None:
    text = SERVICE.read_text()
    stop_timeout = float(re.search(r"--stop-timeout (\d+)", text)[1])
    assert float(re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[1]) > stop_timeout
    # Status 2 may be a database that does not run yet.
    assert "Restart=on-failure" in text and "RestartPreventExitStatus" not in text
    assert "KillMode=mixed" in text  # SIGTERM would end Spark before the micro-batch


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_accepts_the_service(tmp_path: Path) -> None:
    text = SERVICE.read_text().replace("/opt/dbsp-wcoj/bin/dbsp-wcoj", "/bin/true")
    (tmp_path / SERVICE.name).write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "dbsp-wcoj@rings.service"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
