"""CLearning, its updates and nothing else."""

from sb3_clearning.clearning.clearning import CLearning

__all__ = ["CLearning"]
