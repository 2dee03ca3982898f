"""Ending sandboxes because of time: ttl, idle timeout, leases that are not renewed, creators that went away."""
