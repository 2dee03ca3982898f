"""The console in a real browser: `rollbox ui`, a control plane with simulated sandboxes, Debian's Chromium."""
