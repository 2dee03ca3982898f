"""The scopes of API keys."""

from typing import Final, Literal, get_args

Scope = Literal["read", "run", "images", "egress", "pools", "keys", "operator"]

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
MEANINGS: Final[dict[Scope, str]] = {
    "read": "read what its owner has, and nothing that opens a sandbox",
    "run": "create, use, share and delete sandboxes and groups",
    "images": "build, prefetch, convert, commit and remove images",
    "egress": "declare and remove egress presets of its owner",
    "pools": "declare and remove pools of the installation",
    "keys": "make, rotate and revoke keys of its owner",
    "operator": "what operators may: quotas, nodes, data sets, pools, and keys of every owner",
}
