"""The command `coilpack`."""
