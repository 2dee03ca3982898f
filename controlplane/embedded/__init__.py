"""The whole product on one machine: the implementation of ``rollbox up`` and ``rollbox doctor``.

Finds or starts an engine, manages the state directory, and runs the control plane in this process and the gateway as a
child process. A layer above ``api``; no other package of the control plane imports it.
"""

import os

# Disables gRPC's fork support; gRPC reads this once, at import. Children are always started with exec, so nothing has
# to be restored after a fork, and gRPC would log a warning for every child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
