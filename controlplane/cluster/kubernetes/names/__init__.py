"""Names of sandboxes in DNS: the endpoints of the headless Services, written for many sandboxes at a time.

Kubernetes would write them itself for Services with a selector: two objects for each start and each end, and for each
of these it looks at all pods of the namespace. So these Services have none.
"""

from controlplane.cluster.kubernetes.names.writer import Names

__all__ = ["Names"]
