"""The control plane: creates sandboxes, marks them ready, ends them and reports on them; never on the exec path.

Layers; a higher one may import only lower ones:
``embedded > api > lifecycle > cluster | store | telemetry > settings | model | reach > clock | errors > wire``.
"""

__version__ = "0.1.0"
