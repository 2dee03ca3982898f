"""Two phases: the set-up of a task reaches a package index, the rollout reaches nothing, and all of it is on record.

`python phases.py [IMAGE [URL]]`: the URL is what the set-up fetches, an index of Python packages where none is given.
"""

import asyncio
import sys
from urllib.parse import urlsplit

from rollbox import EgressPolicy, EgressRule, Sandbox

# Any image with Python; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"
URL = sys.argv[2] if len(sys.argv) > 2 else ""
INDEX = URL or "https://pypi.org/simple/toposort/"
FETCH = f"import urllib.request as u; print(u.urlopen({INDEX!r}, timeout=20).status)"


def setup() -> str | EgressPolicy:
    """Say what the set-up may reach: the usual indexes, or the host of the URL alone."""
    if not URL:
        return "packages"
    where = urlsplit(URL)
    port = where.port or (443 if where.scheme == "https" else 80)
    return EgressPolicy(mode="allow", allow=[EgressRule(host=where.hostname, ports=[port], name="index")])


async def main() -> None:
    """Fetch once in each phase."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600, egress=setup()) as sandbox:
        fetched = await sandbox.exec(["python3", "-c", FETCH])
        print("set-up:", fetched.stdout.strip() if fetched.ok else "refused")

        state = await sandbox.egress("offline")
        print("offline is in force:", state.applied)

        fetched = await sandbox.exec(["python3", "-c", FETCH])
        print("rollout:", fetched.stdout.strip() if fetched.ok else "refused")

        for one in await sandbox.egress_log():
            print(f"{one.host}:{one.port} {one.verdict} by {one.rule or one.policy}")


asyncio.run(main())
