"""What every aggregator shares: inputs, gold labels, ties, the loop, fitted values.

A method is one file with one class; the base class owns the loop, the subclass owns the mathematics. A method that
votes derives from `Aggregator` and writes `_infer`; a method that iterates derives from `IterativeAggregator`::

    @dataclass
    class MyState(State):                     # State has `posterior` (n, C) and `objective`
        emission: Floats

    @AGGREGATORS.register("my-method")
    @dataclass(kw_only=True, eq=False, repr=False)
    class MyMethod(IterativeAggregator[MyState]):
        max_iter: int = 50                    # new defaults, new parameters: keyword-only dataclass fields
        strength: PositiveFloat = 1.0

        def _start(self, crowd, rng):         # the state before round 1
            return MyState(crowd.initial(), -np.inf, table)

        def _round(self, crowd, state, rng):  # one round: a new state, with its objective
            step = crowd.em_step(state.emission, prior)
            return MyState(step.posterior, step.log_likelihood, ...)

        def _finish(self, crowd, state):      # fitted values beside posterior_, objective_, n_iter_
            self.confusion_ = confusion(state.emission)       # [annotator, class, label]
            self.class_prior_ = ...                           # those that are not set are derived from posterior_

Optional: `_starts` (number of restarts; the state with the highest objective wins), `_converged`, `_posterior` (from
the state's posterior to (n, C)), `_needs` (labels per annotator that the model wants), `_check` (of what the types of the
parameters do not say, see `crowdwise.constraints`), `uses_history`, `settles`, `streams` and `state`. `crowd` is a
`crowdwise.aggregation.core.crowd.Crowd`: sizes, `initial()`, `majority()`, `votes()`, `em_step()`, `vote_step()`,
`counts()`, `gold`, `history`, ... A kernel of one's own is compiled with `kernels.jit()`. A crowd without annotations or
with a single class never reaches these methods.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels, queries, tempering, weights
from crowdwise.aggregation.core.crowd import Crowd, MemoryCrowd, Tie, confusion, resolve_threads
from crowdwise.aggregation.core.crowd import choose as choose
from crowdwise.aggregation.core.estimator import Estimator
from crowdwise.aggregation.core.fitted import Fitted
from crowdwise.aggregation.core.fitted import share as share
from crowdwise.aggregation.core.fitted import uniform as uniform
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.aggregation.core.history import AnnotatorHistory
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.aggregation.core.threads import one_blas_thread
from crowdwise.annotations import Annotations
from crowdwise.constraints import NonNegativeFloat, PositiveInt, check_parameters
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError

RandomState = int | np.random.Generator | None
CROWD_SIZE = 20  # fewer annotators than this are no crowd to be warned about


@dataclass
class State:
    """Where an iterative method stands after a round."""

    posterior: Floats  # (n, C), or (n, K) where `_posterior` says how to read it
    objective: float

    def content(self) -> dict[str, Any]:
        """What a checkpoint keeps: arrays, numbers, and lists of such, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


S = TypeVar("S", bound=State)

Calibration = Literal["crowd", "usual", "none"]


