"""Truth inference: from annotations to labels, with honest confidence and an opinion on every annotator.

>>> from crowdwise.aggregation import DawidSkene
>>> table = {"task": ["t1", "t1", "t1", "t2", "t2"], "worker": ["a", "b", "c", "a", "b"], "label": [1, 1, 0, 0, 0]}
>>> DawidSkene().fit_predict(table)
array([1, 0])
"""

from crowdwise.aggregation.cbcc import CBCC
from crowdwise.aggregation.committee import Committee
from crowdwise.aggregation.core.base import Aggregator, IterativeAggregator
from crowdwise.aggregation.core.confidence import Calibrated, Calibration, calibrate, calibration
from crowdwise.aggregation.core.history import AnnotatorHistory
from crowdwise.aggregation.crh import CRH
from crowdwise.aggregation.dawid_skene import DawidSkene
from crowdwise.aggregation.ebcc import EBCC
from crowdwise.aggregation.fast_dawid_skene import FastDawidSkene
from crowdwise.aggregation.glad import GLAD
from crowdwise.aggregation.hierarchical import HierarchicalDawidSkene
from crowdwise.aggregation.ibcc import IBCC
from crowdwise.aggregation.kos import KOS
from crowdwise.aggregation.mace import MACE
from crowdwise.aggregation.majority_vote import GoldMajorityVote, MajorityVote
from crowdwise.aggregation.mmsr import MMSR
from crowdwise.aggregation.one_coin import OneCoinDawidSkene
from crowdwise.aggregation.panel import Panel
from crowdwise.aggregation.recommend import Recommendation, recommend
from crowdwise.aggregation.wawa import Wawa
from crowdwise.aggregation.zencrowd import ZenCrowd
from crowdwise.aggregation.zero_based_skill import ZeroBasedSkill

__all__ = [
    "CBCC",
    "CRH",
    "EBCC",
    "GLAD",
    "IBCC",
    "KOS",
    "MACE",
    "MMSR",
    "Aggregator",
    "AnnotatorHistory",
    "Calibrated",
    "Calibration",
    "Committee",
    "DawidSkene",
    "FastDawidSkene",
    "GoldMajorityVote",
    "HierarchicalDawidSkene",
    "IterativeAggregator",
    "MajorityVote",
    "OneCoinDawidSkene",
    "Panel",
    "Recommendation",
    "Wawa",
    "ZenCrowd",
    "ZeroBasedSkill",
    "calibrate",
    "calibration",
    "recommend",
]
