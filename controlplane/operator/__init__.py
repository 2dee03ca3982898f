"""The operator: maintenance beside the control plane.

It records deaths that the control plane has missed, removes orphaned pods and stuck finalizers, and writes Events about
drained nodes. It is never on the path of a create, a readiness push or an exec: sandboxes work while it is down. It
reads the store directly and not through the API, since an API key gives access to one owner's sandboxes only, and since
a control plane that is down must not look like one without sandboxes.
"""
