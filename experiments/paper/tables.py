"""The tables of the paper, and those of ours, by name."""

from aesjax.registry import Registry
from experiments.paper.ablations import appendix
from experiments.paper.constants import CONTROLS, FIXED_GRID, RESPONSES
from experiments.paper.main_tables import family, recovery
from experiments.paper.studies import PaperTable

TABLES: Registry[PaperTable] = Registry(
    "table",
    toy=family("toy"),
    mujoco=family("mujoco"),
    isaac=family("isaac"),
    recovery=recovery(),
    ablation=appendix("ablation", "ablation", "Ablation of AES"),
    quantile=appendix("quantile", "sensitivity_q", "Sensitivity to the quantile q"),
    ema=appendix("ema", "sensitivity_beta", "Sensitivity to the smoothing beta"),
    clip=appendix("clip", "sensitivity_clip", "Sensitivity to the clip range"),
    fixed_grid=FIXED_GRID,
    controls=CONTROLS,
    responses=RESPONSES,
)
