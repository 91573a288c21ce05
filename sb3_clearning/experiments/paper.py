"""
The paper's claims about prediction and control beside what was measured here, from the tables in results/.

``python -m sb3_clearning.experiments paper`` writes results/paper.md. What has not been measured is said to be so.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sb3_clearning.experiments import analytic_q, calibration, locomotion, relabel_ratio
from sb3_clearning.experiments.normalization import sums
from sb3_clearning.experiments.suite.config import Suite
from sb3_clearning.experiments.suite.intervals import estimate_of
from sb3_clearning.experiments.suite.report import OURS, cell, compare
from sb3_clearning.experiments.suite.scores import FINAL, Scores
from sb3_clearning.experiments.tables.rows import markdown, read_rows, spread
from sb3_clearning.experiments.tables.statistics import by_seed, half_width, paired_interval, read_frame
from sb3_clearning.experiments.tables.sweep import RESULTS, command_line


class Line(NamedTuple):
    """A claim: the paper's number, what was measured (with seeds and spread), whether it agrees, and if not, why."""

    claim: str
    theirs: str
    ours: str
    verdict: str


#: The two readings of Q as a density.
READINGS = {"ratio": "Q times the marginal", "density": "Q itself"}


def _kl(rows: pd.DataFrame, setting: str, method: str, reading: str = "ratio") -> pd.Series:
    return by_seed(rows, "kl", setting=setting, method=method, reading=reading)


def _q_methods(rows: pd.DataFrame) -> list[str]:
    """:return: Q-learning in the paper's setting, with each relabelling ratio"""
    return [name for name in dict.fromkeys(rows["method"]) if name.startswith("Q") and "larger" not in name]


def _text(found: pd.Series) -> str:
    return f"{spread(found, 3)} ({len(found)} seeds)"


def _kl_of_both(mc: pd.Series, td: pd.Series) -> str:
    return f"KL MC {_text(mc)}, TD {_text(td)}; MC - TD {paired_interval(mc, td)}"


def _verdict(holds: bool, why: str = "") -> str:
    return f"{'agrees' if holds else 'does not agree'}{': ' + why if why else ''}"


def gridworld_lines(rows: pd.DataFrame) -> list[Line]:
    """:return: The claims on on- and off-policy prediction"""
    lines = []
    mc, td = _kl(rows, "on-policy", "MC"), _kl(rows, "on-policy", "TD")
    if len(mc) and len(td):
        close = bool(abs(mc.mean() - td.mean()) < 0.1)
        verdict = _verdict(close, f"the means are {'less than' if close else 'at least'} 0.1 apart")
        lines.append(Line("On-policy, MC and TD C-learning perform similarly", "-", _kl_of_both(mc, td), verdict))
    for setting, theirs, claim in (
        ("on-policy", "more than 3 times", "On-policy, Q-learning's error is more than three times that of C-learning"),
        ("off-policy", "TD 14% below Q", "Off-policy, TD C-learning is more accurate than Q-learning"),
    ):
        td, mc = _kl(rows, setting, "TD"), _kl(rows, setting, "MC")
        for reading, text in (("ratio", READINGS["ratio"]), ("density", "Q itself as the density")):
            found = {name: kl for name in _q_methods(rows) if len(kl := _kl(rows, setting, name, reading))}
            if not len(td) or not found:
                continue
            best = min(found, key=lambda name: found[name].mean())
            half, least = _kl(rows, setting, "Q, λ 0.5", reading).mean(), found[best].mean()
            ours = (
                f"{text}: Q {half:.3f} at λ 0.5 ({half / td.mean():.2f} times TD, {half / mc.mean():.2f} times MC), "
                f"{least:.3f} at its best ({best[3:]}; {least / td.mean():.2f} times TD); "
                f"best Q - TD {paired_interval(found[best], td)}, {len(td)} seeds"
            )
            if setting == "on-policy":
                holds = half / td.mean() > 3
                less = "" if holds or not half / mc.mean() > 3 else "but it holds against MC at λ 0.5"
            else:
                holds, less = td.mean() < least, f"TD's KL is {td.mean() / least:.2f} times the best Q's"
            lines.append(Line(claim, theirs, ours, _verdict(holds, less)))
    lines += reading_lines(rows)
    mc, td = _kl(rows, "off-policy", "MC"), _kl(rows, "off-policy", "TD")
    if len(mc) and len(td):
        differences = (mc - td).dropna()
        sure = differences.mean() - half_width(differences) > 0
        verdict = _verdict(bool(differences.mean() > 0), "" if sure else "but the interval holds zero")
        lines.append(Line("Off-policy, TD is better than MC", "-", _kl_of_both(mc, td), verdict))
    even = _kl(rows, "off-policy", "TD, even goals")
    if len(even):
        ours = f"KL {_text(even)}; difference to TD {paired_interval(even, td)}"
        claim = "(ours) Off-policy, TD with random goals that are spread evenly instead of drawn from the data"
        lines.append(Line(claim, "-", ours, "better than the paper's TD" if even.mean() < td.mean() else "no gain"))
    for method in ("MC", "TD"):
        large, small = _kl(rows, "on-policy", f"{method}, larger"), _kl(rows, "on-policy", method)
        if len(large) and len(small):
            claim = f"(ours) {method}, larger network and more steps: the on-policy KL keeps falling"
            ours = f"KL {_text(large)}; difference {paired_interval(large, small)}"
            lines.append(Line(claim, "-", ours, _verdict(large.mean() < small.mean())))
    return lines


