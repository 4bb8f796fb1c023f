"""Builds the wheel and the source archive, and tests the wheel in empty environments.

::

    python -m tests.support.packaging             # this Python, the packages of constraints.txt
    python -m tests.support.packaging --all       # every Python; oldest and newest packages
    python -m tests.support.packaging --python PATH --packages oldest
    python -m tests.support.packaging --compiled  # also a wheel with the machine code of kernels

An environment gets the base install and nothing else, so a missing dependency is an error: a view
is stepped without Spark. Then the extras are installed: a stream runs through Spark, and the
commands print their help. The oldest packages are the lower bounds of pyproject.toml, the newest
are those that pip finds within the bounds. The first use compiles the kernels (1 to 2 minutes),
unless Python and numba are those of the checkout: then its compiled kernels are copied.

A wheel with machine code (`dbsp_wcoj.kernels.precompiled`) is for this version of Python, this
architecture, and the numba of this environment. Its name says so. It is tried without a compiler.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from dbsp_wcoj.kernels import precompiled

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("pinned", "oldest", "newest")
EXTRAS = "cli,metrics,s3,sinks,spark,tracing,ui"  # those that are for users, and small to install
MAX_FILE_BYTES = 200_000  # of one file of the wheel: no source is as long, most data files are
VERSIONS = ("3.11", "3.12", "3.13", "3.14")

SETUP = """
import sys
from importlib.metadata import entry_points, requires, version
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import circuits, dbsp_wcoj, streaming

for package in (circuits, dbsp_wcoj, streaming):
    assert Path(package.__file__).is_relative_to(sys.prefix), package.__file__
    assert files(package).joinpath("py.typed").is_file(), package
commands = {e.name for e in entry_points(group="console_scripts")}
assert {"dbsp-wcoj", "dbsp-wcoj-demo", "dbsp-wcoj-java"} <= commands, commands

link = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")])
view = '''SELECT count(*) AS n FROM e ab JOIN e bc ON bc.src = ab.dst
    JOIN e ac ON ac.src = ab.src AND ac.dst = bc.dst'''
edges = pa.table({"src": [1, 2, 1], "dst": [2, 3, 3]})
"""

TRY_CORE = f"""{SETUP}
circuit = circuits.compile_sql(view, {{"e": link}}, name="triangles", materialize=True)
assert circuit.step({{"e": edges}})["triangles"].to_pylist() == [{{"n": 1, "weight": 1}}]
print("  tried without Spark")
"""

# Fails if a kernel is compiled.
TRY_COMPILED = f"""{SETUP}
import time
from numba.core import event

class Failing(event.Listener):
    def on_start(self, event):
        raise AssertionError(f"compiled {{event.data}}")
    on_end = on_start

event.register("numba:compile", Failing())
start = time.perf_counter()
circuit = circuits.compile_sql(view, {{"e": link}}, name="triangles", materialize=True)
assert circuit.step({{"e": edges}})["triangles"].to_pylist() == [{{"n": 1, "weight": 1}}]
seconds = time.perf_counter() - start
dbsp_wcoj.warm_up()
print(f"  compiled nothing; the first answer took {{seconds:.1f}} s after the imports")
"""

# Fills numba's cache for the baseline, and writes the folder in the first argument.
WRITE_MACHINE_CODE = """
import sys
from pathlib import Path
from dbsp_wcoj import warm_up
from dbsp_wcoj.kernels.compilation import KERNELS

warm_up()
for kernel in KERNELS.values():
    kernel._cache._cache_file.write_precompiled(Path(sys.argv[1]))
"""

# After `TRY_CORE` in an environment without PySpark: the error says what to install.
TRY_WITHOUT_SPARK = f"""{TRY_CORE}
try:
    streaming.ViewSink
except ModuleNotFoundError as error:
    assert "pip install 'dbsp-wcoj[spark]'" in str(error), error
else:
    raise AssertionError("a sink without Spark")
"""

TRY_SPARK = f"""{SETUP}
import tempfile

seen = []
with tempfile.TemporaryDirectory() as folder:
    import pyarrow.parquet as pq
    Path(folder, "in").mkdir()
    pq.write_table(edges, f"{{folder}}/in/a.parquet")
    spark = streaming.start_session("packaging", memory="512m")
    circuit = circuits.compile_sql(view, {{"e": link}}, name="triangles", materialize=True)
    sink = streaming.ViewSink(
        circuit, lambda frame, batch_id: seen.extend(frame.collect()), state_dir=f"{{folder}}/state"
    )
    query = (
        spark.readStream.schema("src long, dst long").parquet(f"{{folder}}/in")
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", f"{{folder}}/checkpoint")
        .trigger(availableNow=True).start()
    )
    query.awaitTermination()
    whole = sink.view("triangles", spark).collect()
    sink.close()
    spark.stop()
