"""`aesjax status`: the parts of a study"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.cli.errors import DONE, refusing


@dataclass
class Status:
    """Show the parts of a study that `aesjax submit` began: how far they are, which failed and what they said last."""

    directory: tyro.conf.Positional[Path]
    """Folder of the study."""


def execute(options: Status) -> int:
    """Print a line for each part, then the last words of those that stand."""
    from experiments.study import store
    from experiments.study.parts import read_plan, statuses

    with refusing():
        plan = read_plan(options.directory)
        parts = statuses(options.directory, plan)
    joined = (options.directory / store.MANIFEST).exists()
    done = [part for part in parts if part.state == "done"]
    print(
        f"{options.directory}: {sum(part.runs for part in parts)} runs in {plan.parts} parts on "
        f"{plan.cluster['name']}, {len(done)} done{', joined' if joined else ''}"
    )
    width = max(len(part.state) for part in parts)
    for part in parts:
        more = f"  {part.diverged} diverged" if part.diverged else ""
        more += f"  job {part.job}" if part.job else ""
        print(f"  part {part.number}  {part.state:<{width}}  {part.runs} runs  {100 * part.done:5.1f} %{more}")
    standing = [part for part in parts if part.state.startswith(("failed", "interrupted", "lost"))]
    for part in standing:
        if part.last:
            print(f"part {part.number}, the last lines of {part.log}:")
        print(*(f"  | {line}" for line in part.last), sep="\n")
    if standing:
        own = " and the options of the study" if plan.outside else ""
        print(f"train them again:  aesjax submit --resume --out {options.directory}{own}")
    elif len(done) == plan.parts and not joined:
        print(f"make one study of them:  aesjax join {options.directory}")
    return DONE