def reading_lines(rows: pd.DataFrame) -> list[Line]:
    """:return: Under which reading of Q the paper's two numbers come out, over all relabelling ratios"""
    names = _q_methods(rows)
    if not names or not all(len(_kl(rows, setting, name)) for setting in ("on-policy", "off-policy") for name in names):
        return []
    lines = []
    labels = ", ".join(name[3:] for name in names)
    for setting, method, theirs, low, high in (
        ("on-policy", "MC", "above 3", 3.0, np.inf),
        ("off-policy", "TD", "1 / (1 - 0.14) = 1.16", 1.16, 1.16),
    ):
        reference = _kl(rows, setting, method).mean()
        found = {
            text: [_kl(rows, setting, name, reading).mean() / reference for name in names]
            for reading, text in READINGS.items()
        }
        ours = "; ".join(f"{text}: {', '.join(f'{value:.2f}' for value in values)}" for text, values in found.items())
        out = [text for text, values in found.items() if max(values) > low and min(values) < high]
        claim = f"{setting.capitalize()}, KL of Q over KL of {method}: which reading of Q gives the paper's number?"
        lines.append(Line(claim, theirs, f"({labels}) {ours}", f"comes out with {' and '.join(out) or 'neither'}"))
    return lines


def normalization_lines(rows: pd.DataFrame) -> list[Line]:
    """:return: The claims on sums"""
    lines = []
    for method in ("MC", "TD", "MC, falling rate", "TD, falling rate"):
        totals = sums(rows, method, "ratio")
        if len(totals):
            claim = f"C-learning's predictions sum to 1 ({method})"
            ours = f"{_text(totals)}, from {totals.min():.2f} to {totals.max():.2f}"
            near = 0.9 <= totals.mean() <= 1.1
            lines.append(Line(claim, "1", ours, _verdict(near, f"the mean is {'' if near else 'not '}within 1 ± 0.1")))
    for reading, text in READINGS.items():
        names = sorted({name for name in rows["method"] if name.startswith("Q")})
        means = {name[3:]: found.mean() for name in names if len(found := sums(rows, name, reading))}
        if means:
            below = all(value < 1 for value in means.values())
            falling = list(means.values()) == sorted(means.values(), reverse=True)
            ours = f"{text}: " + ", ".join(f"{value:.2f} ({name})" for name, value in means.items())
            verdict = _verdict(below and falling, "" if below else "above one under this reading")
            lines.append(Line("Q-learning's sum to less than 1, the less the larger λ", "below 1", ours, verdict))
    return lines


