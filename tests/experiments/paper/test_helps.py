"""Part H: rivals of AES against SAC's tuned constant, on a made-up record with known answers."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from experiments import Study
from experiments.measure import stats
from experiments.paper import design, helps
from experiments.paper.record import Record, fits

STEPS = 1_000
STUDIES = {
    "H-toy-1000-sac": (["sac", "sac+fixed:base=0.1", "sac+aes", "sac+trend:base=0.2", "sac+fixed:base=0.1+recent"], {}),
    "H-toy-1000-sac-history": (["sac+fixed:base=0.1"], {"history": 4}),
    "H-toy-1000-crossq": (["crossq", "crossq+fixed:base=0.1", "crossq+aes:kappa=0.1"], {}),
    "H-toy-1000-sac-trials": (["sac+fixed:base=0.1", "sac+fixed:base=0.2"], {"until": 0.1}),
}
WEAK = 0.4 + 0.5 * np.array([-1.0, 1.0] * 5)  # a difference by seed that one test of its own would find
NOISE = 0.1 * np.sin(np.arange(1, 11))
#: (study, method, metric, whether the drift varies) -> difference by seed; others have noise without a difference.
KNOWN = {
    ("H-toy-1000-sac", "SAC+trend[base=0.2]", "mean_return", True): 2.0,
    ("H-toy-1000-sac", "SAC+trend[base=0.2]", "online_return", True): -3.0,
    ("H-toy-1000-sac", "SAC+AES", "mean_return", True): WEAK,
    ("H-toy-1000-crossq", "CrossQ+fixed[base=0.1]", "mean_return", False): 5.0,
    ("H-toy-1000-crossq", "CrossQ+AES[kappa=0.1]", "mean_return", False): 4.0 + NOISE,
}


def runs_of(name, config):
    rows = []
    for row in helps.rows_of(config):
        for pattern in config.patterns:
            for seed in config.seeds:
                level, noise = 10.0 + seed, 0.01 * (-1) ** seed
                own = (name, row.name) != ("H-toy-1000-sac", "SAC+fixed[base=0.1]")
                means = {}
                for metric in helps.METRICS:
                    d = KNOWN.get((name, row.name, metric, pattern != "steady"), 0.0)
                    d = d[seed - 1] if isinstance(d, np.ndarray) else d
                    means[metric] = level + own * (d + noise)
                rows.append({"method": row.name, "pattern": pattern, "seed": seed, **means})
    return pl.DataFrame(rows).with_columns(study=pl.lit(name))


@pytest.fixture(scope="module")
def record():
    frames, studies = [], {}
    for name, (methods, options) in STUDIES.items():
        study = Study("toy", methods, "steady,abrupt,ou", "1:10", steps=STEPS, evaluations=10, onset=0.4, **options)
        frames.append(runs_of(name, study.config))
        studies[name] = {"config": study.config.to_json()}
    return Record(pl.DataFrame(), pl.concat(frames), studies)


def test_differences_and_outcomes_are_those_of_the_runs(record):
    [found] = helps.comparisons(record)
    assert (found.constant, found.levels["mean_return", True]) == (0.1, pytest.approx(15.5))
    rivals = {rival.label: rival for rival in found.rivals}
    assert len(rivals) == 4 + 1 + 3 + 1  # all methods of the studies but the constant, no trial, and one pair of CrossQ
    pair = rivals["CrossQ `aes` minus CrossQ `fixed`"].contrasts["mean_return", False]
    assert (pair.outcome, pair.interval.value) == ("worse", pytest.approx(-1.0 + NOISE.mean()))
    trend, aes, crossq = rivals["`trend`"], rivals["`aes`, published"], rivals["CrossQ `fixed`"]
    outcomes = {key: contrast.outcome for key, contrast in trend.contrasts.items()}
    assert outcomes.pop(("mean_return", True)) == "better"
    assert outcomes.pop(("online_return", True)) == "worse"
    assert set(outcomes.values()) == {"undecided"}
    assert trend.contrasts["mean_return", True].interval.value == pytest.approx(2.0)
    assert trend.contrasts["online_return", True].interval.value == pytest.approx(-3.0)
    assert stats.paired_t_p(WEAK) < 0.05
    weak = aes.contrasts["mean_return", True]
    assert (weak.outcome, weak.p > 0.05) == ("undecided", True)  # one of 36 tests
    assert crossq.contrasts["mean_return", False].interval.value == pytest.approx(5.0)
    assert crossq.kind == helps.CRITIC
    assert rivals["`fixed`, last 4 observations"].kind == helps.OBSERVATIONS
    assert rivals["`fixed+recent`"].kind == helps.DATA


def test_a_run_that_diverged_is_left_out_with_its_pair(record):
    broken = pl.when(method="SAC+trend[base=0.2]", pattern="ou", seed=3).then(np.nan)
    runs = record.runs.with_columns(broken.otherwise(pl.col("mean_return")).alias("mean_return"))
    [found] = helps.comparisons(record._replace(runs=runs))
    (trend,) = [rival for rival in found.rivals if rival.label == "`trend`"]
    assert trend.contrasts["mean_return", True].interval.value == pytest.approx(2.0, abs=0.01)


def test_robots_of_part_g_are_opponents_in_the_patterns_of_both_parts(record):
    sac, crossq = "H-toy-1000-sac", "H-toy-1000-crossq"
    jumps = Study("toy", STUDIES[crossq][0], "steady,abrupt", "1:10", steps=STEPS, evaluations=10, onset=0.4)
    about = record.studies[crossq] | {"config": jumps.config.to_json()}
    studies = {"G-toy-1000-sac": record.studies[sac], crossq: about}
    unlike = (pl.col("pattern") == "ou") & (pl.col("method") == "SAC+trend[base=0.2]")  # in one of the parts alone
    returns = pl.when(unlike).then(1e6).otherwise(pl.col("mean_return")).alias("mean_return")
    runs = record.runs.with_columns(returns, pl.col("study").replace({sac: "G-toy-1000-sac"}))
    [found] = helps.comparisons(record._replace(runs=runs, studies=studies))
    rivals = {rival.label: rival for rival in found.rivals}
    assert len(rivals) == 4 + 3 + 1
    assert rivals["`trend`"].contrasts["mean_return", True].interval.value == pytest.approx(2.0, abs=0.02)
    assert helps.comparisons(record._replace(runs=runs, studies={"G-toy-1000-sac": record.studies[sac]})) == []


@pytest.mark.parametrize("patterns", ["ou", "steady,ou"])
@pytest.mark.parametrize("part", ["G", "H"])
def test_a_study_of_fewer_patterns_leaves_the_comparison_of_the_others_as_it_is(record, part, patterns):
    name, methods = f"{part}-toy-1000-sac-ou", STUDIES["H-toy-1000-sac"][0]
    study = Study("toy", [*methods, "sac+aes_r"], patterns, "1:10", steps=STEPS, evaluations=10, onset=0.4)
    about = record.studies["H-toy-1000-sac"] | {"config": study.config.to_json()}
    runs = pl.concat([record.runs, runs_of(name, study.config)])
    with_it = record._replace(runs=runs, studies=record.studies | {name: about})
    assert helps.by_task(helps.comparisons(with_it)) == helps.by_task(helps.comparisons(record))


def test_tables_have_the_tasks_of_the_record_and_are_empty_without_any(record):
    found = helps.comparisons(record)
    assert "`toy`" in helps.overview(found)
    assert "+2.0* / -3.0*" in helps.overview(found)
    assert "+2.0 [+2.0, +2.0] better" in helps.by_task(found)
    others = {name: about for name, about in record.studies.items() if "crossq" in name}
    for none in (record._replace(studies={}), record._replace(studies=others)):  # nothing, and no constant of SAC
        assert helps.comparisons(none) == []
    assert helps.overview([]) == helps.by_task([]) == ""


def test_runs_of_agents_that_see_other_observations_or_replays_are_never_pooled_with_others():
    plain, *others = design.cells("H", ["sac"], tasks=["toy"])
    configs = [replace(each.study, methods=["sac+fixed"]).config.to_json() for each in (plain, *others)]
    assert len(configs) == 4
    assert fits(configs[0], configs[0])
    assert not any(fits(configs[0], other) for other in configs[1:])
