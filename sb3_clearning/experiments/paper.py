"""
The paper's claims about prediction beside what was measured here, from the tables in results/.

``python -m sb3_clearning.experiments paper`` writes results/paper.md. What has not been measured is said to be so.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sb3_clearning.experiments import calibration, gridworld, locomotion, relabel_ratio
from sb3_clearning.experiments.analytic_q import Formulas, summary
from sb3_clearning.experiments.tables.rows import Rows, read_rows, spread
from sb3_clearning.experiments.tables.statistics import half_width, paired_differences, paired_interval
from sb3_clearning.experiments.tables.sweep import RESULTS, command_line


class Line(NamedTuple):
    """
    A claim.

    :param claim: What the paper says
    :param theirs: Its number
    :param ours: What was measured, with seeds and spread
    :param verdict: Whether it agrees, and why not
    """

    claim: str
    theirs: str
    ours: str
    verdict: str


def _kl(rows: Rows, setting: str, method: str, reading: str = "ratio") -> dict[int, float]:
    return gridworld.by_seed(rows, setting, method, reading)


def _text(found: dict[int, float]) -> str:
    return f"{spread(found.values(), 3)} ({len(found)} seeds)" if found else "not measured"


def _best_q(rows: Rows, setting: str, reading: str) -> tuple[str, dict[int, float]]:
    """:return: The relabelling ratio with the least mean KL in the paper's setting, and its values"""
    names = {row["method"] for row in rows if row["method"].startswith("Q") and "larger" not in row["method"]}
    found = {name: _kl(rows, setting, name, reading) for name in names}
    best = min((name for name in found if found[name]), key=lambda name: np.mean(list(found[name].values())))
    return best, found[best]


def _verdict(holds: bool, why: str = "") -> str:
    return f"{'agrees' if holds else 'does not agree'}{': ' + why if why else ''}"


def gridworld_lines(rows: Rows) -> list[Line]:
    """:return: The claims on on- and off-policy prediction"""
    lines = []
    mc, td = _kl(rows, "on-policy", "MC"), _kl(rows, "on-policy", "TD")
    if mc and td:
        close = bool(abs(np.mean(list(mc.values())) - np.mean(list(td.values()))) < 0.1)
        ours = f"KL MC {_text(mc)}, TD {_text(td)}; MC - TD {paired_interval(mc, td)}"
        verdict = _verdict(close, f"the means are {'less than' if close else 'at least'} 0.1 apart")
        lines.append(Line("On-policy, MC and TD C-learning perform similarly", "-", ours, verdict))
    for setting, theirs, claim in (
        ("on-policy", "more than 3 times", "On-policy, Q-learning's error is more than three times that of C-learning"),
        ("off-policy", "TD 14% below Q", "Off-policy, TD C-learning is more accurate than Q-learning"),
    ):
        td = _kl(rows, setting, "TD")
        for reading, text in (("ratio", "Q times the marginal"), ("density", "Q itself as the density")):
            if not td or not any(row["setting"] == setting and row["method"].startswith("Q") for row in rows):
                continue
            half = _kl(rows, setting, "Q, λ 0.5", reading)
            best, values = _best_q(rows, setting, reading)
            mean_td, mean_mc, mean_half, mean_best = (
                float(np.mean(list(found.values()))) if found else np.nan
                for found in (td, _kl(rows, setting, "MC"), half, values)
            )
            ours = (
                f"{text}: Q {mean_half:.3f} at λ 0.5 ({mean_half / mean_td:.2f} times TD, "
                f"{mean_half / mean_mc:.2f} times MC), "
                f"{mean_best:.3f} at its best ({best[3:]}; {mean_best / mean_td:.2f} times TD); "
                f"best Q - TD {paired_interval(values, td)}, {len(td)} seeds"
            )
            if setting == "on-policy":
                holds = mean_half / mean_td > 3
                less = "" if holds or not mean_half / mean_mc > 3 else "but it holds against MC at λ 0.5"
            else:
                holds, less = mean_td < mean_best, f"TD's KL is {mean_td / mean_best:.2f} times the best Q's"
            lines.append(Line(claim, theirs, ours, _verdict(holds, less)))
    lines += reading_lines(rows)
    mc, td = _kl(rows, "off-policy", "MC"), _kl(rows, "off-policy", "TD")
    if mc and td:
        differences = paired_differences(mc, td)
        sure = differences.mean() - half_width(differences) > 0
        ours = f"KL MC {_text(mc)}, TD {_text(td)}; MC - TD {paired_interval(mc, td)}"
        verdict = _verdict(bool(differences.mean() > 0), "" if sure else "but the interval holds zero")
        lines.append(Line("Off-policy, TD is better than MC", "-", ours, verdict))
    even = _kl(rows, "off-policy", "TD, even goals")
    if even:
        better = np.mean(list(even.values())) < np.mean(list(td.values()))
        ours = f"KL {_text(even)}; difference to TD {paired_interval(even, td)}"
        claim = "(ours) Off-policy, TD with random goals that are spread evenly instead of drawn from the data"
        lines.append(Line(claim, "-", ours, "better than the paper's TD" if better else "no gain"))
    for method in ("MC, larger", "TD, larger"):
        found, small = _kl(rows, "on-policy", method), _kl(rows, "on-policy", method.split(",")[0])
        if found and small:
            falls = np.mean(list(found.values())) < np.mean(list(small.values()))
            lines.append(
                Line(f"(ours) {method} network and more steps: the on-policy KL keeps falling", "-",
                     f"KL {_text(found)}; difference {paired_interval(found, small)}", _verdict(bool(falls)))
            )  # fmt: skip
    return lines


