"""What a drift signal should turn: schedules, responses and their controls under every drift, with paired contrasts.

Usage: python experiments/responses_table.py --out DIR [--carrier sac] [--schedules ...] [any option of `aesjax run`]
Trains DIR/methods, then DIR/controls from its record, and writes DIR/answers.md and DIR/answers.json. With --resume
both studies go on where they stopped; a finished one is not trained again.

       python experiments/responses_table.py --out DIR --studies DIR DIR [--carrier sac]
Trains nothing: answers from finished studies of one task, such as those that began with `--warm-start`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.cli.errors import DIVERGED, DONE, guarded, refusing
from experiments.paper.studies import Options, Study, train
from experiments.report.origins import command_by_names
from experiments.study import store
from experiments.study.folder import open_study

#: Whose timing and level are put to the test.
PLAYED = {
    "ppo": ("aes", "aes_r", "aes_c", "aes_c+refresh"),
    "": ("aes", "aes_r", "aes_r+window", "aes_c+window", "aes_c+forget+refresh"),
}


def run_all(argv: list[str]) -> int:
    """Train what is not finished, then answer; a study that could not run ends it with its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for both studies and the answers")
    parser.add_argument("--carrier", default="sac", help="one carrier (default sac)")
    parser.add_argument("--schedules", help="methods to train; by default those of the study `responses`")
    parser.add_argument("--played", help="methods whose timing and level controls test, comma-separated")
    parser.add_argument("--studies", type=Path, nargs="+", help="finished studies to answer from instead of training")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier call stopped")
    arguments, rest = parser.parse_known_args(argv)
    if arguments.studies and (rest or arguments.resume or arguments.schedules or arguments.played):
        parser.error("--studies trains nothing; leave out what is about training")
    return guarded(lambda: _read(arguments) if arguments.studies else _run_all(arguments, rest))


def _read(arguments: argparse.Namespace) -> int:
    with refusing():
        made = dict.fromkeys(_command(directory) for directory in arguments.studies)  # one command may make several
        _answer(arguments.studies, arguments.carrier, arguments.out, list(made))
    return DONE


def _command(directory: Path) -> str:
    """What made a finished study, by the names of the folders that it read."""
    results = open_study(directory, ended=True).ended
    return command_by_names(results.manifest.get("command", f"(unknown: {directory.name})"), results.config)


def _answer(directories: Sequence[Path], carrier: str, out: Path, command: Sequence[str]) -> None:
    from experiments.report.questions import answer, markdown, plain

    answers = answer(directories, carrier)
    out.mkdir(parents=True, exist_ok=True)
    store.write_text(out / "answers.md", markdown(answers, command))
    store.write_json(out / "answers.json", plain(answers, command))
    print(f"answers: {out / 'answers.md'}")


def _run_all(arguments: argparse.Namespace, rest: list[str]) -> int:
    carrier, out = arguments.carrier, arguments.out
    played = arguments.played.split(",") if arguments.played else PLAYED.get(carrier, PLAYED[""])
    own = ["--schedules", arguments.schedules] if arguments.schedules else []
    study = "responses_ppo" if carrier == "ppo" else "responses"
    entries = ",".join(f"{control}:of={of}" for control in ("constant_at_mean", "permuted") for of in played)
    common = ["--study", study, "--carriers", carrier]
    methods = Study("methods", (*common, *own))
    controls = Study("controls", (*common, "--schedules", entries, "--controls-from", str(out / methods.name)))
    with refusing():
        code = train(Options(out, resume=arguments.resume), [methods, controls], rest)
    if code not in (DONE, DIVERGED):
        return code
    chosen = [f"--schedules {arguments.schedules}"] if arguments.schedules else []
    chosen += [f"--played {arguments.played}"] if arguments.played else []
    command = [" ".join(["python experiments/responses_table.py --out DIR --carrier", carrier, *chosen, *rest])]
    _answer([out / methods.name, out / controls.name], carrier, out, command)
    return DONE


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))
