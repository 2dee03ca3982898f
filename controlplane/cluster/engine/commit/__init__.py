"""Images that are made of sandboxes on an engine.

The engine's own commit is not used: it writes its container's program, variables and labels into the image, reads the
whole file system's difference behind our back, and keeps the mount points of the container. So ``layer`` writes the
difference itself, and ``archive`` says the rest as the sandbox's own image does.
"""

from controlplane.cluster.engine.commit.commits import Commits
from controlplane.cluster.engine.commit.kept import KeptImages
from controlplane.cluster.engine.commit.names import COMMITS, hidden, place_of, shown

__all__ = ["COMMITS", "Commits", "KeptImages", "hidden", "place_of", "shown"]
