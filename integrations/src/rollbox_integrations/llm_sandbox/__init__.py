"""llm-sandbox: the backends `rollbox` and `rollbox-interactive` of `SandboxSession`, by importing this module."""

from rollbox_integrations.versions import require

require("llm-sandbox", "0.3.46", "llm-sandbox")

from llm_sandbox.backends import BackendCapabilities, register_backend  # noqa: E402 - not before its version is known

from rollbox_integrations.llm_sandbox.faults import CommandTimeoutError, SandboxUnavailable  # noqa: E402
from rollbox_integrations.llm_sandbox.interactive import RollboxInteractiveSession  # noqa: E402
from rollbox_integrations.llm_sandbox.session import RollboxSession  # noqa: E402

__all__ = ["CommandTimeoutError", "RollboxInteractiveSession", "RollboxSession", "SandboxUnavailable"]

for _name, _session in (("rollbox", RollboxSession), ("rollbox-interactive", RollboxInteractiveSession)):
    register_backend(
        _name,
        _session,
        capabilities=BackendCapabilities(
            container_images=True,
            interactive=_session is RollboxInteractiveSession,
            filesystem_isolation=True,
            network_isolation=True,
            daemon_required=True,
        ),
    )
