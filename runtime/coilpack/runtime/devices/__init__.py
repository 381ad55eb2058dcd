"""Devices that run kernels."""
