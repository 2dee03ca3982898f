"""Harbor: an environment, by its import path `rollbox_integrations.harbor:RollboxEnvironment`."""

from rollbox_integrations.versions import require

require("harbor", "0.26.0", "harbor")

from rollbox_integrations.harbor.environment import (  # noqa: E402 - not before its version is known
    RollboxEnvironment,
    RollboxOptions,
)

__all__ = ["RollboxEnvironment", "RollboxOptions"]
