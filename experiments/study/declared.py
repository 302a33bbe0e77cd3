"""The options of a study, each declared once: default, help and group. `StudyOptions` and the command line read them.

Nothing here imports JAX, so that `aesjax --help` answers at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

WHAT, SIZES, TASK, OUTPUT, CLUSTER = "what is compared", "sizes", "task", "output", "cluster"

#: With `--observe drift`, in notes and reports.
OBSERVED = "the true drift: a reference, neither a method nor an upper bound"


class Option(NamedTuple):
    """One option."""

    default: Any
    group: str
    help: str
    type: Any = str  # at the shell; `str` and numbers may be absent
    metavar: str = "NAME"


#: In the order in which commands show them. At the shell ``methods`` are --carriers and --schedules.
OPTIONS: dict[str, Option] = {
    "patterns": Option("all", WHAT, "Drift patterns, comma-separated, or all: the paper's five.", metavar="NAMES"),
    "seeds": Option("1:5", WHAT, "Training seeds: 1:5 (both ends included), 1,2,7, or a mix.", metavar="SEEDS"),
    "preset": Option("quick", SIZES, "Sizes: quick (minutes) or paper; mujoco-warm for --warm-start."),
    "task": Option(
        "toy", TASK, "Task; see `aesjax list tasks`. bridge:NAME is one of an installed Isaac Gym or Isaac Lab."
    ),
    "steps": Option(None, SIZES, "Environment steps of a run; by default the preset's.", int, "N"),
    "num_envs": Option(None, SIZES, "Parallel environments of a run; by default the preset's.", int, "N"),
    "evaluations": Option(
        None,
        SIZES,
        "Evaluations of a run, evenly spaced, besides the one before it; by default the preset's.",
        int,
        "N",
    ),
    "proxy": Option("td_quantile", WHAT, "Drift proxy of the schedules that use one."),
    "source": Option(
        None,
        WHAT,
        "Transitions that the proxy reads: update (the update batch) or fresh (the newest); by default "
        "each schedule's own.",
    ),
    "drift_seed": Option(
        None, WHAT, "One drift sample for all seeds; by default each training seed has its own.", int, "N"
    ),
    "sweep": Option(
        (),
        WHAT,
        "Hyper-parameter axis NAME=V1,V2,...; may be given several times. All values train in one program.",
        tuple,
        "NAME=V1,V2",
    ),
    "engine": Option(
        None,
        TASK,
        "Physics of a MuJoCo or Isaac task: mujoco (C), mjx, warp, or auto (C on a CPU, Warp on CUDA, else MJX).",
    ),
    "observation": Option(
        None,
        TASK,
        "Observation of ant and humanoid: v5, or v4 without contact forces in ant and with all rows in "
        "humanoid; of isaac_allegro_hand: full_state, full or full_no_vel.",
    ),
    "variant": Option(
        None, TASK, "Constants of an Isaac task: gym, those of Isaac Gym, or omni, those of its successor."
    ),
    "channels": Option(
        None,
        TASK,
        "Drifting parameters, comma-separated, each perhaps with a range (body_mass=0.5:1.5). MuJoCo: "
        "body_mass, joint_friction (the default both), geom_friction, leg_gain, direction, "
        "target_velocity, or hard, the first, second and fourth with wide ranges; Isaac: gravity, "
        "joint_damping (the default both).",
        metavar="NAMES",
    ),
    "observe": Option(
        None,
        TASK,
        "drift: policy and critics also observe the true values of the drifting parameters, each scaled to -1 to 1 "
        "over its range. A reference, neither a method nor an upper bound.",
        metavar="drift",
    ),
    "timeout": Option(None, TASK, "Seconds for a step of a bridged task's simulator; 120 by default.", float, "S"),
    "controls_from": Option(
        None, WHAT, "Folder of the finished study whose runs the controls among --schedules play.", Path, "DIR"
    ),
    "start": Option(
        None,
        WHAT,
        "Begin with trained agents: the folder of a finished study on the pattern steady, or of exported "
        "agents. Seed by seed where there are as many.",
        Path,
        "DIR",
    ),
    "layer_norm": Option(
        False,
        WHAT,
        "Normalise the hidden layers of every carrier's critic; weight decay is an axis, --sweep weight_decay=0,1e-2.",
        bool,
    ),
    "plasticity": Option(
        False, OUTPUT, "Log at every evaluation dormant units, effective rank, norms of weights and gradients.", bool
    ),
    "counterfactual": Option(
        False,
        OUTPUT,
        "Evaluate every policy also under drift values that are not in force: nominal, those before the "
        "last change and after the next, and both ends of the range (columns return_nominal, "
        "return_previous, ...).",
        bool,
    ),
    "block": Option(
        None,
        CLUSTER,
        "Train only these runs of the study, 1:40 for the first forty of all carriers in table order. `aesjax submit` "
        "divides a study into such blocks and `aesjax join` makes one study of them.",
        metavar="FIRST:LAST",
    ),
}

#: Options of the shell alone that belong to the study.
SHELL: dict[str, Option] = {
    "study": Option(
        "default",
        WHAT,
        "Named study that sets carriers, schedules, patterns, seeds and preset, unless they are given; "
        "see `aesjax list studies`.",
    ),
    "carriers": Option(None, WHAT, "Carriers (agents), comma-separated, or all; by default sac.", metavar="NAMES"),
    "schedules": Option(
        None,
        WHAT,
        "Schedules, comma-separated, each with options if need be (aes:proxy=td_mean:lambda_max=inf) and "
        "with adaptations (aes_r+window+refresh:strength=0.5); baseline is the carrier's own weight (SAC: "
        "auto-tuned). By default baseline,aes,aes_r.",
        metavar="NAMES",
    ),
    "config": Option(
        None,
        WHAT,
        "A TOML or JSON file of a study, as Study.to_toml writes it, instead of these options.",
        Path,
        "FILE",
    ),
}

#: Runtime options, which are not part of the study's configuration.
RUNTIME: dict[str, Option] = {
    "out": Option(
        None,
        OUTPUT,
        "Folder for the results; must be new or empty unless --resume is given. By default runs/DATE-TIME-TASK.",
        Path,
        "DIR",
    ),
    "resume": Option(
        False, OUTPUT, "Continue an interrupted study in --out; its options need not be typed again.", bool
    ),
    "dry_run": Option(
        False,
        OUTPUT,
        "Train nothing and write nothing: print runs, memory and the time that a trial of about ten seconds suggests.",
        bool,
    ),
    "quiet": Option(False, OUTPUT, "Show no progress.", bool),
    "report": Option(True, OUTPUT, "Write the report at the end.", bool),
    "tensorboard": Option(
        None, OUTPUT, "Write every logged number as TensorBoard events into this folder while training.", Path, "DIR"
    ),
    "wandb": Option(None, OUTPUT, "Log every run to this Weights & Biases project while training.", metavar="PROJECT"),
    "checkpoint_seconds": Option(30.0, OUTPUT, "Seconds between checkpoints.", float, "S"),
    "devices": Option(None, CLUSTER, "Devices to use; on a CPU one per core by default.", int, "N"),
    "compiled": Option(
        True,
        CLUSTER,
        "Keep compiled programs for later studies of the same shape; `aesjax list programs` says where.",
        bool,
    ),
    "sim_python": Option(
        None,
        TASK,
        "The Python of an Isaac Gym or Isaac Lab installation, for a bridged task; by default AESJAX_ISAAC_PYTHON.",
        Path,
        "FILE",
    ),
}


def flag(name: str) -> str:
    """The word of an option at the shell, without hyphens before it."""
    return {"start": "warm-start"}.get(name, name.replace("_", "-"))


def in_words(given: Mapping[str, Any]) -> list[str]:
    """The words of a command line that stand for options by name; an option with a sequence is given several times.

    >>> in_words({"steps": 4000, "report": False, "sweep": ["kappa=0.1,1"]})
    ['--steps', '4000', '--no-report', '--sweep', 'kappa=0.1,1']
    """
    words = []
    for name, value in given.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{flag(name)}")
        else:
            each = value if isinstance(value, list | tuple) else [value]
            words += [word for item in each for word in (f"--{flag(name)}", str(item))]
    return words
