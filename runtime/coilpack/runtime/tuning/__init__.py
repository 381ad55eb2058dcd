"""Chooses among the candidate kernels of a package by measuring them on a device."""