def reading_lines(rows: Rows) -> list[Line]:
    """:return: Under which reading of Q the paper's two numbers come out, over all relabelling ratios"""
    names = [name for name in dict.fromkeys(row["method"] for row in rows) if name.startswith("Q") and "larger" not in name]

    def ratios(setting: str, method: str, reading: str) -> list[float]:
        """:return: For each relabelling ratio Q's mean KL, divided by that of the method"""
        reference = np.mean(list(_kl(rows, setting, method).values()))
        return [float(np.mean(list(_kl(rows, setting, name, reading).values())) / reference) for name in names]

    if not names or not all(_kl(rows, setting, name) for setting in ("on-policy", "off-policy") for name in names):
        return []
    lines = []
    texts = {"ratio": "Q times the marginal", "density": "Q itself"}
    labels = ", ".join(name[3:] for name in names)
    for setting, method, theirs, low, high in (
        ("on-policy", "MC", "above 3", 3.0, np.inf),
        ("off-policy", "TD", "1 / (1 - 0.14) = 1.16", 1.16, 1.16),
    ):
        found = {reading: ratios(setting, method, reading) for reading in texts}
        ours = "; ".join(f"{texts[key]}: {', '.join(f'{value:.2f}' for value in values)}" for key, values in found.items())
        out = [texts[key] for key, values in found.items() if max(values) > low and min(values) < high]
        claim = f"{setting.capitalize()}, KL of Q over KL of {method}: which reading of Q gives the paper's number?"
        lines.append(Line(claim, theirs, f"({labels}) {ours}", f"comes out with {' and '.join(out) or 'neither'}"))
    return lines


def normalization_lines(rows: Rows) -> list[Line]:
    """:return: The claims on sums"""
    lines = []
    for method in ("MC", "TD", "MC, falling rate", "TD, falling rate"):
        totals = gridworld.by_seed(rows, "on-policy", method, "ratio", "total")
        if totals:
            mean = float(np.mean(list(totals.values())))
            claim = f"C-learning's predictions sum to 1 ({method})"
            ours = f"{_text(totals)}, from {min(totals.values()):.2f} to {max(totals.values()):.2f}"
            near = 0.9 <= mean <= 1.1
            lines.append(Line(claim, "1", ours, _verdict(near, f"the mean is {'' if near else 'not '}within 1 ± 0.1")))
    for reading, text in (("ratio", "Q times the marginal"), ("density", "Q itself")):
        names = sorted({row["method"] for row in rows if row["method"].startswith("Q")})
        sums = {name: gridworld.by_seed(rows, "on-policy", name, reading, "total") for name in names}
        means = {name[3:]: float(np.mean(list(found.values()))) for name, found in sums.items() if found}
        if means:
            below = all(value < 1 for value in means.values())
            falling = list(means.values()) == sorted(means.values(), reverse=True)
            ours = f"{text}: " + ", ".join(f"{value:.2f} ({name})" for name, value in means.items())
            verdict = _verdict(below and falling, "" if below else "above one under this reading")
            lines.append(Line("Q-learning's sum to less than 1, the less the larger λ", "below 1", ours, verdict))
    return lines


