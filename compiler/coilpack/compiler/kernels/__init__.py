"""Kernels: from a Triton function to normalized PTX and a cubin, in parallel, cached by content.

`source` says what a kernel is made of, `compiler` runs everything, `normalize` and `assemble` are its two last steps.
"""
