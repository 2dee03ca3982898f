"""inspect-ai: the sandbox `rollbox`, by an entry point.

    inspect eval task.py --sandbox rollbox

`RollboxConfig` says what a compose file cannot; `fault_of` tells of a logged sample whether to mask it.
"""

from rollbox_integrations.versions import require

require("inspect-ai", "0.3.280", "inspect")

from rollbox_integrations.inspect.config import Build, RollboxConfig  # noqa: E402 - not before its version is known
from rollbox_integrations.inspect.environment import RollboxSandboxEnvironment  # noqa: E402
from rollbox_integrations.inspect.faults import fault_of  # noqa: E402

__all__ = ["Build", "RollboxConfig", "RollboxSandboxEnvironment", "fault_of"]
