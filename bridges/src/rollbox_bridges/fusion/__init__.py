"""SandboxFusion: programs and notebooks in one request each, for reward functions of trainers."""