def relabel_lines(rows: pd.DataFrame) -> list[Line]:
    """:return: The claims on the best relabelling ratio"""
    lines = []
    for reading, text in READINGS.items():
        curves = {gamma: relabel_ratio.curve(rows, gamma, reading) for gamma in sorted(set(rows["gamma"]))}
        curves = {gamma: found for gamma, found in curves.items() if found}
        near, parts, outperformed = 0, [], 0
        for gamma, found in curves.items():
            best, hypothesis = relabel_ratio.best_of(found), (1 + gamma) / 2
            near += relabel_ratio.grid_steps(list(found), best, hypothesis) <= 1
            outperformed += bool(relabel_ratio.c_learning(rows, gamma, "mc").mean() < found[best].mean())
            ideal = relabel_ratio.curve(rows, gamma, reading, "fixed point")
            parts.append(
                f"γ {gamma}: best λ {best} (KL {spread(found[best], 3)}, {len(found[best])} seeds), hypothesis "
                f"{hypothesis:.3f}, of the exact fixed point {relabel_ratio.best_of(ideal) if ideal else np.nan}"
            )
        if not parts:
            continue
        n, end = len(curves), "1, where it tends to the true ratio" if reading == "ratio" else "0"
        why = (
            f"within one grid step for {near} of {n}; the best λ of the loss's exact fixed point lies at the end of the "
            f"grid near {end}; how far a network follows is a matter of what it can learn, and near 1 it hardly sees "
            "the next states"
        )
        claim = "λ = (1 + γ) / 2 is the best relabelling ratio"
        lines.append(Line(claim, "almost exactly", f"{text}: " + "; ".join(parts), _verdict(near >= min(3, n), why)))
        ours = f"{text}: MC C-learning is better for {outperformed} of {n} γ"
        lines.append(Line("C-learning outperforms Q-learning at its best λ", "-", ours, _verdict(outperformed == n)))
        worst = {gamma: max(kl.mean() for kl in found.values()) for gamma, found in curves.items()}
        uniform = {gamma: relabel_ratio.uniform_kl(rows, gamma) for gamma in curves}
        behind = sum(worst[gamma] > uniform[gamma] for gamma in curves)
        ours = f"{text}: " + "; ".join(f"γ {g}: worst {worst[g]:.3f}, uniform {uniform[g]:.3f}" for g in curves)
        claim = "Too large or too small a λ makes Q-learning worse than a uniform prediction"
        lines.append(Line(claim, "-", ours, _verdict(behind > 0, f"for {behind} of {n} γ, within λ from 0.1 to 0.999")))
    return lines


def analytic_lines(rows: pd.DataFrame) -> list[Line]:
    """:return: The claims on the two examples"""
    found = analytic_q.summary(rows)
    off = analytic_q.largest_differences(found)
    parts = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in off.items()]
    ours = f"largest difference to tabular Q-learning: {', '.join(parts)}"
    verdict = _verdict(off["truth"] > 0.05, "Q is not the future; the formulas need the corrections of results/analytic_q.md")
    first = found["learned"][found["example"] == 1]
    most = f"largest Q of a state for itself: {first.max():.3f} ({len(first)} settings)"
    why = "" if first.max() > 1 else "it cannot be: targets lie within [0, 1]"
    return [
        Line("Q-learning's fixed point is not the future (two examples)", "closed forms", ours, verdict),
        Line("Example 1: Q is greater than 1", "above 1", most, _verdict(first.max() > 1, why)),
    ]


def locomotion_lines(rows: pd.DataFrame) -> list[Line]:
    """:return: The claims on locomotion"""
    lines = []
    for task, mine in rows.groupby("task", sort=False):
        found = {
            gamma: {method: locomotion.errors_of(rows, task, method, gamma) for method in locomotion.METHODS}
            for gamma in sorted(set(mine["gamma"]))
        }
        found = {gamma: errors for gamma, errors in found.items() if all(map(len, errors.values()))}
        if not found:
            continue
        parts, leads = [], []
        for gamma, errors in found.items():
            leads.append(errors["model"].mean() > min(errors["mc"].mean(), errors["td"].mean()))
            mc, td, model = (spread(errors[method], 3) for method in ("mc", "td", "model"))
            parts.append(f"γ {gamma}: MC {mc}, TD {td}, model {model}")
        holds = not leads[0] and leads[-1]
        why = "crosses" if holds else "the model is behind throughout" if leads[0] else "the model stays ahead"
        first, last = found[min(found)], found[max(found)]
        n = min(len(errors[method]) for errors in (first, last) for method in ("model", "mc"))
        crossing = (first["model"][:n] < first["mc"][:n]) & (last["model"][:n] > last["mc"][:n])
        claim = f"{task}: the one-step model is better for small γ and worse for large ones"
        why += f", with MC in {crossing.sum()} of {n} seeds"
        lines.append(Line(claim, "-", f"{'; '.join(parts)} ({n} seeds)", _verdict(holds, why)))
    return lines


