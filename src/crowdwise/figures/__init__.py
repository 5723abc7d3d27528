"""Published figures of a crowd: one function for each, used by the terminal, JSON, the report and the demo alike.

`worth` says how many labels are right and which figure to believe; `verdicts` says who to ask more and who no longer.
`evidence` decides whether anything can be said at all: if labels agree no more often than by chance, no figure is published.
"""

from crowdwise.figures.evidence import ENOUGH, Evidence, Kind, by_chance_test, evidence, needed
from crowdwise.figures.people import (
    FEW,
    SPAMMER,
    Person,
    Verdict,
    annotator_profiles,
    ordered_by_cost,
    people,
    verdicts,
)
from crowdwise.figures.right import RightShare, estimated, measured, shared_hits
from crowdwise.figures.votes import VoteFigures, Yardstick, vote_figures, yardstick
from crowdwise.figures.worth import Worth, believed, worth

__all__ = [
    "ENOUGH",
    "FEW",
    "SPAMMER",
    "Evidence",
    "Kind",
    "Person",
    "RightShare",
    "Verdict",
    "VoteFigures",
    "Worth",
    "Yardstick",
    "annotator_profiles",
    "believed",
    "by_chance_test",
    "estimated",
    "evidence",
    "measured",
    "needed",
    "ordered_by_cost",
    "people",
    "shared_hits",
    "verdicts",
    "vote_figures",
    "worth",
    "yardstick",
]
