import pytest
import torch as th
from stable_baselines3.common.logger import Logger

from sb3_clearning.common.metrics import TensorMeans


@pytest.fixture
def logger() -> Logger:
    return Logger(folder=None, output_formats=[])


def test_means_are_over_the_values_of_each_name(logger: Logger) -> None:
    means = TensorMeans()
    means.add({"a": th.tensor(1.0), "b": th.tensor(10.0)})
    means.add({"a": th.tensor(2.0)})
    means.add({"a": th.tensor(6.0), "b": th.tensor(20.0)})
    means.record(logger)
    assert logger.name_to_value == {"a": pytest.approx(3.0), "b": pytest.approx(15.0)}
    assert all(isinstance(value, float) for value in logger.name_to_value.values())


def test_recording_starts_anew(logger: Logger) -> None:
    means = TensorMeans()
    means.add({"a": th.tensor(100.0)})
    means.record(logger)
    logger.name_to_value.clear()
    means.record(logger)
    assert not logger.name_to_value
    means.add({"a": th.tensor(2.0)})
    means.record(logger)
    assert logger.name_to_value == {"a": 2.0}


def test_added_values_are_neither_changed_nor_kept_in_a_graph(logger: Logger) -> None:
    means = TensorMeans()
    parameter = th.tensor(2.0, requires_grad=True)
    loss, other = parameter * 3, th.tensor(1.0)
    means.add({"loss": loss, "other": other})
    means.add({"loss": loss, "other": other})
    loss.backward()
    assert loss.item() == 6.0
    assert other.item() == 1.0
    # A value that changes after it was added does not change the mean
    other.fill_(50.0)
    means.record(logger)
    assert logger.name_to_value == {"loss": 6.0, "other": 1.0}