def relabel_lines(rows: Rows) -> list[Line]:
    """:return: The claims on the best relabelling ratio"""
    lines = []
    for reading, text in (("ratio", "Q times the marginal"), ("density", "Q itself")):
        near, parts, outperformed = 0, [], 0
        gammas = [gamma for gamma in relabel_ratio.gammas_of(rows) if relabel_ratio.curve(rows, gamma, reading)]
        for gamma in gammas:
            found = relabel_ratio.curve(rows, gamma, reading)
            best = min(found, key=lambda value: found[value].mean())
            steps = relabel_ratio.grid_steps(list(found), best, (1 + gamma) / 2)
            near += steps <= 1
            mc = relabel_ratio.c_learning(rows, gamma, "mc")
            outperformed += bool(len(mc)) and bool(mc.mean() < found[best].mean())
            ideal = relabel_ratio.curve(rows, gamma, reading, "fixed point")
            exact = min(ideal, key=lambda value: ideal[value].mean(), default=np.nan)
            parts.append(
                f"γ {gamma}: best λ {best} (KL {spread(found[best], 3)}, {len(found[best])} seeds), hypothesis "
                f"{(1 + gamma) / 2:.3f}, of the exact fixed point {exact}"
            )
        if parts:
            holds = near >= min(3, len(gammas))
            end = "1, where it tends to the true ratio" if reading == "ratio" else "0"
            why = (
                f"the best λ of the loss's exact fixed point lies at the end of the grid near {end}; how far a network "
                "follows is a matter of what it can learn, and near 1 it hardly sees the next states"
            )
            lines.append(
                Line("λ = (1 + γ) / 2 is the best relabelling ratio", "almost exactly", f"{text}: " + "; ".join(parts),
                     _verdict(holds, f"within one grid step for {near} of {len(gammas)}; {why}"))
            )  # fmt: skip
            ours = f"{text}: MC C-learning is better for {outperformed} of {len(gammas)} γ"
            verdict = _verdict(outperformed == len(gammas))
            lines.append(Line("C-learning outperforms Q-learning at its best λ", "-", ours, verdict))
            worst = {gamma: max(found.mean() for found in relabel_ratio.curve(rows, gamma, reading).values())
                     for gamma in gammas}  # fmt: skip
            behind = [gamma for gamma in gammas if worst[gamma] > relabel_ratio.uniform_kl(rows, gamma)]
            ours = f"{text}: " + "; ".join(
                f"γ {gamma}: worst {worst[gamma]:.3f}, uniform {relabel_ratio.uniform_kl(rows, gamma):.3f}" for gamma in gammas
            )
            why = f"for {len(behind)} of {len(gammas)} γ, within λ from 0.1 to 0.999"
            claim = "Too large or too small a λ makes Q-learning worse than a uniform prediction"
            lines.append(Line(claim, "-", ours, _verdict(bool(behind), why)))
    return lines


