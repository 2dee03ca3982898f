"""Bringing sandboxes up: the start queue, the call to the cluster, and the readiness push that completes it."""
