"""Whether egress would let a sandbox reach the cluster: addresses of it that are public, or excepted by a value."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from .api import HookError, Json


def covered(settings: Json | None, inside: Mapping[str, str]) -> str:
    """Checks that every address of the cluster is refused under each policy; returns the conclusion.

    Args:
        settings: the ranges of the values; None: egress is not to be installed.
        inside: addresses that no sandbox may reach, by name; empty ones are not known.

    Raises:
        HookError: egress would let sandboxes reach some.
    """
    if settings is None:
        return ""
    found = {name: ip_address(one) for name, one in inside.items() if one}
    blocked, excepted = ([ip_network(one) for one in settings[key]] for key in ("blockedCidrs", "allowedPrivateCidrs"))
    public = [name for name, one in found.items() if one.is_global and not any(one in net for net in blocked)]
    opened = [name for name, one in found.items() if any(one in net for net in excepted)]
    for names, advice in (
        (public, "put the ranges into egress.blockedCidrs"),
        (opened, "take the ranges out of egress.allowedPrivateCidrs"),
    ):
        if names:
            told = ", ".join(f"the {name} ({found[name]})" for name in names)
            raise HookError(f"sandboxes could reach {told} through egress: {advice}")
    return f"; egress refuses the cluster's own addresses ({', '.join(found)})"