@dataclass(kw_only=True, eq=False, repr=False)
class Aggregator(Fitted, Estimator):
    """Base class of all aggregators: a scikit-learn estimator whose data are annotations.

    Fitted: ``posterior_`` (n, C), and ``raw_posterior_``, the same before ``calibration``; ``labels_`` (n,) and
    ``classes_`` (C,) in the user's vocabulary, ``confusion_`` (R, C, C) with T[j, p, q] = P(label q | class p), ``skill_``
    (R,), the probability that an annotator is right, ``class_prior_`` (C,), ``annotators_`` and ``instances_`` (ids), and
    ``annotations_``, what was aggregated.
    """

    tie: Tie = "first"
    """Which of equally probable classes becomes the label: the ``"first"`` in ``classes_``, or a ``"random"`` one."""
    random_state: RandomState = None
    """Seed or generator of whatever is random in the method, and of random ties; None is 0, so that a crowd has one result."""
    calibration: Calibration = "crowd"
    """``"crowd"``: honest confidence, as `crowdwise.aggregation.core.tempering` explains; gold labels, where given, correct
    it. ``"usual"``: they do not, because they were chosen for their doubt and speak for no others. ``"none"``: the posterior of
    the method itself, ``raw_posterior_``. Labels are the same."""

    holds_shares: ClassVar[bool] = False  # True: the posterior holds shares of votes
    uses_history: ClassVar[bool] = False
    weighs: ClassVar[bool] = True  # False: takes one label each, the one that weighs most
    streams: ClassVar[bool] = False  # True: asks the crowd for sums over annotations only, see crowdwise.streaming
    decomposes: ClassVar[bool] = False  # True: decomposes matrices, for which BLAS keeps its threads

    # what subclasses write

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        """The posterior (n, C); other fitted values are set on the way."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it infers labels")

    def _needs(self, n_classes: int) -> int:
        """Labels that an annotator should have given before the model can tell annotators apart; 0: any number."""
        return 0

    def check_streams(self) -> None:
        """Refuse parameters with which this method cannot work on a crowd on disk."""
        if self.tie != "first":
            raise ConfigError(f"tie={self.tie!r} cannot be streamed: a draw cannot be repeated; use tie='first'")

    # fitting

    def fit(self, annotations: Any, gold: Any = None, history: Any = None) -> Self:
        """Infer the labels of all instances.

        ``annotations`` is an `Annotations`, a long table (pandas, polars, arrow, a mapping of columns), a tuple of
        three arrays, or a matrix (n, R). ``gold`` holds the known labels of some instances: a mapping from instance to
        label, a table with instance and label columns, or an array (n,) with None, NaN or -1 where nothing is known.
        ``history`` tells what is known about annotators already: an earlier fitted aggregator or an
        `AnnotatorHistory`.
        """
        annotations = Annotations.coerce(annotations)
        return self._fit(annotations, gold_codes(annotations, gold), history)

    def partial_fit(self, annotations: Any, gold: Any = None, history: Any = None) -> Self:
        """Add annotations to those seen so far, and infer all labels anew.

        The result is that of one `fit` on everything: ids are matched with those seen before, new ones are appended to
        ``instances_``, ``annotators_`` and ``classes_``. Gold labels add to (and correct) earlier ones; a history
        replaces an earlier one.
        """
        fresh = Annotations.coerce(annotations)
        if not hasattr(self, "annotations_"):
            return self.fit(fresh, gold, history)
        before = self._fitted_crowd()
        everything = Annotations.concat([self.annotations_, fresh])
        codes = gold_codes(everything, gold)
        if before.gold.size:
            codes = np.full(everything.n_instances, -1, np.int32) if codes is None else codes
            old = codes[: before.n_instances]
            old[old < 0] = before.gold[old < 0]
        return self._fit(everything, codes, self._history if history is None else history, self.raw_posterior_)

    def fit_predict(self, annotations: Any, gold: Any = None, history: Any = None) -> npt.NDArray[Any]:
        """Labels (n,) in the user's vocabulary, as `fit` finds them."""
        return self.fit(annotations, gold, history).labels_

    def fit_predict_proba(self, annotations: Any, gold: Any = None, history: Any = None) -> Floats:
        """Posterior (n, C) over ``classes_``, as `fit` finds it."""
        return self.fit(annotations, gold, history).posterior_

    def _fit(
        self,
        annotations: Annotations,
        gold: npt.NDArray[np.int32] | None,
        history: Any,
        earlier: Floats | None = None,
    ) -> Self:
        if annotations.n_instances and not annotations.n_classes:
            raise DataError(
                f"this crowd has {annotations.n_instances} instances but no classes: pass n_classes or classes"
            )
        if history is not None and not self.uses_history:
            raise ConfigError(
                f"{type(self).__name__} has no parameters of annotators that a history could inform; "
                "leave history out, or use DawidSkene"
            )
        annotations.check_size()
        if not self.weighs:
            annotations = annotations.hard()
        counts = None if history is None else AnnotatorHistory.coerce(history).counts_for(annotations)
        threads = resolve_threads(getattr(self, "n_jobs", None))
        earlier = earlier if getattr(self, "warm_start", False) else None
        rng = self._generator()
        crowd = MemoryCrowd.of(annotations, gold, counts, threads, earlier)
        if annotations.weight is not None and (said := weights.remark(crowd.scale)):
            warnings.warn(said, CrowdwiseWarning, stacklevel=3)
        with contextlib.nullcontext() if self.decomposes else one_blas_thread:
            self.fit_crowd(crowd, rng)
        self._history, self.annotations_, self.classes_ = history, annotations, annotations.classes
        self.labels_ = self.classes_[choose(self.posterior_, self.tie, rng)]
        return self

    def fit_crowd(self, crowd: Crowd, rng: np.random.Generator | None = None) -> Self:
        """Infer the posterior of a crowd in memory or on disk (`crowdwise.streaming`).

        This is the part of `fit` that needs no ids: ``posterior_`` is set, and what the method learns about annotators.
        """
        self._check()
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self._crowd = crowd
        if crowd.n_annotations and crowd.n_classes > 1:
            self._warn_if_sparse(crowd)
            rng = self._generator() if rng is None else rng
            self.raw_posterior_ = self._infer(crowd, rng)
            self.posterior_ = self.raw_posterior_ if self.calibration == "none" else self._tempered(crowd)
        else:
            self.posterior_ = self.raw_posterior_ = self._nothing_to_infer(crowd)
        return self

    def _tempered(self, crowd: Crowd) -> Floats:
        """The posterior with honest confidence; sets ``tempering_``."""
        raw, weight = self.raw_posterior_, self._vote_weights()
        judged = tempering.sharpened(crowd, raw) if self.holds_shares else raw
        vote, rho = tempering.read_votes(crowd, judged, weight, self._groups())
        vote = vote if self.comparable_ else min(vote, tempering.ALONE)
        n_gold = 0
        if crowd.gold.size and self.calibration == "crowd":
            n_gold = int(np.count_nonzero((crowd.gold >= 0) & crowd.labelled))
            bare = self._without_gold(crowd)
            rho = tempering.correlation_from_gold(crowd.layout, bare, vote, rho, weight, shares=self.holds_shares)
        self.tempering_ = tempering.Tempering(vote, rho, n_gold)
        if self.holds_shares:
            return crowd.rows(tempering.tempered_shares, raw, vote, rho)  # type: ignore[no-any-return]
        return crowd.rows(tempering.tempered, raw, vote, rho, weight)  # type: ignore[no-any-return]

    @property
    def judging_posterior_(self) -> Floats:
        known = self.posterior_ is self.raw_posterior_ or self.holds_shares or not hasattr(self, "tempering_")
        if known:
            return super().judging_posterior_
        rho, crowd = self.tempering_, self._fitted_crowd()
        return crowd.rows(tempering.halfway, self.raw_posterior_, rho.vote, rho.correlation, self._vote_weights())  # type: ignore[no-any-return]

    def _vote_weights(self) -> Floats | None:
        """How many votes a label of each annotator is, (R,); None: one."""
        return None

    def _groups(self) -> list[npt.NDArray[np.bool_]]:
        """Annotators who err alike, (R,) each, and whose dependence the posterior allows for already."""
        return []

    def _without_gold(self, crowd: Crowd) -> Floats:
        """What the labels alone say about gold instances under the fitted model, (n, C); other rows are not used."""
        layout = crowd.layout._replace(gold=np.empty(0, np.int32))
        if self.holds_shares:
            return queries.weighted_majority(layout, vars(self).get("skill_", np.ones(crowd.n_annotators)))
        known, raw = vars(self), self.raw_posterior_  # what the method has set itself, if anything
        matrices = known["confusion_"] if "confusion_" in known else confusion(crowd.counts(raw))
        prior = known["class_prior_"] if "class_prior_" in known else crowd.mass(raw)
        emission, prior = np.maximum(matrices.transpose(0, 2, 1), kernels.FLOOR), np.maximum(prior, kernels.FLOOR)
        weight = self._vote_weights()
        emission = emission if weight is None else emission ** weight[:, None, None]
        return kernels.em_step(layout, emission, prior).posterior

    def _nothing_to_infer(self, crowd: Crowd) -> Floats:
        return crowd.majority()

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(0 if self.random_state is None else self.random_state)

    def _check(self) -> None:
        """Refuse parameters that are out of range; subclasses add what the fields cannot declare."""
        check_parameters(self)

    def _warn_if_sparse(self, crowd: Crowd) -> None:
        """Say so when annotators gave too few labels for what the model wants to learn about each of them."""
        given = crowd.labels_per_annotator[crowd.labels_per_annotator > 0]
        needed, typical = self._needs(crowd.n_classes), float(np.median(given))
        if len(given) >= CROWD_SIZE and typical < needed:
            warnings.warn(
                f"this crowd is too sparse for {type(self).__name__}: annotators gave a median of {typical:g} labels, "
                f"it wants {needed} or more to tell them apart; what it says about single annotators is mostly its "
                "prior. Collect more labels per annotator, pass history or gold, or use HierarchicalDawidSkene, "
                "MajorityVote or crowdwise.aggregation.recommend",
                CrowdwiseWarning,
                stacklevel=5,
            )


