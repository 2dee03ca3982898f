"""verifiers: a custom runtime, by its import path `rollbox_integrations.verifiers.RollboxBackend`."""

from rollbox_integrations.versions import require

require("verifiers", "0.4.1.dev86", "verifiers")

from rollbox_integrations.verifiers.backend import (  # noqa: E402 - not before its version is known
    RollboxBackend,
    RollboxRuntimeConfig,
)

__all__ = ["RollboxBackend", "RollboxRuntimeConfig"]
