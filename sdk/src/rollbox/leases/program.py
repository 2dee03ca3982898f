"""Renews leases for the process that started this one, as long as that lives.

Run as `python -I -S program.py`: of the standard library only, and of that little before a renewal is due. Reads a JSON
object a line: a lease to renew (`renewer.order`; the same name again replaces it), or only the name of one to drop.
Writes one for each try: name, failure (empty for none), at (the monotonic clock, which all processes share).
Ends with its input: the other end of the pipe is closed when the process that has it is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress

# What `typing` has, without the milliseconds of its import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A gateway that is silent is asked again.
_ANSWER_LIMIT_S = 10.0
_LEAST_ANSWER_S = 1.0
_AGAIN = 4
_SHOWN_BYTES = 200


class Renewal(threading.Thread):
    """Renews one lease; a thread each, so that one gateway that does not answer holds up no other."""

    def __init__(self, lease: dict[str, Any]) -> None:
        super().__init__(name=lease["name"], daemon=True)
        self.lease = lease
        self.gone = threading.Event()

    def run(self) -> None:
        """Renew it until it is gone; after a failure sooner."""
        pause_s = self.lease["every_s"]
        while not self.gone.wait(pause_s):
            lease = self.lease
            # A process that this one's parent has forked past Python may still have its end of the pipe.
            if os.getppid() != lease["parent"]:
                os._exit(0)
            try:
                failure = renew(lease)
            except Exception as error:
                # Whatever it is: it is told, and tried again.
                failure = repr(error)
            report({"name": lease["name"], "failure": failure, "at": time.monotonic()})
            pause_s = lease["every_s"] / (_AGAIN if failure else 1)


def renew(lease: dict[str, Any]) -> str:
    """Say that its client is there; why that was not taken, or nothing."""
    # Only here: most programs have closed their clients before the first renewal.
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
    """Tell the parent, if it has read what it was told before: it may be busy for hours."""
    with suppress(OSError):
        os.write(1, json.dumps(said).encode() + b"\n")


def main() -> None:
    """Follow the parent's orders until there is no parent."""
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
    # Not waiting for an answer that a thread waits for.
    os._exit(0)


if __name__ == "__main__":
    main()
