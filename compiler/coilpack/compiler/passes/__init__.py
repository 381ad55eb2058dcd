"""Passes over the program IR: each takes a valid function and returns a valid one."""
