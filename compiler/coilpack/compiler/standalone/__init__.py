"""Kernels without a model around them: bare Triton functions, and the modules that Inductor generates."""
