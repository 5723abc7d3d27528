"""Models as annotators beside people: whether one may replace people, how far several err alike, what few gold labels
tell about the labels of a model, and which instances should still go to people.

Functions that compare models with people take annotations in any form that `crowdwise.Annotations.coerce` accepts, with
``models`` (ids or codes) or ``kinds`` (R,) to say who is a model; or what `crowdwise.read` returns, which knows it.
"""

from crowdwise.judges._alt_test import EPSILON, AltTest, alt_test
from crowdwise.judges._dependence import Dependence, dependence
from crowdwise.judges._drift import Drift, drift
from crowdwise.judges._estimate import Estimate, estimate
from crowdwise.judges._order import Order, order
from crowdwise.judges._people import Sides as Sides
from crowdwise.judges._plan import Plan, plan
from crowdwise.judges._route import Route, route
from crowdwise.judges._summary import JudgedModel, JudgedModels, summary

__all__ = [
    "EPSILON",
    "AltTest",
    "Dependence",
    "Drift",
    "Estimate",
    "JudgedModel",
    "JudgedModels",
    "Order",
    "Plan",
    "Route",
    "alt_test",
    "dependence",
    "drift",
    "estimate",
    "order",
    "plan",
    "route",
    "summary",
]
