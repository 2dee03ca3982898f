"""All settings of the control plane, read from environment variables once, before any socket is opened.

``settings`` has the control plane's settings, ``operator`` the operator's; ``backends`` those of one backend; ``rules``
parses and validates values; ``reader`` looks variables up and reports bad ones.
"""

from controlplane.settings.backends import (
    BuildSettings,
    DeviceSettings,
    EngineSettings,
    KubernetesSettings,
    NodeAgentSettings,
)
from controlplane.settings.images import CommitSettings, ImageSettings, PushSettings, RegistrySettings
from controlplane.settings.operator import OperatorSettings
from controlplane.settings.reader import EXIT_CONFIG, PREFIX, SettingError
from controlplane.settings.rules import MAX_SOCKET_PATH_BYTES, Listen, socket_path
from controlplane.settings.scaling import ProviderSettings, ScalingSettings
from controlplane.settings.settings import Settings
from controlplane.settings.webhooks import webhooks

__all__ = [
    "EXIT_CONFIG",
    "MAX_SOCKET_PATH_BYTES",
    "PREFIX",
    "BuildSettings",
    "CommitSettings",
    "DeviceSettings",
    "EngineSettings",
    "ImageSettings",
    "KubernetesSettings",
    "Listen",
    "NodeAgentSettings",
    "OperatorSettings",
    "ProviderSettings",
    "PushSettings",
    "RegistrySettings",
    "ScalingSettings",
    "SettingError",
    "Settings",
    "socket_path",
    "webhooks",
]
