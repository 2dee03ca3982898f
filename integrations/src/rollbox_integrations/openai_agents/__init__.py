"""openai-agents: sandboxes of `SandboxAgent`s, by `SandboxRunConfig(client=RollboxSandboxClient(), ...)`."""

from rollbox_integrations.versions import require

require("openai-agents", "0.24.0", "openai-agents")

from rollbox_integrations.openai_agents.client import RollboxSandboxClient  # noqa: E402 - not before its version is known
from rollbox_integrations.openai_agents.faults import fault_of  # noqa: E402
from rollbox_integrations.openai_agents.session import RollboxSandboxSession, sandbox_of  # noqa: E402
from rollbox_integrations.openai_agents.state import RollboxSandboxClientOptions, RollboxSandboxSessionState  # noqa: E402

__all__ = [
    "RollboxSandboxClient",
    "RollboxSandboxClientOptions",
    "RollboxSandboxSession",
    "RollboxSandboxSessionState",
    "fault_of",
    "sandbox_of",
]
