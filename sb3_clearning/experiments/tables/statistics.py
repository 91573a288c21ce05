"""Values and intervals over seeds."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats


def read_frame(path: Path) -> pd.DataFrame:
    """:return: The rows of a CSV file, with numbers"""
    return pd.read_csv(path, float_precision="round_trip")


def by_seed(rows: pd.DataFrame, column: str, **values: Any) -> pd.Series:
    """:return: A column by seed, where other columns have these values; of a seed's rows the newest counts"""
    for name, value in values.items():
        rows = rows[rows[name] == value]
    return rows.groupby("seed")[column].last()


def half_width(values: Sequence[float] | np.ndarray) -> float:
    """:return: Half the width of the 95% t-interval of the mean of independent values; NaN for a single value"""
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)) if len(values) > 1 else math.nan


def paired_interval(left: pd.Series, right: pd.Series, digits: int = 3) -> str:
    """:return: The mean of left - right with its 95% interval, over the seeds that both have; empty if they are the same"""
    differences = (left - right).dropna()
    if not differences.any():
        return ""
    mean, width = differences.mean(), half_width(differences)
    return f"{mean:+.{digits}f} [{mean - width:+.{digits}f}, {mean + width:+.{digits}f}]"
