"""Leases of clients: while a client renews its leases, its sandboxes live on.

- `held`: the leases of one client.
- `renewer`: manages the renewal process, which renews the leases of all clients of this program.
- `program`: the code of the renewal process. Imports nothing of this package.
"""

from rollbox.leases.held import Leases

__all__ = ["Leases"]
