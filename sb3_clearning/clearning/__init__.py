"""CLearning and its update."""

from sb3_clearning.clearning.clearning import CLearning
from sb3_clearning.clearning.updater import ClassifierUpdater

__all__ = ["CLearning", "ClassifierUpdater"]
