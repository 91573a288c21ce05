"""The replay buffer: storage, goals, datasets."""
