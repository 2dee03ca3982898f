"""The control plane's network interfaces: the HTTP API, the endpoint for readiness pushes, the gateways' route feed.

``serve.serving`` puts them together, and is the only part that opens a backend.
"""
