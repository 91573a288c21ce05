"""What the experiments share: rows of CSV files, intervals, provenance, command lines and resumable sweeps."""
