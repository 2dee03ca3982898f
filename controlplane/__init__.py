"""The control plane: creates, readies, ends and reports sandboxes; it is never on the exec path.

Layers, higher may import lower only:
``embedded > api > lifecycle > cluster | store | telemetry > settings | model | reach > clock | errors > wire``.
"""
