"""Precompiled kernels: machine code that comes with the package, so that nothing is compiled.

A wheel of `tests.support.packaging` has a file for each kernel in the folder `FOLDER`, for one
version of Python and one architecture. numba looks for the machine code of a kernel in this order:

1. in its cache on disk, where the code is for exactly this processor;
2. in the precompiled files, where it is for every processor with the instructions of `BASELINES`;
3. otherwise it compiles the kernel, and stores it in its cache.

Precompiled code is used only if its sources (`dbsp_wcoj.kernels.source_stamps`) and the version of
numba are the same as when it was compiled. The files are read by `importlib.resources`, so they may
be in a zip archive.
"""

from __future__ import annotations

import contextlib
import glob
import io
import pickle
import platform
import sys
from collections.abc import Collection, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import numba
from llvmlite import binding
from numba.core import config
from numba.core.caching import IndexDataCacheFile

from dbsp_wcoj.kernels.source_stamps import have_sources_changed

__all__ = ["BASELINES", "FOLDER", "KernelCacheFile"]

#: The folder of the files, in this one.
FOLDER: Final = "machine_code"


class Baseline(NamedTuple):
    """The processor that precompiled code is for.

    Attributes:
        cpu: Its name for LLVM.
        features: The features, as LLVM names them, that a processor needs to run the code.
    """

    cpu: str
    features: tuple[str, ...]


#: By the name of the architecture. Level 3 of x86-64 has AVX2; servers have had it since 2013.
BASELINES: Final[Mapping[str, Baseline]] = {
    "x86_64": Baseline(
        "x86-64-v3",
        ("avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "xsave"),
    ),
    "aarch64": Baseline("generic", ()),
}


# numba gives no types, and no public interface to its cache: its key of a cached function is
# (signature, (triple, processor, features), hashes).
class KernelCacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """The file of numba's cache for one kernel; what it lacks is read from the precompiled file.

    Processes that compile a kernel at the same time, perhaps of two versions of this package, write
    to one folder. numba numbers the files of machine code, so the file of one process can get the
    content of another. Here the name of a file has a hash of what its content is for.

    Args:
        file: The file of numba's cache.
        name: The name of the kernel: the path of its module in this folder, and its function.
        source_stamp: What the code depends on besides its own source.
    """

    def __init__(self, file: Any, name: str, source_stamp: str) -> None:
        self.__dict__ |= file.__dict__
        self._source_stamp = source_stamp
        self._kernel = name
        self._module = name.rpartition(".")[0]

    def save(self, key: Any, data: Any) -> None:
        """Store machine code, unless it is of sources that have been replaced meanwhile."""
        if have_sources_changed(self._module):
            return
        content = f"{self._version} {self._source_stamp} {key}"
        name = self._data_name(int.from_bytes(sha256(content.encode()).digest()[:8]))
        self._save_data(name, data)
        overloads = self._load_index() | {key: name}
        self._save_index(overloads)
        self._remove_others({self._index_name, *overloads.values()})

    def _remove_others(self, names: Collection[str]) -> None:
        """Remove the machine code of earlier sources; another process compiles what it lacks."""
        # The names are FUNCTION-LINE.PYTHON.nbi and FUNCTION-LINE.PYTHON.NUMBER.nbc.
        function, _, rest = self._index_name.rpartition("-")
        python = rest.split(".")[1]
        for path in Path(self._cache_path).glob(f"{glob.escape(function)}-*.{python}.*"):
            if path.name not in names and path.suffix in (".nbi", ".nbc"):
                with contextlib.suppress(OSError):
                    path.unlink()

    def load(self, key: Any) -> Any:
        """Return what `save` was given for this key; None if the kernel has to be compiled.

        It has to if its sources were replaced since this process has imported them.
        """
        if have_sources_changed(self._module):
            return None
        cached = super().load(key)
        if cached is not None:
            return cached
        signature, (triple, _, _), hashes = key
        baseline = _usable_baseline()
        if baseline is None:
            return None
        code = self._precompiled().get((signature, (triple, baseline.cpu, ""), hashes))
        return None if code is None else pickle.loads(code)

    def _precompiled(self) -> Mapping[Any, bytes]:
        """Return the machine code in the precompiled file; nothing if it does not fit."""
        resource = files(__package__).joinpath(FOLDER, _file_name(self._kernel))
        if not resource.is_file():
            return {}
        content = io.BytesIO(resource.read_bytes())
        # Compare before unpickling the rest, which may not be readable for another numba.
        if pickle.load(content) != (numba.__version__, self._source_stamp):
            return {}
        codes: Mapping[Any, bytes] = pickle.load(content)
        return codes

    def write_precompiled(self, folder: Path) -> None:
        """Write a precompiled file with the code in numba's cache of this kernel, if there is any.

        Raises:
            ValueError: Some of the code is not for the baseline of this architecture.
        """
        codes = {
            key: Path(self._data_path(data)).read_bytes()
            for key, data in self._load_index().items()
        }
        others = {key[1][1:] for key in codes} - {(BASELINES[platform.machine()].cpu, "")}
        if others:
            raise ValueError(f"numba's cache has code of {self._kernel} for {others}")
        if codes:
            content = pickle.dumps((numba.__version__, self._source_stamp)) + pickle.dumps(codes)
            folder.joinpath(_file_name(self._kernel)).write_bytes(content)


@cache
def _usable_baseline() -> Baseline | None:
    """Return the baseline of this architecture if its code may run.

    It may if this processor has the instructions, and no variable of numba chooses a processor.
    """
    baseline = BASELINES.get(platform.machine())
    if baseline is None or not config.ENABLE_AVX or config.CPU_NAME or config.CPU_FEATURES:
        return None
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know the processor
        return None
    return baseline if all(features.get(name) for name in baseline.features) else None


def _file_name(kernel: str) -> str:
    major, minor = sys.version_info[:2]
    return f"{kernel}.py{major}{minor}-{platform.machine()}"