assert [tuple(row) for row in seen] == [tuple(row) for row in whole] == [(1, 1)], (seen, whole)
names = ("pyspark", "pyarrow", "numba", "numpy", "sqlglot")
print("  tried with Python", sys.version.split()[0], *(f"{{n}} {{version(n)}}" for n in names))
"""


def main() -> None:
    """Build the wheel, install it, and test it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--all", action="store_true", help="every Python, oldest and newest packages"
    )
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--packages", choices=PACKAGES, default="pinned")
    parser.add_argument(
        "--compiled", action="store_true", help="also build a wheel with machine code"
    )
    options = parser.parse_args()
    wheel, _ = build()
    check_contents(wheel)
    if options.compiled:
        try_compiled_wheel(compile_wheel(wheel))
    if not options.all:
        try_wheel(options.python, options.packages, wheel)
        return
    for python in pythons():
        try_wheel(python, "newest", wheel)
    try_wheel(pythons()[0], "oldest", wheel)


def build() -> tuple[Path, Path]:
    """Build the wheel and the source archive of this checkout."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST))
    (wheel,), (archive,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    print(f"built {wheel.name}, {wheel.stat().st_size:,} bytes, and {archive.name}")
    return wheel, archive


def oldest_packages() -> list[str]:
    """The lower bounds of the base install and of the extras, as pins.

    >>> oldest_packages()[0].partition("==")[0]
    'lark'
    """
    requirements = [*PROJECT["dependencies"]]
    for extra in EXTRAS.split(","):
        requirements += PROJECT["optional-dependencies"].get(extra, [])
    matches = [re.match(r"([\w-]+)(?:\[\w+\])?[=>]=([\w.]+)", text) for text in requirements]
    return [f"{match[1]}=={match[2]}" for match in matches if match]


def check_contents(wheel: Path) -> None:
    """Check that the wheel has the three packages, typed, and nothing else: no data, no caches."""
    files = zipfile.ZipFile(wheel).infolist()
    names = [file.filename for file in files]
    folders = {name.partition("/")[0] for name in names}
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    assert folders == {"circuits", "dbsp_wcoj", "streaming", info}, folders
    assert {f"{top}/py.typed" for top in folders - {info}} <= set(names)
    compiled = [n for n in names if "__pycache__" in n or n.endswith((".pyc", ".nbi", ".nbc"))]
    assert not compiled, compiled
    large = [file.filename for file in files if file.file_size > MAX_FILE_BYTES]
    assert not large, f"larger than {MAX_FILE_BYTES:,} bytes: {large}"


def compile_wheel(wheel: Path) -> Path:
    """Build a second wheel beside a wheel, with machine code for this Python and architecture."""
    quiet = subprocess.DEVNULL
    machine, tag = platform.machine(), f"cp{sys.version_info[0]}{sys.version_info[1]}"
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "wheel", "unpack", str(wheel), "-d", folder, stdout=quiet)
        (package,) = Path(folder).iterdir()
        # Compiled in a copy, because numba also writes to the folders of the sources.
        sources = shutil.copytree(package, Path(folder, "sources"))
        code = package / "dbsp_wcoj/kernels" / precompiled.FOLDER
        code.mkdir()
        cpu = precompiled.BASELINES[machine].cpu
        run(
            *(sys.executable, "-c", WRITE_MACHINE_CODE, str(code)),
            cwd=sources,
            PYTHONPATH=str(sources),
            NUMBA_CACHE_DIR=str(Path(folder, "cache")),
            NUMBA_CPU_NAME=cpu,
            NUMBA_CPU_FEATURES="",
        )
        # The code calls no library, so the oldest platform of this name can be named.
        (metadata,) = package.glob("*.dist-info/WHEEL")
        lines = metadata.read_text().splitlines()
        names = {"Root-Is-Purelib": "false", "Tag": f"{tag}-{tag}-manylinux_2_17_{machine}"}
        metadata.write_text(
            "".join(
                f"{n}: {names.get(n, text)}\n"
                for n, _, text in (x.partition(": ") for x in lines if x)
            )
        )
        run(
            sys.executable,
            "-m",
            "wheel",
            "pack",
            str(package),
            "-d",
            str(wheel.parent),
            stdout=quiet,
        )
    (compiled,) = wheel.parent.glob(f"*-{tag}-*.whl")
    print(f"built {compiled.name}, {compiled.stat().st_size:,} bytes")
    return compiled


def try_compiled_wheel(wheel: Path) -> None:
    """Try a wheel with machine code in an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        python = str(link_environment(Path(folder, "venv"), wheel, kernels=False))
        run(python, "-I", "-c", TRY_COMPILED, cwd=folder, NUMBA_CACHE_DIR=f"{folder}/cache")


