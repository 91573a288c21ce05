"""rl-zoo3's commands with our algorithms, where the startup hook is out of reach: `python -m sb3_clearning.zoo train …`."""

import runpy
import sys

from sb3_clearning.zoo.registration import register

#: Each command and the module that is run for it: rl-zoo3's own, and one of ours.
COMMANDS = {
    "train": "rl_zoo3.train",
    "enjoy": "rl_zoo3.enjoy",
    "record_video": "rl_zoo3.record_video",
    "plot_train": "rl_zoo3.plots.plot_train",
    "plot_from_file": "rl_zoo3.plots.plot_from_file",
    "all_plots": "rl_zoo3.plots.all_plots",
    "study_report": "sb3_clearning.zoo.study_report",
}


def main() -> None:
    """Register ours, then run rl-zoo3's own command with the other arguments."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in COMMANDS:
        usage = f"usage: python -m sb3_clearning.zoo {{{','.join(COMMANDS)}}} …"
        if name in ("-h", "--help"):
            print(
                f"{usage}\n\nrl-zoo3's commands with the algorithms and tasks of sb3_clearning; each has a --help of its own."
            )
            return
        raise SystemExit(f"{usage}\nerror: there is no command {name!r}")
    try:
        register()
    except ImportError as error:
        raise SystemExit(
            f'rl-zoo3 can not be imported ({error}). Install it with: pip install "sb3_clearning[zoo]"'
        ) from error
    del sys.argv[1]
    runpy.run_module(COMMANDS[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
