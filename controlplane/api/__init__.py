"""The control plane from outside: HTTP for callers, one small door for readiness pushes, the route feed for gateways.

``serve.serving`` puts it together. Knows no engine except through ``serve``.
"""
