"""Page faults: how many pages of a map become resident when a search reads one of them.

If a page is in the cache of the system, a read maps it together with its neighbours: 16 pages, up
to 512 where the cache has the file in large pages. Searches at random positions read one value of
each page, and their resident memory is then 16 times what they need. A load reads most pages, and
single pages take it a third longer. But with neighbours its resident memory would grow by 100 MB
while the thread that limits it (`streaming.state.mapped.resident_pages`) waits for a processor.

Linux maps single pages in a private map whose writes are tracked asynchronously (``userfaultfd``
with ``UFFD_FEATURE_WP_ASYNC``, Linux 6.7). Nobody writes to these maps, so nothing is tracked.
If the system lacks or forbids this, each read maps the neighbouring pages, too.

Cost: a system call for each map. A single page takes 1.4 microseconds, one with its 15
neighbours 2.3 (measured in a virtual machine).
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import platform
import struct
import sys
from functools import cache
from typing import Any, Final

__all__ = ["expect_single_pages"]

# Constants of Linux: the number of the system call, and those of <linux/userfaultfd.h>.
SYSTEM_CALL: Final = {"x86_64": 323, "aarch64": 282}
USER_MODE_ONLY: Final = 1
UFFD_API: Final = 0xAA
WP_UNPOPULATED: Final = 1 << 13
WP_ASYNC: Final = 1 << 15
REGISTER_MODE_WP: Final = 1 << 1
UFFDIO_API: Final = 0xC018AA3F
UFFDIO_REGISTER: Final = 0xC020AA00

log = logging.getLogger(__name__)


def expect_single_pages(address: int, size: int) -> bool:
    """Let each read of a private map make one page resident; return whether the system does so.

    Args:
        address: The first byte of the map.
        size: The number of bytes of the map.
    """
    handle = _open(os.getpid())
    if handle is None:
        return False
    try:
        range_ = struct.pack("QQQQ", address, _whole_pages(size), REGISTER_MODE_WP, 0)
        fcntl.ioctl(handle, UFFDIO_REGISTER, range_)
    except OSError as error:
        log.debug("reads of a map make neighbouring pages resident, too: %s", error)
        return False
    return True


@cache
def _open(_process: int) -> int | None:
    """Return the userfaultfd of this process; None if the system lacks or forbids it.

    The argument is the process id, so that a forked process opens a userfaultfd of its own.
    """
    number = SYSTEM_CALL.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return None
    library: Any = ctypes.CDLL(None, use_errno=True)
    handle = library.syscall(number, os.O_CLOEXEC | USER_MODE_ONLY)
    if handle < 0:
        log.debug("userfaultfd: %s", os.strerror(ctypes.get_errno()))
        return None
    try:
        fcntl.ioctl(handle, UFFDIO_API, struct.pack("QQQ", UFFD_API, WP_UNPOPULATED | WP_ASYNC, 0))
    except OSError as error:
        log.debug("userfaultfd: %s", error)
        os.close(handle)
        return None
    return int(handle)


def _whole_pages(size: int) -> int:
    return -(-size // os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PAGE_SIZE")
