"""Kernels: functions compiled by numba, which loop over rows. The caller validates their input.

Every kernel runs without the GIL, is cached on disk, and works on int64 arrays and on *run
buffers* (see `dbsp_wcoj.storage.run`). A kernel is compiled once for all queries: queries differ
in data, never in code.

numba counts the references to arrays with atomic instructions, which take half the time of a merge
of 50 rows. Subroutines that run for few rows therefore get arrays without a count
(`dbsp_wcoj.kernels.memory.borrow`), or addresses.

This folder holds compiled code and the word offsets that it shares with Python. Validation,
ownership of memory and choice of plan belong to `dbsp_wcoj.storage` and `dbsp_wcoj.execution`.

Alternatives considered: typed records. A kernel reads a structure with ``load(address, OFFSET)``.
A numba record (`numba.carray` with a structured dtype) allows ``entry.owner`` instead. Both forms
were measured on two kernels, in interleaved calls on a shared machine (CPU time; two rounds, each
with the median of its calls or compilations; the results were equal bit for bit):

===================================  ============  ============
measured                             words         records
===================================  ============  ============
memo look-up or insertion, median    2.7, 2.2 ns   3.2, 2.5 ns
the same, minimum                    2.1, 2.0 ns   2.5, 2.4 ns
compiling it                         0.17, 0.20 s  0.18, 0.21 s
adding one row to a tail, median     257, 252 ns   255, 250 ns
compiling it                         1.03, 1.14 s  1.12, 1.17 s
===================================  ============  ============

Records are as fast if a call does much work (`dbsp_wcoj.kernels.storage.spine`). They are 15 to
19 % slower if a function does little else than access fields (`dbsp_wcoj.kernels.join.memo`), and
they take 1 to 8 % longer to compile. The parts of a run, a program and a join state have variable
length, so only their fixed headers could be records, and the other offsets would remain. Therefore
the kernels keep words.
"""
