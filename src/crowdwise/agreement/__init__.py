"""How well annotators agree beyond chance, with bootstrap intervals over instances.

Every measure takes annotations in any form that `crowdwise.Annotations.coerce` accepts and returns an `Agreement`:
``value``, ``interval``, ``n``. The interval comes from ``n_bootstrap`` resamples of the instances (0: no interval) and
holds the share ``confidence`` of them; ``random_state`` makes it reproducible. A repeated (instance, annotator) pair
counts as another label; build the annotations with ``duplicates="last"`` to drop repeats. Of annotations with weights, the
label that weighs most counts. `self_consistency` compares the repeated labels of each annotator with each other.
"""

from crowdwise.agreement._chance import ChanceTest, chance_test
from crowdwise.agreement._consistency import self_consistency
from crowdwise.agreement._measures import (
    cohen_kappa,
    coincidences,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    raw_agreement,
    scott_pi,
)
from crowdwise.agreement._pairwise import pairwise
from crowdwise.agreement._report import report
from crowdwise.agreement._result import Agreement, PairwiseAgreement, Report
from crowdwise.agreement._scales import Ordered as Ordered
from crowdwise.agreement._scales import Scale, scale_of
from crowdwise.agreement._values import class_values as class_values
from crowdwise.agreement._votes import Bootstrap as Bootstrap  # for judges: its own intervals

__all__ = [
    "Agreement",
    "ChanceTest",
    "PairwiseAgreement",
    "Report",
    "Scale",
    "chance_test",
    "cohen_kappa",
    "coincidences",
    "fleiss_kappa",
    "gwet_ac1",
    "krippendorff_alpha",
    "pairwise",
    "raw_agreement",
    "report",
    "scale_of",
    "scott_pi",
    "self_consistency",
]