@dataclass(kw_only=True, eq=False, repr=False)
class IterativeAggregator(Aggregator, Generic[S]):
    """Base class of methods that repeat a round until their objective settles.

    Also fitted: ``objective_``, its value after every round, ``n_iter_``, the number of rounds, and ``converged_``.
    """

    max_iter: PositiveInt = 100
    """Rounds at most."""
    tol: NonNegativeFloat = 1e-5
    """Stop when the objective, per labelled instance, changes by less; 0: exactly ``max_iter`` rounds."""
    n_jobs: int | None = None
    """Threads for large crowds; None: one, -1: all cores."""
    verbose: int = 0
    """1: one line per fit; 2: one line per round."""

    settles: ClassVar[bool] = True  # False: the rounds are a budget, and using it up is nothing to warn about
    state: ClassVar[type[State]] = State  # of methods that stream: what `_start` and `_round` return

    # what subclasses write

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> S:
        """The state before the first round."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it starts")

    def _round(self, crowd: Crowd, state: S, rng: np.random.Generator) -> S:
        """The state after one more round."""
        raise NotImplementedError(f"{type(self).__name__} does not say what a round is")

    def _finish(self, crowd: Crowd, state: S) -> None:
        """Set fitted values from the last state."""

    def _posterior(self, crowd: Crowd, state: S) -> Floats:
        """Posterior (n, C) from the last state."""
        return state.posterior

    def _starts(self) -> int:
        """Number of restarts, of which the best objective wins."""
        return 1

    def revived(self, crowd: Crowd, content: dict[str, Any]) -> Any:
        """The state whose `State.content` a checkpoint kept."""
        return self.state(**content)

    def _converged(self, crowd: Crowd, before: S, after: S) -> bool:
        """Whether a round changed so little that there need not be another."""
        return abs(after.objective - before.objective) < self.tol * max(crowd.n_labelled, 1)

    # the loop

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        best, trace, converged = self._run(crowd, rng)
        for _ in range(self._starts() - 1):
            other = self._run(crowd, rng)
            if other[0].objective > best.objective:
                best, trace, converged = other
        self.objective_, self.n_iter_, self.converged_ = np.array(trace), len(trace), converged
        if self.tol > 0 and self.settles and not converged:
            from sklearn.exceptions import ConvergenceWarning

            warnings.warn(
                f"{type(self).__name__} did not settle within max_iter={self.max_iter} rounds (tol={self.tol:g}); "
                "allow more rounds, or read the result with care",
                ConvergenceWarning,
                stacklevel=5,
            )
        self._say(1, lambda: f"{self.n_iter_} rounds, objective {best.objective:.6f}")
        self._finish(crowd, best)
        return self._posterior(crowd, best)

    def _run(self, crowd: Crowd, rng: np.random.Generator) -> tuple[S, list[float], bool]:
        state, trace, converged = crowd.recalled(self) or (self._start(crowd, rng), list[float](), False)
        while not converged and len(trace) < self.max_iter:
            before, state = state, self._round(crowd, state, rng)
            trace.append(state.objective)
            self._say(2, lambda: f"round {len(trace)}, objective {trace[-1]:.6f}")
            converged = self.tol > 0 and self._converged(crowd, before, state)
            crowd.remember(self, state, trace, converged)
        return state, trace, converged

    def _nothing_to_infer(self, crowd: Crowd) -> Floats:
        self.objective_, self.n_iter_, self.converged_ = np.zeros(0), 0, True
        return crowd.majority()

    def _majority_instead(self, crowd: Crowd, reason: str) -> Floats:
        """Majority vote, with a warning, where a method has nothing to work on."""
        warnings.warn(f"{type(self).__name__} falls back to majority vote: {reason}", CrowdwiseWarning, stacklevel=6)
        return self._nothing_to_infer(crowd)

    def _say(self, level: int, message: Callable[[], str]) -> None:
        if self.verbose >= level:
            print(f"{type(self).__name__}: {message()}")
