"""Triton kernels of our own, for what Inductor generates no kernel."""
