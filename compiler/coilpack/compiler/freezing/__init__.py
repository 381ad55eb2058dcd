"""Freezes what Inductor compiled and tuned on a GPU into a package."""
