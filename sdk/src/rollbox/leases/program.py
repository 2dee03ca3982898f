"""The renewal process: renews leases for its parent, as long as the parent lives.

Run as `python -I -S program.py`: it uses the standard library only, most of it not before a renewal is due. Reads JSON
objects, one a line: a lease to renew (`renewer.order`; the same name again replaces it), or only the name of a lease to
drop. Writes one for each attempt: name, failure (empty for none), at (the monotonic clock, which all processes share).
Exits at the end of its input: the kernel closes the pipe when the parent ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress

# As in `typing`, without the milliseconds of its import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The limits of a renewal request; after a failure the next one comes `_AGAIN` times sooner.
_ANSWER_LIMIT_S = 10.0
_LEAST_ANSWER_S = 1.0
_AGAIN = 4
_SHOWN_BYTES = 200


class Renewal(threading.Thread):
    """Renews one lease; each has a thread, so that a gateway that does not answer delays no other lease."""

    def __init__(self, lease: dict[str, Any]) -> None:
        super().__init__(name=lease["name"], daemon=True)
        self.lease = lease
        self.gone = threading.Event()

    def run(self) -> None:
        """Renew the lease until it is dropped; after a failure, retry sooner."""
        pause_s = self.lease["every_s"]
        while not self.gone.wait(pause_s):
            lease = self.lease
            # The parent has ended without an end of the input: a process that it forked in C still has the pipe open.
            if os.getppid() != lease["parent"]:
                os._exit(0)
            try:
                failure = renew(lease)
            except Exception as error:
                # Every failure is reported and retried.
                failure = repr(error)
            report({"name": lease["name"], "failure": failure, "at": time.monotonic()})
            pause_s = lease["every_s"] / (_AGAIN if failure else 1)


def renew(lease: dict[str, Any]) -> str:
    """Send one renewal; returns why it failed, or an empty string."""
    # Imported only here: most programs have closed their clients before the first renewal.
    import http.client  # noqa: PLC0415
    import ssl  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(lease["url"])
    limit_s = min(_ANSWER_LIMIT_S, max(_LEAST_ANSWER_S, lease["every_s"]))
    host = parts.hostname or ""
    if parts.scheme == "https":
        trust = ssl.create_default_context(cafile=lease["cafile"], capath=lease["capath"])
        connection: http.client.HTTPConnection
        connection = http.client.HTTPSConnection(host, parts.port, timeout=limit_s, context=trust)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=limit_s)
    headers = {"Authorization": f"Bearer {lease['api_key']}", "User-Agent": lease["agent"]}
    headers["Content-Type"] = "application/json"
    try:
        connection.request("POST", parts.path, json.dumps({"ttl_ms": lease["ttl_ms"]}), headers)
        answer = connection.getresponse()
        said = answer.read(_SHOWN_BYTES).decode("utf-8", "replace")
    finally:
        connection.close()
    return "" if answer.status < 300 else f"HTTP {answer.status}: {said}"


def report(said: dict[str, Any]) -> None:
    """Write a report to the parent; it is dropped while the pipe is full, since the parent may be busy for hours."""
    with suppress(OSError):
        os.write(1, json.dumps(said).encode() + b"\n")


def main() -> None:
    """Process the parent's messages until the parent ends."""
    os.set_blocking(1, False)
    renewals: dict[str, Renewal] = {}
    for line in sys.stdin.buffer:
        lease = json.loads(line)
        known = renewals.get(lease["name"])
        if "url" not in lease:
            if known is not None:
                renewals.pop(lease["name"]).gone.set()
        elif known is not None:
            known.lease = lease
        else:
            renewals[lease["name"]] = Renewal(lease)
            renewals[lease["name"]].start()
    # At once, without waiting for threads with a request in flight.
    os._exit(0)


if __name__ == "__main__":
    main()
