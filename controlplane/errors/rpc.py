"""Problems over gRPC: the code travels in the status details, never in the message."""

from collections.abc import Iterable
from typing import Final, NoReturn, cast

import grpc
from grpc import aio

from controlplane.errors.problem import Problem
from controlplane.errors.table import Code

DETAILS_KEY: Final = "grpc-status-details-bin"

# What a status means when it does not come from a part of rollbox (the transport made it, or a stranger answered).
_BARE: Final[dict[grpc.StatusCode, Code]] = {
    grpc.StatusCode.UNAVAILABLE: "sandbox_unreachable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "upstream_timeout",
    grpc.StatusCode.UNAUTHENTICATED: "unauthenticated",
    grpc.StatusCode.PERMISSION_DENIED: "permission_denied",
}


def from_rpc(error: aio.AioRpcError, peer: str) -> Problem:
    """The problem behind a failed call.

    Args:
        error: what the stub raised.
        peer: who was called; named in the detail when the status carries no problem of its own.
    """
    # The stubs describe the metadata of the synchronous API; here it is pairs.
    pairs = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for key, value in pairs:
        if key == DETAILS_KEY and isinstance(value, bytes) and (problem := Problem.decode(value)):
            return problem
    code = _BARE.get(error.code(), "internal")
    return Problem(code, f"{peer} answered {error.code().name}: {error.details()}", peer=peer)


async def abort(context: "aio.ServicerContext[object, object]", problem: Problem) -> NoReturn:
    """Ends a call of a gRPC server with ``problem``; never returns."""
    status = grpc.StatusCode[problem.entry.grpc]
    await context.abort(status, problem.detail, ((DETAILS_KEY, problem.encode()),))
    raise AssertionError("abort() raises")
