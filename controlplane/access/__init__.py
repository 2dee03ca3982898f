"""Who may call what: the form of API keys, scopes, and the scope that each route needs. Pure."""

from controlplane.access.audit_options import AuditOptions
from controlplane.access.caller import EVERY, IN_SETTINGS, Caller, gives
from controlplane.access.key_text import ID, KeyText, digest, key_id, new_key
from controlplane.access.routes import ROUTES, Route, route_of, scope_of
from controlplane.access.scopes import MEANINGS, SCOPES, Scope
from controlplane.access.share import OPENED, SHARE_PREFIX, Share, opens

__all__ = [
    "EVERY",
    "ID",
    "IN_SETTINGS",
    "MEANINGS",
    "OPENED",
    "ROUTES",
    "SCOPES",
    "SHARE_PREFIX",
    "AuditOptions",
    "Caller",
    "KeyText",
    "Route",
    "Scope",
    "Share",
    "digest",
    "gives",
    "key_id",
    "new_key",
    "opens",
    "route_of",
    "scope_of",
]
