"""GLAD: abilities of annotators and difficulties of instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from crowdwise.aggregation.core.base import IterativeAggregator, State, uniform
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.registry import AGGREGATORS

MEAN = 1.0  # of the normal priors of ability and easiness, whose variance is 1
MEMORY = 10  # steps from which L-BFGS learns the curvature
LONGEST = 3.0  # change of any parameter in one step: they are of order 1, and easiness is an exponent
HALVINGS = 30  # of a step that does not raise the objective


@dataclass
class GLADState(State):
    """``parameters`` (R + n,): abilities alpha_j, then easiness b_i; the gradient of the objective; the last steps."""

    parameters: Floats
    gradient: Floats
    steps: list[tuple[Floats, Floats]]  # changes of the parameters, and of the negative gradient


@AGGREGATORS.register("glad")
@dataclass(kw_only=True, eq=False, repr=False)
class GLAD(IterativeAggregator[GLADState]):
    """Labels are right with probability sigmoid(alpha_j exp(b_i)), and wrong classes share the rest.

    J. Whitehill et al., Whose vote should count more, NIPS 2009, with alpha_j, b_i ~ N(1, 1) and uniform classes.
    ``objective_`` is the log of the marginal posterior of alpha and b, up to a constant, and never falls. It is what EM
    maximises too; here every round is an L-BFGS step on it with a fresh E step, whose gradient is that of EM's M step,
    so that the same maximum takes a fraction of the passes over the data. A history counts as labels of instances of
    easiness 1.

    Fitted beside the usual: ``ability_`` (R,) alpha_j, negative for adversaries, and ``difficulty_`` (n,) exp(-b_i).

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> GLAD().fit_predict(answers).tolist()
    [0, 1, 0, 1, 0]
    """

    max_iter: int = 500
    tol: float = 1e-6

    uses_history: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    state: ClassVar[type[State]] = GLADState

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> GLADState:
        crowd.check_vectors(2 * MEMORY + 10)  # the last steps, and those of a round
        return evaluate(crowd, np.full(crowd.n_annotators + crowd.n_instances, MEAN))

    def _round(self, crowd: Crowd, state: GLADState, rng: np.random.Generator) -> GLADState:
        direction = ascent(state, rough_curvature(crowd))
        slope, length = float(direction @ state.gradient), min(1.0, LONGEST / max(float(np.abs(direction).max()), 1e-9))
        for _ in range(HALVINGS):
            found = evaluate(crowd, state.parameters + length * direction)
            if found.objective >= state.objective + 1e-4 * length * slope:
                step = found.parameters - state.parameters, state.gradient - found.gradient
                bends = float(step[0] @ step[1]) > 0
                found.steps = [*state.steps, step][-MEMORY:] if bends else state.steps
                return found
            length /= 2
        return state  # at the maximum, up to rounding

    def _finish(self, crowd: Crowd, state: GLADState) -> None:
        self.ability_, easiness = np.split(state.parameters, [crowd.n_annotators])
        self.difficulty_ = np.exp(-easiness)
        self.class_prior_ = uniform(crowd.n_classes)

    def _needs(self, n_classes: int) -> int:
        return 2


def evaluate(crowd: Crowd, parameters: Floats) -> GLADState:
    """E step, objective and gradient at some parameters."""
    step = crowd.glad_step(*np.split(parameters, [crowd.n_annotators]))
    objective = step.log_likelihood - 0.5 * float(np.square(parameters - MEAN).sum())
    gradient = np.concatenate([step.by_ability, step.by_easiness]) - (parameters - MEAN)
    if crowd.history is not None:
        right, given = crowd.past_accuracy()
        margin = parameters[: crowd.n_annotators] * np.exp(MEAN)
        objective += float((right * margin - given * np.logaddexp(0.0, margin)).sum())
        gradient[: crowd.n_annotators] += (right - given * expit(margin)) * np.exp(MEAN)
    return GLADState(step.posterior, objective, parameters, gradient, [])


def rough_curvature(crowd: Crowd) -> Floats:
    """Scale of the second derivatives, (R + n,): what a label adds at usual margins, and 1 from the prior."""
    given = crowd.labels_per_annotator + crowd.past_accuracy()[1]
    return 1.0 + np.concatenate([0.4 * given, 0.1 * crowd.labels_per_instance])


def ascent(state: GLADState, curvature: Floats) -> Floats:
    """Direction of L-BFGS (two-loop recursion; Nocedal and Wright, Numerical Optimization, algorithm 7.4)."""
    direction, weights = state.gradient.copy(), []
    for moved, bent in reversed(state.steps):
        weights.append(float(moved @ direction) / float(moved @ bent))
        direction -= weights[-1] * bent
    direction /= curvature
    if state.steps:
        moved, bent = state.steps[-1]
        direction *= float(moved @ bent) / float(bent @ (bent / curvature))
    for (moved, bent), weight in zip(state.steps, reversed(weights), strict=True):
        direction += (weight - float(bent @ direction) / float(moved @ bent)) * moved
    return direction
