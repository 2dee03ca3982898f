"""What the sandboxes of the product under test run on."""

from __future__ import annotations

from rollbox import Client


async def is_gvisor(client: Client) -> bool:
    """Whether each sandbox has a kernel of its own.

    One limit holds for all of that then, its files in memory too: what passes it ends the sandbox.
    """
    return str((await client.info())["isolation"]).lower() == "gvisor"
