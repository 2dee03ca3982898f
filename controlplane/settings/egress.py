"""Settings of egress: the port of the relay in each sandbox, the installation's presets, and the key of its feed."""

from typing import Final

from controlplane.egress import BUILT_IN, OFFLINE_NAME, EgressOptions, read_presets
from controlplane.settings import rules
from controlplane.settings.reader import PREFIX, Reader, SettingError

# Below it only root may listen, and programs in sandboxes often are none.
FIRST_PORT: Final = 1024


def read_egress(read: Reader) -> EgressOptions | None:
    """Reads them; None: egress is not installed.

    Raises:
        SettingError: one is invalid, or is set where egress is not installed.
    """
    port = read.optional("EGRESS_PORT", rules.count(FIRST_PORT, 65_535))
    if port is None:
        read.refuse(
            ("EGRESS_POLICY", "EGRESS_PRESETS_FILE", "EGRESS_PACKAGES", "FEED_KEY_FILE"),
            "it is about egress, and EGRESS_PORT is not set",
        )
        return None
    cached = read.optional("EGRESS_PACKAGES", rules.hosts) or ()
    presets = BUILT_IN
    if (file := read.optional("EGRESS_PRESETS_FILE", rules.file)) is not None:
        try:
            presets = read_presets(file.read_text(), cached)
        except (OSError, ValueError) as error:
            raise SettingError(f"{PREFIX}EGRESS_PRESETS_FILE", str(file), str(error)) from error
    default = read("EGRESS_POLICY", rules.one_of(*sorted(presets)), OFFLINE_NAME)
    return EgressOptions(port, default, presets, cached)


def read_feed_key(read: Reader) -> str:
    """Reads the key that egress replicas show; empty: egress is not installed.

    Raises:
        SettingError: it is missing where egress is installed, or is none.
    """
    return read("FEED_KEY_FILE", rules.feed_key_file) if read.has("EGRESS_PORT") else ""
