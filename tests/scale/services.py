"""What a Service is to its replicas, by the kernel's address translation: connections stay where they were opened."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def rules(services: Mapping[str, Sequence[str]]) -> str:
    """The table of nftables that spreads new connections to an address over those of its replicas.

    Args:
        services: address -> those of the replicas that are there; a Service without any is left out, so nobody answers.
    """
    lines = [
        f"    ip daddr {address} dnat to numgen random mod {len(replicas)} map "
        f"{{ {', '.join(f'{number} : {replica}' for number, replica in enumerate(replicas))} }}"
        for address, replicas in services.items()
        if replicas
    ]
    chain = "\n".join(("    type nat hook output priority -100;", *lines))
    return f"table ip scale {{}}\ndelete table ip scale\ntable ip scale {{\n  chain output {{\n{chain}\n  }}\n}}\n"


def put(services: Mapping[str, Sequence[str]]) -> None:
    """Put the rules in force, in one step."""
    subprocess.run(["nft", "-f", "-"], input=rules(services), text=True, check=True)
