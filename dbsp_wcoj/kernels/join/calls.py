"""Calls from one kernel to another by address.

numba compiles a function into each kernel that calls it, and optimizes and translates its code
again at each level of calls. Therefore the join and the kernels that sum its innermost variables
are compiled separately: each once, and only if a plan needs it. A call by address costs a few
nanoseconds, and each call handles a whole prefix or a whole join.

Arguments are int64, passed as one tuple; addresses come from `dbsp_wcoj.kernels.compilation`.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _make_call(result: Any) -> Any:
    @intrinsic
    def call(typingctx: Any, address: Any, arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = cgutils.unpack_tuple(builder, args[1])
            kind = ir.FunctionType(context.get_value_type(result), [v.type for v in values])
            return builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)

        return result(types.int64, types.UniTuple(types.int64, len(arguments))), codegen

    return call


#: Call a kernel that returns a sum.
call_sum = _make_call(types.int64)
#: Call `dbsp_wcoj.kernels.join.join`.
call_join = _make_call(types.UniTuple(types.int64, 3))
