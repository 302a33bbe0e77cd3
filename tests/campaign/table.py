"""What a campaign found: one row per kind of fault, and every failure with how to see it again."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.judge import HARMLESS, Finding, Verdict


def failures(findings: Sequence[Finding]) -> list[Finding]:
    """Those that did harm."""
    return [finding for finding in findings if finding.judgement.verdict not in HARMLESS]


def table(findings: Sequence[Finding]) -> str:
    """Counts per kind and verdict, then the failures."""
    kinds = list(dict.fromkeys(finding.kind for finding in findings))
    width = max(map(len, ["kind", *kinds]))
    columns = ["tried", *Verdict]
    lines = ["  ".join([f"{'kind':<{width}}", *(f"{name:>9}" for name in columns)])]
    for kind in kinds:
        counts = Counter(finding.judgement.verdict for finding in findings if finding.kind == kind)
        numbers = [counts.total(), *(counts[verdict] for verdict in Verdict)]
        lines.append("  ".join([f"{kind:<{width}}", *(f"{number:>9}" for number in numbers)]))
    for finding in failures(findings):
        verdict, detail = finding.judgement
        lines += [f"\n{verdict}: {finding.kind}: {finding.fault}", f"  {detail}"]
        if finding.reproduction:
            lines.append(f"  {finding.reproduction}")
    return "\n".join(line.encode("utf-8", "backslashreplace").decode() for line in lines)


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """All of them as JSON."""
    records = [
        {
            "kind": finding.kind,
            "fault": finding.fault,
            "verdict": finding.judgement.verdict,
            "detail": finding.judgement.detail,
            "reproduction": finding.reproduction,
        }
        for finding in findings
    ]
    path.write_text(json.dumps(records, indent=1) + "\n")
