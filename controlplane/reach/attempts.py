"""Tries destinations, all at once, and reports how each attempt ended. Uses the standard library alone."""

import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from controlplane.reach.ways import Way

# Timeout of one attempt. Policies usually drop packets silently, so on a cluster that enforces them every check takes
# this long.
LIMIT_S: Final = 5.0
PAUSE_S: Final = 0.5
ASK_AGAIN_S: Final = 1.0
# DNS queries. Any answer proves that the server is reachable, so they are ones that it answers without asking another
# server: an opcode that no name server implements (servers refuse it themselves), and, for servers that ignore that,
# `version.bind` (which servers that forward queries may pass on).
QUESTIONS: Final = (
    bytes.fromhex("526210000001000000000000" + "0000020001"),
    bytes.fromhex("526201000001000000000000" + "0776657273696f6e0462696e6400" + "00100003"),
)

Ending = Literal["open", "refused", "closed"]


@dataclass(frozen=True, slots=True)
class Seen:
    """The result for one destination.

    Attributes:
        ending: ``open``: it answered; ``refused``: the connection was refused, by the host or on the path to it;
            ``closed``: no answer, or no route.
        after_s: seconds until the expected result, if it was not the result of the first attempt; else 0.
    """

    ending: Ending
    after_s: float = 0.0


def try_all(ways: Sequence[Way]) -> dict[str, Seen]:
    """Tries all destinations; returns the results by name.

    Cost: at most ``LIMIT_S`` and the longest ``retry_for_s``; one thread per destination.
    """
    with ThreadPoolExecutor(max(1, len(ways))) as threads:
        return dict(zip([way.name for way in ways], threads.map(try_one, ways), strict=True))


def try_one(way: Way) -> Seen:
    """Tries a destination until the result is as expected, for at most ``retry_for_s``."""
    began_s = time.monotonic()
    tries = 1
    while ((ending := _once(way)) == "open") != way.must_work and time.monotonic() - began_s < way.retry_for_s:
        time.sleep(PAUSE_S)
        tries += 1
    late = tries > 1 and (ending == "open") == way.must_work
    return Seen(ending, round(time.monotonic() - began_s, 1) if late else 0.0)


def plain(seen: Mapping[str, Seen]) -> dict[str, Any]:
    """The results, ready for JSON."""
    return {name: asdict(one) for name, one in seen.items()}


def read_report(report: Mapping[str, Any]) -> dict[str, Seen]:
    """Reads what ``plain`` made."""
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
    """Sends queries to a name server until it answers, since a datagram may be lost."""
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
