"""Tries ways, all at once, and says how each ended. The standard library alone."""

import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from controlplane.reach.ways import Way

# What is forbidden is silence as a rule, so this is how long a sound cluster is looked at.
LIMIT_S: Final = 5.0
PAUSE_S: Final = 0.5
ASK_AGAIN_S: Final = 1.0
# Any answer will do, so none that is looked for elsewhere first: an operation that no name server has (they refuse it
# themselves), and for those that keep silent then the version of the server (which other ones pass on).
QUESTIONS: Final = (
    bytes.fromhex("526210000001000000000000" + "0000020001"),
    bytes.fromhex("526201000001000000000000" + "0776657273696f6e0462696e6400" + "00100003"),
)

Ending = Literal["open", "refused", "closed"]


@dataclass(frozen=True, slots=True)
class Seen:
    """How a way ended.

    Attributes:
        ending: ``open``: there was an answer; ``refused``: somebody said no, at the address or on the way there;
            ``closed``: nothing came, or there is no way.
        after_s: when it first was as it should be, if that was not at the first try; else 0.
    """

    ending: Ending
    after_s: float = 0.0


def look(ways: Sequence[Way]) -> dict[str, Seen]:
    """Tries all; by name. Cost: ``LIMIT_S`` and the longest patience; one thread a way."""
    with ThreadPoolExecutor(max(1, len(ways))) as threads:
        return dict(zip([way.name for way in ways], threads.map(settled, ways), strict=True))


def settled(way: Way) -> Seen:
    """Tries until it is as it should be, as long as there is patience."""
    began_s = time.monotonic()
    tries = 1
    while ((ending := _once(way)) == "open") != way.must_work and time.monotonic() - began_s < way.patience_s:
        time.sleep(PAUSE_S)
        tries += 1
    late = tries > 1 and (ending == "open") == way.must_work
    return Seen(ending, round(time.monotonic() - began_s, 1) if late else 0.0)


def plain(seen: Mapping[str, Seen]) -> dict[str, Any]:
    """For JSON."""
    return {name: asdict(one) for name, one in seen.items()}


def told(report: Mapping[str, Any]) -> dict[str, Seen]:
    """What ``plain`` made."""
    return {name: Seen(**one) for name, one in report.items()}


def _once(way: Way) -> Ending:
    try:
        if way.kind == "dns":
            _ask(way)
        else:
            socket.create_connection((way.host, way.port), LIMIT_S).close()
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "closed"
    return "open"


def _ask(way: Way) -> None:
    """Asks a name server until it answers: a datagram may be lost."""
    family, kind, protocol, _, address = socket.getaddrinfo(way.host, way.port, type=socket.SOCK_DGRAM)[0]
    until_s = time.monotonic() + LIMIT_S
    with socket.socket(family, kind, protocol) as asking:
        asking.connect(address)
        while (left_s := until_s - time.monotonic()) > 0:
            asking.settimeout(min(ASK_AGAIN_S, left_s))
            for question in QUESTIONS:
                asking.send(question)
            try:
                asking.recv(512)
            except TimeoutError:
                continue
            return
    raise TimeoutError(way.address)
