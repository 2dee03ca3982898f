"""The operator: maintenance beside the control plane.

It releases pods that were deleted while no control plane takes down their end, reports pods that their nodes do not
stop, and writes Events about drained nodes. What else differs between records and cluster the control plane repairs. It
is never on the path of a create, a readiness push or an exec: sandboxes work while it is down. It reads the store
directly and not through the API, since an API key gives access to one owner's sandboxes only, and since a control plane
that is down must not look like one without sandboxes.
"""
