"""A shared key: it opens one sandbox, for a time, to a holder who has no key of the sandbox's owner. Pure."""

from dataclasses import dataclass
from typing import Final

from controlplane.access.caller import Caller
from controlplane.access.routes import ONE_SANDBOX, Route
from controlplane.errors import Problem

SHARE_PREFIX: Final = "rbxs_"
# What a client needs to use a sandbox that it has not made: inside it, the token of the last one is enough.
OPENED: Final[frozenset[tuple[str, str]]] = frozenset(
    {
        ("GET", "/v1/info"),
        ("GET", ONE_SANDBOX),
        ("GET", f"{ONE_SANDBOX}/timeline"),
        ("POST", f"{ONE_SANDBOX}/token"),
    }
)


@dataclass(frozen=True, slots=True)
class Share:
    """What a shared key says.

    Attributes:
        sandbox_id: the one that it opens.
        owner: whose that is.
        by: the id of the key that has shared it.
        made_at_ms: when, to the second (Unix ms).
        expires_at_ms: when it is over (Unix ms).
    """

    sandbox_id: str
    owner: str
    by: str
    made_at_ms: int
    expires_at_ms: int

    def caller(self) -> Caller:
        """The caller that shows it."""
        return Caller(
            self.owner, f"{self.by}/shared", frozenset({"run"}), self.expires_at_ms, only_sandbox=self.sandbox_id
        )


def opens(caller: Caller, route: Route | None) -> None:
    """Refuses a caller with a shared key what is not of its one sandbox.

    Raises:
        Problem: permission_denied.
    """
    if caller.only_sandbox is None:
        return
    opened = route is not None and (route.method, route.template) in OPENED
    if not opened or (route is not None and route.names not in {(), (caller.only_sandbox,)}):
        detail = f"the key was shared for the use of sandbox {caller.only_sandbox} alone"
        raise Problem("permission_denied", detail, reason="shared_key", sandbox_id=caller.only_sandbox)
