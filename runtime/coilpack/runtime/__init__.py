"""Loads and runs what the compiler packs; never imports torch, Triton or the compiler."""
