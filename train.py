"""Trains from a source checkout: `python train.py --gin_file=gin/dqn_cartpole.gin`."""

import sys

from actor_learner import cli

if __name__ == "__main__":
    sys.exit(cli.main(["train", *sys.argv[1:]]))
