"""Which key has done what: entries of calls that change something or open a sandbox."""

from controlplane.lifecycle.audit.entry import AuditEntry, AuditQuery, names_of
from controlplane.lifecycle.audit.files import AuditFile
from controlplane.lifecycle.audit.trail import AuditTrail

__all__ = ["AuditEntry", "AuditFile", "AuditQuery", "AuditTrail", "names_of"]
