"""Configurations as the command line makes them: every schedule on every carrier."""

from experiments.session.study import Study
from experiments.study.config import configured
from experiments.study.text import parse_methods


def config_of(carriers="sac", schedules="baseline", **options):
    """A study of the toy task, its steady pattern and one seed, where nothing else is given."""
    methods = parse_methods(carriers, schedules)
    return configured(Study(methods=methods, **({"task": "toy", "patterns": "steady", "seeds": 1} | options)))
