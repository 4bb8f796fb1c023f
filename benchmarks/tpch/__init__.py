"""The 22 queries of TPC-H as views: loading, small steps, and the queries of OpenIVM.

``queries`` has the texts and schemas, ``data`` makes the tables, and ``__main__`` is the command
line of the parts, each of which has a module.
"""
