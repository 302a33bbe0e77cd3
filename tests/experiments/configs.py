"""Configurations as the command line makes them: every schedule on every carrier."""

from experiments.study.options import StudyOptions
from experiments.study.parser import parse


def config_of(carriers="sac", schedules="baseline", **options):
    """A study of the toy task, its steady pattern and one seed, where nothing else is given."""
    methods = parse({"carriers": carriers, "schedules": schedules})["methods"]
    return StudyOptions(methods=methods, **({"task": "toy", "patterns": "steady", "seeds": 1} | options)).resolve()
