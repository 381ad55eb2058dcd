"""A device that executes PTX on the CPU."""
