"""C-learning: the algorithm and its fast update."""
