"""SWE-ReX: a deployment, `rollbox_integrations.swe_rex.RollboxDeployment`; also for an unmodified SWE-agent.

`python -m rollbox_integrations.swe_rex` is the command line of an unmodified SWE-agent that knows it.
"""

from rollbox_integrations.versions import require

require("swe-rex", "1.4.0", "swe-rex")

from rollbox_integrations.swe_rex.deployment import (  # noqa: E402 - not before its version is known
    RollboxDeployment,
    RollboxDeploymentConfig,
)
from rollbox_integrations.swe_rex.faults import SandboxNotStartedError, SandboxUnavailableError  # noqa: E402
from rollbox_integrations.swe_rex.registration import register  # noqa: E402
from rollbox_integrations.swe_rex.runtime import RollboxRuntime  # noqa: E402

__all__ = [
    "RollboxDeployment",
    "RollboxDeploymentConfig",
    "RollboxRuntime",
    "SandboxNotStartedError",
    "SandboxUnavailableError",
    "register",
]
