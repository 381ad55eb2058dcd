"""The program IR, its wire and text forms, and its verifier."""
