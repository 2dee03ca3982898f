"""rollbox inside the harnesses that people have: a module for each host, which needs that host installed.

    pip install "rollbox-integrations[inspect]"

It is a distribution of its own, and a package of its own: the SDK imports nothing of it, and a package below `rollbox`
could not be found beside an editable install of the SDK. Layers, lowest first: docker_sizes, outcome, versions < the
modules of the hosts, which know nothing of one another.
"""

from rollbox_integrations._version import __version__

__all__ = ["__version__"]
