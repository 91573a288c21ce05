"""A run's life: checkpoints, resuming, signals, failing environments, exports."""
