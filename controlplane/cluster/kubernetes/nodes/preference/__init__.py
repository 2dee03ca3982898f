"""Which nodes a start should prefer for its image: what they have of it, by the platform's own catalogue.

The kubelet tells of 50 images of a node, and the scheduler's own score for images prefers what many nodes have. So node
agents tell all images with their layers (``catalogue``), the watch of pods tells what was placed since and what room is
left (``occupancy``), and ``choice`` makes a few preferred nodes of it. They are wishes: where what is known here is old
or wrong, a pod comes to another node, which pulls; none is ever left unplaced for it.
"""

from controlplane.cluster.kubernetes.nodes.preference.catalogue import Catalogue, HeldImage, key_of
from controlplane.cluster.kubernetes.nodes.preference.choice import MOST_PREFERRED, Candidates, preferred
from controlplane.cluster.kubernetes.nodes.preference.occupancy import Occupancy
from controlplane.cluster.kubernetes.nodes.preference.preference import NodePreference
from controlplane.cluster.kubernetes.nodes.preference.reported_images import ReportedImages, version_of

__all__ = [
    "MOST_PREFERRED",
    "Candidates",
    "Catalogue",
    "HeldImage",
    "NodePreference",
    "Occupancy",
    "ReportedImages",
    "key_of",
    "preferred",
    "version_of",
]
