"""The matrix on a real Ray cluster of two nodes on this machine, one of which is killed in the middle."""

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from sb3_clearning.experiments.suite import cluster
from sb3_clearning.experiments.suite.output_folder import OutputFolder
from tests.support.tiny_suite import measured, tiny_runs, undisturbed, wait_until, write_config


@pytest.mark.slow
def test_a_lost_nodes_runs_go_on_from_their_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")  # a busy machine's nodes take long to start
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    runs = tiny_runs(write_config(tmp_path, steps=900), ["clearning", "next_state"])
    expected = undisturbed(runs, tmp_path / "undisturbed")
    output = OutputFolder(tmp_path / "shared")
    few: dict[str, Any] = {
        "num_cpus": 1,
        "include_dashboard": False,
        "include_log_monitor": False,
        "object_store_memory": 80_000_000,
    }
    nodes = Cluster(initialize_head=True, head_node_args=few)
    victim = nodes.add_node(**few)
    failed: list[set[str]] = []
    try:
        ray.init(address=nodes.address, log_to_driver=False)
        nodes.wait_for_nodes()
        thread = threading.Thread(
            target=lambda: failed.append(cluster.run_all(runs, output, nodes.address, lambda *_: None)), daemon=True
        )
        thread.start()

        def logs() -> dict[str, str]:
            paths = {run.name: output.run_folder(run) / "log.txt" for run in runs}
            return {name: path.read_text() for name, path in paths.items() if path.exists()}

        def on_victim() -> list[str]:
            return [name for name, log in logs().items() if f"on the node {victim.node_id}" in log and ": step 60," in log]

        wait_until(lambda: bool(on_victim()))
        (lost,) = on_victim()
        assert ": step 900," not in logs()[lost]
        nodes.remove_node(victim, allow_graceful=False)  # kills its processes
        thread.join(timeout=600)
        assert failed == [set()]
        assert logs()[lost].count("on the node") == 2  # started again, elsewhere
        # From its checkpoint: at the most the segment it was in was done twice.
        assert sum(": step " in line for line in logs()[lost].splitlines()) <= 31
        assert measured(output.merge()) == measured(expected)
    finally:
        ray.shutdown()
        nodes.shutdown()


@pytest.mark.slow
def test_a_class_that_a_node_has_not_is_said_once_and_not_tried_again(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    (run,) = tiny_runs(write_config(tmp_path), ["clearning"])[:1]
    run = dataclasses.replace(run, algorithm="not_on_this_node:Mine")
    output = OutputFolder(tmp_path / "shared")
    try:
        ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False)
        assert cluster.run_all([run], output, "local", lambda *_: None) == {run.name}
    finally:
        ray.shutdown()
    log = (output.run_folder(run) / "log.txt").read_text()
    assert log.count("on the node") == 1
    assert "No module named 'not_on_this_node'" in log.splitlines()[-1]
