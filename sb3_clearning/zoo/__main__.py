"""rl-zoo3's commands where the import hook is not installed: `python -m sb3_clearning.zoo train …`."""

import runpy
import sys

from sb3_clearning.zoo.registration import register

#: The module of each command: rl-zoo3's own, and one of ours.
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
    """Register ours, then run the command with the remaining arguments."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in COMMANDS:
        usage = f"usage: python -m sb3_clearning.zoo {{{','.join(COMMANDS)}}} …"
        if name in ("-h", "--help"):
            print(f"{usage}\n\nrl-zoo3's commands with the algorithms and tasks of sb3_clearning; each has its --help.")
            return
        raise SystemExit(f"{usage}\nerror: there is no command {name!r}")
    try:
        import rl_zoo3  # noqa: F401
    except ImportError as error:
        raise SystemExit(f'rl-zoo3 cannot be imported ({error}). Install it with: pip install "sb3_clearning[zoo]"') from error
    register()
    del sys.argv[1]
    runpy.run_module(COMMANDS[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
