"""Which instances go to people, so that the error of all labels stays under a bound."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from crowdwise.constraints import OpenProbability, PositiveInt, checked
from crowdwise.data.types import Floats, Ints, Mask
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError

SAMPLE = 500  # instances drawn for people by default
NOISE = 1e-5  # breaks ties of confidence


@dataclass(frozen=True, eq=False)
class Route:
    """Where every instance goes. Before people have answered, only ``ask`` is known."""

    error: float
    """Share of wrong labels allowed."""
    risk: float
    """Probability with which there may be more."""
    draws: Ints
    """Instances drawn with replacement, (K,)."""
    ask: Ints
    """The distinct ones: ask people for these."""
    to_people: Mask | None = None
    """Which instances people label, those asked already among them, (n,)."""
    threshold: float | None = None
    """Machine labels of at least this confidence are kept; above 1 for none."""
    bound: float | None = None
    """Upper bound of the error of all labels, at ``risk``."""

    @property
    def n_people(self) -> int | None:
        """Number of instances that people label in all."""
        return None if self.to_people is None else int(self.to_people.sum())

    @property
    def saved(self) -> float | None:
        """Share of instances that need no person."""
        return None if self.to_people is None else float(1 - self.to_people.mean())

    def __str__(self) -> str:
        if self.to_people is None:
            return f"ask people for {len(self.ask):,} instances, then route again with their answers"
        return (
            f"people label {self.n_people:,} of {len(self.to_people):,} instances, {len(self.ask):,} of them done; the rest, "
            f"of confidence {self.threshold:.3f} or more, need none;\nat most {self.bound:.1%} of all labels are wrong, with "
            f"probability {1 - self.risk:.0%}"
        )


@checked
def route(
    confidence: Any,
    *,
    error: OpenProbability = 0.05,
    risk: OpenProbability = 0.05,
    sample: PositiveInt | None = None,
    answers: Any = None,
    labels: Any = None,
    random_state: int | None = 0,
) -> Route:
    """Which instances people should label so that at most ``error`` of all labels are wrong, with probability 1 - ``risk``.

    Candes, Ilyas, Zrnic, Probably approximately correct labels (2025). ``confidence`` is a posterior (n, C), a fitted
    aggregator, or confidences (n,) of the machine's ``labels`` (n,). The first call, without ``answers``, draws ``sample``
    instances (500 by default) for people. The second one, with the same arguments and the people's ``answers`` (a mapping
    from position to class code, or an array (n,) with -1 where not asked), keeps machine labels down to the lowest
    confidence at which the bound holds; everything else goes to people. Without machine labels, answers say whether
    the machine is right: True or False.

    The guarantee needs no calibrated confidence: a poor one only sends more to people.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> sure = rng.random(5000)
    >>> right = rng.random(5000) < 0.5 + sure / 2
    >>> first = route(sure, error=0.1)
    >>> print(route(sure, error=0.1, answers={i: right[i] for i in first.ask}))
    people label 2,524 of 5,000 instances, 477 of them done; the rest, of confidence 0.447 or more, need none;
    at most 9.8% of all labels are wrong, with probability 95%
    """
    sure, machine = _machine(confidence, labels)
    n = len(sure)
    if not n:
        raise DataError("there are no instances to route")
    rng = np.random.default_rng(random_state)
    size = min(SAMPLE, n) if sample is None else sample
    draws = rng.integers(0, n, size)
    uncertainty = 1 - sure + NOISE * rng.random(n)
    asked = np.unique(draws)
    if answers is None:
        return Route(error, risk, draws, asked)
    wrong = _wrong(answers, machine, asked, n)[draws]
    allowed = _allowed(size, error, risk)
    if allowed < 0:
        needed = int(np.ceil(np.log(risk) / np.log(1 - error)))
        warnings.warn(
            f"{size} draws cannot show that at most {error:.1%} are wrong: everything goes to people; draw {needed} or more",
            CrowdwiseWarning,
            stacklevel=3,
        )
        cut = -np.inf
    else:
        errors = np.sort(uncertainty[draws[wrong]])
        cut = errors[allowed] if len(errors) > allowed else np.inf
    to_people = uncertainty >= cut
    to_people[asked] = True
    kept = ~(uncertainty >= cut)
    threshold = float(sure[kept].min()) if kept.any() else float("inf")
    failures = int(np.count_nonzero(uncertainty[draws[wrong]] < cut))
    bound = float(stats.beta.ppf(1 - risk, failures + 1, size - failures)) if kept.any() else 0.0
    return Route(error, risk, draws, asked, to_people, threshold, bound)


def _allowed(size: int, error: float, risk: float) -> int:
    """Most errors among ``size`` draws at which the Clopper-Pearson bound is at most ``error``; -1 where even none is."""
    failures = np.arange(size)
    bound = stats.beta.ppf(1 - risk, failures + 1, size - failures)
    return int(np.count_nonzero(bound <= error)) - 1


def _machine(confidence: Any, labels: Any) -> tuple[Floats, Ints | None]:
    """Confidence (n,) and, where known, labels (n,) of the machine."""
    given = np.asarray(getattr(confidence, "posterior_", confidence), np.float64)
    if given.ndim not in (1, 2) or np.isnan(given).any() or (given < 0).any() or (given > 1 + 1e-6).any():
        raise DataError(f"confidence must hold probabilities, (n,) or (n, C); got shape {given.shape}")
    if given.ndim == 2:
        if labels is not None:
            raise ConfigError("a posterior has its own labels; leave out labels", parameter="labels")
        return given.max(axis=1, initial=0), given.argmax(axis=1) if given.shape[1] else np.zeros(len(given), np.int64)
    machine = None if labels is None else np.asarray(labels)
    if machine is not None and machine.shape != given.shape:
        raise DataError(f"labels has shape {machine.shape}, but confidence {given.shape}")
    return given, machine


def _wrong(answers: Any, machine: Any, asked: Ints, n: int) -> Mask:
    """Where people and machine differ, (n,), on the instances asked."""
    if not isinstance(answers, Mapping):
        column: Sequence[Any] = np.asarray(answers).tolist()
        if len(column) != n:
            raise DataError(f"answers has {len(column)} entries, but there are {n} instances")
        answers = {i: answer for i, answer in enumerate(column) if answer is not None and answer != -1}
    missing = [i for i in asked.tolist() if i not in answers]
    if missing:
        raise DataError(
            f"{len(missing)} of the {len(asked)} instances drawn have no answer (such as {missing[0]}); all are needed",
            parameter="answers",
        )
    wrong = np.zeros(n, bool)
    for i in asked.tolist():
        wrong[i] = not answers[i] if machine is None else answers[i] != machine[i]
    return wrong
