"""Configurations as the command line makes them: every schedule on every carrier."""

import dataclasses

from experiments.session.study import Study
from experiments.study.config import configured
from experiments.study.folder import claim
from experiments.study.prepare import prepare
from experiments.study.program import Plan
from experiments.study.text import parse_methods
from experiments.study.train import train


def config_of(carriers="sac", schedules="baseline", **options):
    """A study of the toy task, its steady pattern and one seed, where nothing else is given."""
    methods = parse_methods(carriers, schedules)
    return configured(Study(methods=methods, **({"task": "toy", "patterns": "steady", "seeds": 1} | options)))


def small_ppo(schedules="baseline", evaluations=5, rollout=8, **options):
    """PPO on a small network, which compiles fastest, evaluated on one episode."""
    config = config_of("ppo", schedules, **({"steps": 3200} | options))
    own = config.settings["ppo"]
    settings = {"ppo": dataclasses.replace(own, config={**own.config, "rollout": rollout, "hidden": (8,)})}
    return dataclasses.replace(config, evaluations=evaluations, episodes=1, settings=settings)


def train_study(config, directory, resume=False, **options):
    """Train a study into a folder."""
    plan = Plan(config)
    prepared = prepare(plan)
    return train(plan, claim(config, directory, resume=resume), prepared, **options)
