"""The benchmark suite: the paper's comparison as a matrix of runs that can be stopped, resumed and extended."""

from sb3_clearning.experiments.suite.command import main

__all__ = ["main"]