def try_wheel(python: str, packages: str, wheel: Path) -> None:
    """Install the wheel in an empty environment and try it; then the same with its extras."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        print(f"{python}, {packages} packages", flush=True)
        bounds = {"pinned": ["--constraint", str(ROOT / "constraints.txt")], "newest": []}
        if packages == "oldest":
            Path(folder, "oldest.txt").write_text("\n".join(oldest_packages()))
            bounds["oldest"] = ["--constraint", f"{folder}/oldest.txt"]
        run(python, "-m", "venv", f"{folder}/venv")
        venv_python = f"{folder}/venv/bin/python"
        pip = [venv_python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        run(*pip, *bounds[packages], str(wheel))
        check_refusal(f"{folder}/venv/bin/dbsp-wcoj")
        copy_kernels(Path(folder, "venv"))
        run(venv_python, "-I", "-c", TRY_WITHOUT_SPARK, cwd=folder)
        run(*pip, *bounds[packages], f"{wheel}[{EXTRAS}]")
        run(f"{folder}/venv/bin/dbsp-wcoj", "--help", stdout=subprocess.DEVNULL)
        run(venv_python, "-I", "-c", "import deltalake, psycopg", cwd=folder)
        run(venv_python, "-I", "-c", TRY_SPARK, cwd=folder)
        run(venv_python, "-m", "pip", "check", stdout=subprocess.DEVNULL)
        print(f"  all well after {time.perf_counter() - start:.0f} s", flush=True)


def link_environment(folder: Path, wheel: Path, *extras: str, kernels: bool = True) -> Path:
    """Make an environment with the wheel and links to its dependencies; return its Python.

    This takes seconds and no package index. Other packages of this environment are not linked.
    With ``kernels``, the compiled kernels of this checkout are copied.
    """
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    (site,) = folder.glob("lib/python*/site-packages")
    requirements = [*PROJECT["dependencies"]]
    for extra in extras:
        requirements += PROJECT["optional-dependencies"][extra]
    for name in closure_of(requirements):
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(installed.locate_file(top))
    venv_python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--python", str(venv_python), "install", "--no-deps", "--no-index", str(wheel))
    if kernels:
        copy_kernels(folder)
    return venv_python


def closure_of(requirements: list[str]) -> set[str]:
    """Return the required packages, those that they require, and so on.

    >>> "llvmlite" in closure_of(["numba"]), "pytest" in closure_of(["numba"])
    (True, False)
    """
    names: set[str] = set()
    remaining = [Requirement(text) for text in requirements]
    while remaining:
        requirement = remaining.pop()
        marker = requirement.marker
        is_needed = marker is None or marker.evaluate({"extra": ""})
        if is_needed and requirement.name not in names:
            names.add(requirement.name)
            texts = distribution(requirement.name).requires or ()
            remaining += [Requirement(text) for text in texts]
    return names


def check_refusal(command: str) -> None:
    """Check that the command, without its extra, fails and names the extra to install."""
    completed = subprocess.run([command], capture_output=True, text=True)
    assert completed.returncode == 2, completed
    assert "pip install 'dbsp-wcoj[cli]'" in completed.stderr, completed


def copy_kernels(venv: Path) -> None:
    """Copy the compiled kernels of the checkout; another Python or numba ignores them."""
    (kernels,) = venv.glob("lib/python*/site-packages/dbsp_wcoj/kernels")
    source = ROOT / "dbsp_wcoj/kernels"
    for file in source.rglob("__pycache__/*.nb*"):
        copy = kernels / file.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(file, copy)


def pythons() -> list[str]:
    """Find one Python of each version, on the PATH or in pyenv."""
    paths = []
    for version in VERSIONS:
        pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        path = str(pyenv[-1]) if pyenv else shutil.which(f"python{version}")
        if path and not subprocess.run([path, "-c", "import venv"], capture_output=True).returncode:
            paths.append(path)
    return paths


def run(
    *command: str, cwd: str | Path | None = None, stdout: int | None = None, **variables: str
) -> None:
    """Run a command with more environment variables; an exit status other than 0 is an error."""
    environment = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run(command, check=True, env=environment | variables, cwd=cwd, stdout=stdout)


if __name__ == "__main__":
    main()
