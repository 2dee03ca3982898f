"""Who may call what: the form of API keys, scopes, and the scope that each route needs. Pure."""

from controlplane.access.audit_options import AuditOptions
from controlplane.access.caller import EVERY, IN_SETTINGS, Caller, gives
from controlplane.access.key_text import ID, KeyText, digest, key_id, new_key
from controlplane.access.routes import ROUTES, Route, route_of, scope_of
from controlplane.access.scopes import MEANINGS, SCOPES, Scope

__all__ = [
    "EVERY",
    "ID",
    "IN_SETTINGS",
    "MEANINGS",
    "ROUTES",
    "SCOPES",
    "AuditOptions",
    "Caller",
    "KeyText",
    "Route",
    "Scope",
    "digest",
    "gives",
    "key_id",
    "new_key",
    "route_of",
    "scope_of",
]
