"""Captures exported programs as host programs and Triton kernels, through Inductor."""
