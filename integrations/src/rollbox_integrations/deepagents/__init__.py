"""deepagents: a backend of agents, by `create_deep_agent(backend=RollboxSandbox("python:3.12"), ...)`."""

from rollbox_integrations.versions import require

require("deepagents", "0.7.32", "deepagents")

from rollbox_integrations.deepagents.faults import SandboxUnavailable  # noqa: E402 - not before its version is known
from rollbox_integrations.deepagents.sandbox import RollboxSandbox  # noqa: E402

__all__ = ["RollboxSandbox", "SandboxUnavailable"]
