"""How well annotators label, which labels look wrong, and what to label next.

Every function takes annotations in any form that `crowdwise.Annotations.coerce` accepts, and a ``posterior``: an array
(n, C), a fitted aggregator, or None for a majority vote with a confidence that follows from the crowd's agreement.
Results are `pyarrow.Table`; ``.to_pandas()`` makes a data frame. Columns known from cleanlab have the same names.
"""

from crowdwise.quality._annotators import Tally as Tally
from crowdwise.quality._annotators import annotators
from crowdwise.quality._annotators import class_counts as class_counts
from crowdwise.quality._annotators import profile as profile
from crowdwise.quality._annotators import ungraded as ungraded
from crowdwise.quality._belief import consensus_shares as consensus_shares
from crowdwise.quality._belief import majority_posterior as majority_posterior
from crowdwise.quality._calibration import Calibration, calibration
from crowdwise.quality._instances import instances, issues
from crowdwise.quality._more import MoreLabels, more_labels
from crowdwise.quality._next import next_labels
from crowdwise.quality._outlook import Outlook as Outlook
from crowdwise.quality._outlook import measured as measured
from crowdwise.quality._outlook import outlook as outlook
from crowdwise.quality._outlook import unchecked as unchecked
from crowdwise.quality._outlook import unchecked_errors as unchecked_errors
from crowdwise.quality._outlook import unchecked_times as unchecked_times
from crowdwise.quality._skill import independent_skill as independent_skill
from crowdwise.quality._skill import skill_of as skill_of

__all__ = [
    "Calibration",
    "MoreLabels",
    "annotators",
    "calibration",
    "instances",
    "issues",
    "more_labels",
    "next_labels",
]
