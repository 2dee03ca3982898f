"""``EgressAttempt``: a connection that a program in a sandbox asked for, as its log keeps it. Pure."""

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, Self, get_args

EgressVerdict = Literal[
    "allowed",
    "denied_name",
    "denied_address",
    "denied_tls",
    "denied_limit",
    "bad_request",
    "unresolved",
    "unreachable",
    "cut",
    "name_server_silent",
    "idle",
    "packages_silent",
    "no_link",
]
VERDICTS: Final[tuple[EgressVerdict, ...]] = get_args(EgressVerdict)
# What egress replicas tell, in the order of the wire, from 1 on; the last one is a sandbox's own word.
OF_REPLICAS: Final = VERDICTS[:-1]
MOST_CHARS: Final = 255
# What a program asks for is shown on terminals and pages.
_UNSHOWN: Final = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class EgressAttempt:
    """One attempt, or several equal ones of one second.

    Attributes:
        at_ms: Unix time.
        host: as it was asked for, printable ASCII; what is none is ``?``.
        address: that was dialled; empty: none was.
        verdict: what became of it; an allowed connection is there when it begins and when it ends; ``no_link``: the
            sandbox had lost its link to egress.
        rule: of the policy, that decided; empty: none.
        protocol: http, connect, socks5, packages (a request to the package cache, whose host is the index) or dns.
        sent_bytes, received_bytes: seen from the sandbox.
        count: how many of them.
    """

    at_ms: int
    host: str
    port: int
    address: str
    verdict: EgressVerdict
    policy: str
    rule: str
    protocol: str
    sent_bytes: int = 0
    received_bytes: int = 0
    duration_ms: int = 0
    count: int = 1

    @classmethod
    def made(cls, **told: Any) -> Self:  # noqa: ANN401 - texts and numbers
        """From what an egress replica or a sandbox tells; texts are made printable and bounded."""
        printable: dict[str, Any] = {
            name: _printable(value) if isinstance(value, str) else value for name, value in told.items()
        }
        return cls(**printable)

    @property
    def text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


_NAMES: Final = frozenset(one.name for one in fields(EgressAttempt))


def read_attempt(text: str) -> EgressAttempt | None:
    """Reads ``EgressAttempt.text``; None for any other text, as another version may have written."""
    try:
        told = {name: value for name, value in json.loads(text).items() if name in _NAMES}
        return EgressAttempt(**told) if told["verdict"] in VERDICTS else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _printable(text: str) -> str:
    return _UNSHOWN.sub("?", text[:MOST_CHARS])
