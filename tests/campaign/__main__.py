"""`python -m tests.campaign`: faults thrown at the command line, counted and judged.

Exit code 1 if any of them did harm. Everything happens in a folder of its own, which is kept if one did.
"""

import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from tests.campaign.campaign import KINDS, LONG, SHORT, campaign
from tests.campaign.judge import HARMLESS
from tests.campaign.processes import environment
from tests.campaign.studies import Bench
from tests.campaign.table import failures, table, write_findings


@dataclass
class Options:
    """Throw faults at the command line and count what happens."""

    long: bool = False
    """The long form: thousands of faults, hours."""
    only: str | None = None
    """Comma-separated kinds: bad_inputs, flips, kills, signals, races, disk, soak; by default all."""
    seed: int = 0
    """Which faults are drawn."""
    out: Path | None = None
    """JSON file for every finding."""
    folder: Path | None = None
    """Where it happens; by default a temporary folder."""


def main(options: Options) -> int:
    """Throw, tell, and say whether all went well."""
    kinds = tuple(KINDS) if options.only is None else tuple(options.only.split(","))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        print(f"unknown kind '{unknown[0]}'; known: {', '.join(KINDS)}", file=sys.stderr)
        return 2
    folder = options.folder or Path(tempfile.mkdtemp(prefix="aesjax-campaign-"))
    cache = folder / "compiled-programs"
    os.environ |= environment(cache)  # workers inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # begun in the background, it would be ignored
    findings = []
    for finding in campaign(Bench(folder, cache), LONG if options.long else SHORT, options.seed, kinds):
        findings.append(finding)
        if finding.judgement.verdict not in HARMLESS:
            text = f"{finding.judgement.verdict}: {finding.kind}: {finding.fault}: {finding.judgement.detail}"
            print(text.encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)
    print(table(findings))
    if options.out is not None:
        write_findings(options.out, findings)
    bad = failures(findings)
    if bad:
        print(f"\n{len(bad)} of {len(findings)} faults did harm; what is left of them is in {folder}")
    elif options.folder is None:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, prog="python -m tests.campaign")))
