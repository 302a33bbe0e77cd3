"""Tables and the figure of the study of detection."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from aesjax.schedules import aes_c, aes_r, value_loss
from experiments.theory.detection_methods import METHODS, ratios
from experiments.theory.detection_parts import RISES

_LABELS = {name: method.label for name, method in METHODS.items()} | {"shipped": "AES-C as shipped"}


def tables(data: dict[str, Any]) -> str:
    """Markdown: synthetic streams, streams without change, recorded proxies."""
    parts = [
        "Found within 1 000 rounds (median rounds), each method set to at most 5 % of quiet streams with an alarm in "
        "4 000 rounds;\nfalse: share on fresh quiet streams.\n",
        "| stream | method | setting | false | " + " | ".join(f"x {r:g}" for r in RISES) + " |",
        "|---" * (4 + len(RISES)) + "|",
    ]
    for family, rows in data["synthetic"].items():
        for name, row in rows.items():
            cells = [_cell(row[f"{r:g}"]) for r in RISES]
            parts.append(
                f"| {family} | {_LABELS[name]} | {row['setting']:.3g} | {row['false']:.2f} | "
                + " | ".join(cells)
                + " |"
            )
    parts += [
        "\nNothing changes, both as shipped: mean of weight over base, its mean peak, streams that leave it.\n",
        "| stream | AES-R mean | peak | left | AES-C mean | peak | left |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, row in data["no_change"].items():
        cells = [f"{row[n]['mean']:.3f} | {row[n]['peak']:.2f} | {row[n]['left']:.2f}" for n in ("aes_r", "aes_c")]
        parts.append(f"| {family} | " + " | ".join(cells) + " |")
    parts += [
        "\nRecorded proxies (toy, constant weight): at most one alarm in 100 000 steady updates, or as shipped.\n"
        "Elsewhere: alarms further than a tenth of the run behind every change, per 100 000 updates.\n",
        "| proxy | method | setting | per 100 000 steady | elsewhere | found | median delay | slowest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, part in data["recorded"].items():
        for kind, row in part["rows"].items():
            hit = np.isfinite(row["delays"])
            delays = row["delays"][hit]
            middle = f"{np.median(delays):.0f} | {delays.max():.0f}" if hit.any() else "- | -"
            parts.append(
                f"| {name} | {_LABELS[kind]} | {row['setting']:.3g} | {row['quiet']:.2f} | {row['elsewhere']:.1f} | "
                f"{hit.sum()}/{hit.size} | {middle} |"
            )
    return "\n".join(parts) + "\n"


def _cell(delays: np.ndarray) -> str:
    hit = np.isfinite(delays)
    return f"{100 * hit.mean():.0f} %" + (f" ({np.median(delays[hit]):.0f})" if hit.any() else "")


def draw(records: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Any]:
    """A recorded stream under abrupt drift and what both schedules make of it."""
    import matplotlib.pyplot as plt

    logs = next(iter(records.values()))["abrupt"][:1]
    length = logs.shape[1]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 4.5), sharex=True)
    top.semilogy(np.exp(logs[0]), lw=0.5, color="0.3")
    top.set_ylabel("0.9-quantile of |TD error|")
    for label, schedule in (
        ("AES-R", aes_r(value_loss(), 1.0, length, lambda_max=np.inf)),
        ("AES-C", aes_c(value_loss(), 1.0, length, lambda_max=np.inf)),
    ):
        bottom.plot(ratios(lambda _, s=schedule: s, logs, np.zeros(1))[0, 0], lw=1, label=label)
    bottom.set(ylabel="weight / base", xlabel="update")
    bottom.legend()
    return {"detection": figure}
