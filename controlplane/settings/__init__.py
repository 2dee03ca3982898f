"""Every setting of the control plane, read from the environment once, before anything is bound.

``settings`` is the whole, ``operator`` the operator's part of it; ``backends`` what one backend needs; ``rules`` what a
value must be; ``reader`` how a variable is looked up and complained about.
"""

from controlplane.settings.backends import EngineSettings, KubernetesSettings
from controlplane.settings.operator import OperatorSettings
from controlplane.settings.reader import EXIT_CONFIG, PREFIX, SettingError
from controlplane.settings.rules import MAX_SOCKET_PATH_BYTES, Listen, socket_path
from controlplane.settings.settings import Settings

__all__ = [
    "EXIT_CONFIG",
    "MAX_SOCKET_PATH_BYTES",
    "PREFIX",
    "EngineSettings",
    "KubernetesSettings",
    "Listen",
    "OperatorSettings",
    "SettingError",
    "Settings",
    "socket_path",
]
