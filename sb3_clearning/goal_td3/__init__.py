"""GoalTD3, the Q-learning baselines: the algorithm and its fast update."""
