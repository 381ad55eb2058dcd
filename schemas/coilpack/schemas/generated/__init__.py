"""Python made from the schemas by `schemas/generate.py`; do not edit."""
