"""From parsed MLIR to exported programs: each operation is executed with torch's, under torch.export's tracing."""
