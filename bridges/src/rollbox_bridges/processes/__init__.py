"""Commands in a sandbox as calls of Connect with streams of events: what E2B's and Prime's services have in common."""