def analytic_lines(rows: Rows) -> list[Line]:
    """:return: The claims on the two examples"""
    found = summary(rows).values()
    off = {name: max(abs(one[name] - one["learned"]) for one in found) for name in Formulas._fields}
    parts = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in off.items()]
    ours = f"largest difference to tabular Q-learning: {', '.join(parts)}"
    verdict = _verdict(off["truth"] > 0.05, "Q is not the future; the formulas need the corrections of results/analytic_q.md")
    first = [one["learned"] for key, one in summary(rows).items() if key[0] == "1"]
    most = f"{max(first):.3f} ({len(first)} settings)"
    why = "" if max(first) > 1 else "it cannot be: targets lie within [0, 1]"
    return [
        Line("Q-learning's fixed point is not the future (two examples)", "closed forms", ours, verdict),
        Line("Example 1: Q is greater than 1", "above 1", f"largest Q of a state for itself: {most}",
             _verdict(max(first) > 1, why)),
    ]  # fmt: skip


def locomotion_lines(rows: Rows) -> list[Line]:
    """:return: The claims on locomotion"""
    lines = []
    for task in dict.fromkeys(row["task"] for row in rows):
        gammas = sorted({float(row["gamma"]) for row in rows if row["task"] == task})
        parts, leads = [], []
        for gamma in gammas:
            errors = {method: locomotion.values(rows, task, method, gamma) for method in locomotion.METHODS}
            if all(len(values) for values in errors.values()):
                means = {method: float(values.mean()) for method, values in errors.items()}
                leads.append(means["model"] > min(means["mc"], means["td"]))
                texts = {method: spread(values, 3) for method, values in errors.items()}
                parts.append(f"γ {gamma}: MC {texts['mc']}, TD {texts['td']}, model {texts['model']}")
        if parts:
            holds = not leads[0] and leads[-1]
            why = "crosses" if holds else "the model is behind throughout" if leads[0] else "the model stays ahead"
            pairs = [
                [locomotion.values(rows, task, method, gamma) for method in ("model", "mc")]
                for gamma in (gammas[0], gammas[-1])
            ]
            n = min(len(found) for pair in pairs for found in pair)
            crossing = sum(bool(pairs[0][0][i] < pairs[0][1][i] and pairs[1][0][i] > pairs[1][1][i]) for i in range(n))
            why += f", with MC in {crossing} of {n} seeds"
            lines.append(
                Line(
                    f"{task}: the one-step model is better for small γ and worse for large ones",
                    "-",
                    f"{'; '.join(parts)} ({n} seeds)",
                    _verdict(holds, why),
                )
            )
    return lines


def calibration_lines(rows: Rows) -> list[Line]:
    """:return: How well probabilities are calibrated"""
    lines = []
    for task, method in dict.fromkeys((row["task"], row["method"]) for row in rows):
        errors = calibration.calibration_errors(rows, task, method)
        ours = f"expected calibration error {spread(errors, 4)} ({len(errors)} seeds)"
        good = "well calibrated (≤ 0.05)" if np.mean(errors) <= 0.05 else "not well calibrated (> 0.05)"
        lines.append(Line(f"(ours) probabilities of events, {task}, {method.upper()}", "-", ours, good))
    return lines


SECTIONS: dict[str, Callable[[Rows], list[Line]]] = {
    "gridworld": gridworld_lines,
    "normalization": normalization_lines,
    "relabel_ratio": relabel_lines,
    "analytic_q": analytic_lines,
    "locomotion": locomotion_lines,
    "calibration": calibration_lines,
}


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = command_line("paper", __doc__)
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the tables are, and paper.md goes")
    output = parser.parse_args(argv).output
    lines = [
        "# The paper's claims about prediction",
        "",
        "Made by `python -m sb3_clearning.experiments paper` from the tables in this folder; each comes from the "
        "experiment of its "
        "name. Mean ± standard deviation over seeds; differences are paired over seeds, with 95% intervals.",
        "",
        "| claim | the paper's number | ours | verdict |",
        "|---|---|---|---|",
    ]
    for name, section in SECTIONS.items():
        rows = read_rows(output / f"{name}.csv")
        found = section(rows) if rows else [Line(f"`{name}`", "", "not measured yet", "")]
        lines += [f"| {line.claim} | {line.theirs} | {line.ours} | {line.verdict} |" for line in found]
    path = output / "paper.md"
    path.write_text("\n".join([*lines, ""]))
    print(path.read_text())
