"""Compiled kernels: arrays in, arrays out; they trust their input, the caller validates.

Every kernel is ``nogil`` and cached on disk, works on int64 arrays and on *run buffers*
(see `dbsp_wcoj.storage.run`), and is compiled once for all queries: what differs between queries
is data, never code.
"""
