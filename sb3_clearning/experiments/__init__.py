"""One module per figure or table: ``python -m sb3_clearning.experiments NAME``."""
