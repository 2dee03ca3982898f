"""Maintenance beside the control plane: what was missed is repaired, what was left behind removed, drains are told.

Never on the path of a create, a push or an exec: sandboxes live and die the same while it is down. It asks the store
itself and not the API: a key of the API speaks for one owner, and a control plane that is down must not look like a
control plane that knows no sandboxes.
"""
