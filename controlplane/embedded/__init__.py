"""The whole product in one command on one machine: what ``rollbox up`` and ``rollbox doctor`` run.

Finds or starts an engine, keeps the state directory, runs the control plane in this process and the gateway as a
child. Above ``api``; nothing imports it.
"""

import os

# Read once by gRPC when it is imported. Children are started by exec alone: there is nothing to restore after
# a fork, and the attempt would write a warning for every one of them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
