"""MLIR as a source language: modules of tensor functions in textual form become exported programs."""
