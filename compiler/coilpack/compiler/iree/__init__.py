"""Programs for IREE: its compiler takes what is written here, and its runtime launches our kernels."""