def calibration_lines(rows: pd.DataFrame) -> list[Line]:
    """:return: How well probabilities are calibrated"""
    lines = []
    for task, method in dict.fromkeys(zip(rows["task"], rows["method"], strict=True)):
        errors = calibration.calibration_errors(rows, task, method)
        ours = f"expected calibration error {spread(errors, 4)} ({len(errors)} seeds)"
        good = "well calibrated (≤ 0.05)" if errors.mean() <= 0.05 else "not well calibrated (> 0.05)"
        lines.append(Line(f"(ours) probabilities of events, {task}, {method.upper()}", "-", ours, good))
    return lines


SECTIONS: dict[str, Callable[[pd.DataFrame], list[Line]]] = {
    "gridworld": gridworld_lines,
    "normalization": normalization_lines,
    "relabel_ratio": relabel_lines,
    "analytic_q": analytic_lines,
    "locomotion": locomotion_lines,
    "calibration": calibration_lines,
}


CONTROL = (
    "The paper's main figure: the distance to the goal at the end of the episodes, from the rows of the suite. Means over "
    "seeds with 95% bootstrap intervals. The paper trains for up to 3 million steps, these runs for 30,000 or 60,000. Ahead, "
    "behind: the intervals of the two best do not overlap. Only methods that read no reward, as in the paper."
)
#: Where an object is moved: the paper's "substantially better than all baselines".
MANIPULATION = ("SawyerDrawer-v0", "SawyerPush-v0", "SawyerWindow-v0")


def control_lines(scores: Scores, rivals: Sequence[str]) -> list[Line]:
    """
    :param rivals: The methods that the paper compares with: none reads a reward
    :return: For each task of the paper's main figure the order of the methods by final distance, the figure's measure
    """
    lines = []
    for task in scores.tasks:
        found = {name: estimate_of(values) for name in rivals if len(values := scores.final(task, name, FINAL))}
        ours = scores.final(task, OURS, FINAL)
        texts = [f"{name} {cell(scores, task, name, FINAL)}" for name in sorted(found, key=lambda name: found[name].value)]
        missing = [f"{name} {scores.state(task, name)}" for name in rivals if name not in found and scores.seeds(task, name)]
        theirs = "ahead of all" if task in MANIPULATION else "level with the best, or ahead"
        verdict = "–"
        if len(ours) and found:
            estimate = estimate_of(ours)
            texts.insert(
                sum(one.value < estimate.value for one in found.values()), f"**{OURS} {cell(scores, task, OURS, FINAL)}**"
            )
            best = min(found.values(), key=lambda one: one.value)
            place = compare(estimate, best, FINAL.better)
            decided = place in ("ahead", "level", "behind")
            verdict = (
                _verdict(place == "ahead" or (place == "level" and task not in MANIPULATION), place) if decided else place
            )
        else:
            missing.insert(0, f"{OURS} {scores.state(task, OURS)}")
        lines.append(Line(task, theirs, ", ".join([*texts, *missing]), verdict))
    return lines


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = command_line("paper", __doc__)
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the tables are, and paper.md goes")
    output = parser.parse_args(argv).output
    lines = []
    for name, section in SECTIONS.items():
        path = output / f"{name}.csv"
        lines += section(read_frame(path)) if path.exists() else [Line(f"`{name}`", "", "not measured yet", "")]
    text = (
        "Made by `python -m sb3_clearning.experiments paper` from the tables in this folder; each comes from the experiment "
        "of its name. Mean ± standard deviation over seeds; differences are paired over seeds, with 95% intervals."
    )
    report = ["# The paper's claims", "", text, "", "## Prediction", ""]
    report += markdown(["claim", "the paper's number", "ours", "verdict"], lines)
    suite = Suite.load()
    scores = Scores(read_rows(output / "suite" / "suite.csv"), suite.runs(["paper"]))
    rivals = [method for method in scores.methods if method not in {OURS, *suite.non_baselines()}]
    report += ["", "## Control", "", CONTROL, ""]
    report += markdown(["task", f"the paper: {OURS} is", "ours, best first", "verdict"], control_lines(scores, rivals))
    (output / "paper.md").write_text("\n".join([*report, ""]))
    print((output / "paper.md").read_text())
