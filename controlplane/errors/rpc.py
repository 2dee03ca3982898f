"""Problems over gRPC: the code is sent in the status details, never in the message."""

from collections.abc import Iterable
from typing import Final, NoReturn, cast

import grpc
from grpc import aio

from controlplane.errors.problem import Problem
from controlplane.errors.table import Code

DETAILS_KEY: Final = "grpc-status-details-bin"

# The code for a gRPC status without a problem in its details: the transport made it, or a server that is not rollbox's.
_BARE: Final[dict[grpc.StatusCode, Code]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "upstream_timeout",
    grpc.StatusCode.UNAUTHENTICATED: "unauthenticated",
    grpc.StatusCode.PERMISSION_DENIED: "permission_denied",
}


def from_rpc(error: aio.AioRpcError, peer: str, *, away: Code = "sandbox_unreachable") -> Problem:
    """The problem that a failed gRPC call carries, or one that is derived from its status.

    Args:
        error: what the stub raised.
        peer: the server that was called; named in the detail when the status carries no problem.
        away: what it is when the server cannot be reached.
    """
    # The type stubs declare the metadata of the synchronous API; the asyncio API has key-value pairs.
    pairs = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for key, value in pairs:
        if key == DETAILS_KEY and isinstance(value, bytes) and (problem := Problem.decode(value)):
            return problem
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        detail = f"{peer} does not know this call: it is of another version than its caller ({error.details()})"
        return Problem(
            "unsupported", f"{detail}. Try again once all parts of the installation have one version", peer=peer
        )
    code = away if error.code() == grpc.StatusCode.UNAVAILABLE else _BARE.get(error.code(), "internal")
    return Problem(code, f"{peer} answered {error.code().name}: {error.details()}", peer=peer)


async def abort(context: "aio.ServicerContext[object, object]", problem: Problem) -> NoReturn:
    """Aborts a call on a gRPC server with ``problem``; never returns."""
    status = grpc.StatusCode[problem.entry.grpc]
    await context.abort(status, problem.detail, ((DETAILS_KEY, problem.encode()),))
    raise AssertionError("abort() raises")
