"""MLIR's textual form: tokens, the grammar, and what builds a module from a parse tree."""
