"""A client's word that it is still there: while it is given, the sandboxes that go with it live on.

- `held`: the leases of one client.
- `renewer`: the process that renews those of all clients of this process.
- `program`: what runs in it. Imports nothing of this package.
"""

from rollbox.leases.held import Leases

__all__ = ["Leases"]
