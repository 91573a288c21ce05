"""``python -m sb3_clearning.experiments NAME [options]``."""

import importlib
import sys

EXPERIMENTS = {
    "action_rate": "a penalty on the action's rate in the loss of the actor: what was tried",
    "curriculum": "a curriculum of commanded goals on two mazes: what was tried",
    "false_ends": "final observations that are those of the next episode: learning on the maze with and without them",
    "many_envs": "1 to 64 environments and 1 to 1/16 updates per transition, on the maze and two of Sawyer's tasks",
    "core": "CLearning with its defaults on two tasks, five seeds each",
    "demo": "a few minutes on FetchReach: a trained agent, its learning curve and its future density",
    "suite": "CLearning and the Q-learning baselines on the paper's tasks: a matrix of runs, its status and its report",
    "offline": "learning from data alone: mazes, Sawyer's drawer and window, FetchReach; then online",
    "n_steps": "results/n_steps.md: CLearning's success over the number of steps before the bootstrap, from the trials",
    "window": "why episodes of the suite's runs on SawyerWindow-v0 fail",
    "agents": "the best agents of the suite in rl-zoo3's layout, and a short film of each",
    "gridworld": "predictions of C-learning and Q-learning against the exact future, on- and off-policy",
    "normalization": "hypothesis 1: predictions sum to one for C-learning, not for Q-learning",
    "relabel_ratio": "hypothesis 2: Q-learning's error against the relabelling ratio, for several gammas",
    "analytic_q": "the appendix's two examples in closed form, against tabular Q-learning",
    "calibration": "predicted probabilities of events against their frequency in held-out rollouts",
    "trust": "answers about CartPole against rollouts, and whether those that disagree warn",
    "locomotion_data": "trains an agent for each locomotion task and collects its experience",
    "locomotion": "the error of the expected future state against gamma, on Walker2d, Hopper and Ant",
    "visions": "rendered expected futures of HalfCheetah, Ant, Walker2d and Hopper",
    "task_facts": "what the tasks' thresholds and the exploration noise were chosen by: distances without training",
    "paper": "results/paper.md: the paper's claims about prediction, and ours, from the tables",
}


def main() -> None:
    """Run the experiment that the command line names."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in EXPERIMENTS:
        listing = "\n".join(f"  {key:16} {text}" for key, text in EXPERIMENTS.items())
        sys.exit(f"usage: python -m sb3_clearning.experiments NAME [options]\n\n{listing}")
    importlib.import_module(f"sb3_clearning.experiments.{name}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
