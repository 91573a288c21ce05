"""The demo says what it reached, and leaves its files."""

import re
from pathlib import Path

import pytest

from sb3_clearning.experiments import demo


def test_demo_prints_a_table_without_gaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.main(["--steps", "1040", "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    rows = re.findall(r"^([a-z][a-z ]+(?:\(cm\))?) +(-?[\d.]+) +(-?[\d.]+)$", printed, re.MULTILINE)
    assert [name.strip() for name, _, _ in rows] == [
        *("success rate", "success at any time", "initial distance (cm)", "final distance (cm)"),
        *("minimum distance (cm)", "average distance (cm)", "change (cm)"),
    ]
    values = {name.strip(): (float(before), float(after)) for name, before, after in rows}
    for place in (0, 1):  # printed in hundredths
        change = values["final distance (cm)"][place] - values["initial distance (cm)"][place]
        assert values["change (cm)"][place] == pytest.approx(change, abs=0.011)
    assert "nan" not in printed
    assert {path.name for path in tmp_path.iterdir()} == {"model.zip", "curve.png", "density.png"}
