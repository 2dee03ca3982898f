"""NeMo Gym: a sandbox provider, by its name `rollbox` in the entry points of `nemo_gym.sandbox_providers`."""

from rollbox_integrations.versions import require

require("nemo-gym", "0.7.0", "nemo-gym")

from rollbox_integrations.nemo_gym.failure import Failure, failure  # noqa: E402 - not before its version is known
from rollbox_integrations.nemo_gym.provider import RollboxProvider  # noqa: E402

__all__ = ["Failure", "RollboxProvider", "failure"]
