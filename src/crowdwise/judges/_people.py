"""Who is a model and who a person, what each model said, and what people say together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.aggregation import HierarchicalDawidSkene, MajorityVote
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.annotations import Annotations
from crowdwise.data.codes import cells, distinct_rows
from crowdwise.data.types import Floats, Ints
from crowdwise.errors import ConfigError, DataError, shorten
from crowdwise.readers import MODEL, PERSON

Models = Sequence[Any] | None
FEW = 2  # labels of people from which on their consensus of an instance counts


@dataclass(frozen=True, eq=False)
class Sides:
    """A crowd of people and models."""

    crowd: Annotations
    models: Ints
    """Codes of the models, (K,), in the order asked for."""
    people: Ints
    """Codes of all others."""

    @classmethod
    def of(cls, data: Any, models: Models = None, kinds: Any = None, *, need: bool = True) -> Sides:
        """From annotations and ``models`` (ids or codes) or ``kinds`` (R,), or from an `Export`, which has its kinds."""
        crowd = Annotations.coerce(getattr(data, "annotations", data))
        kinds = getattr(data, "kinds", None) if kinds is None else kinds
        if models is not None:
            codes = _codes(crowd, models)
        elif kinds is not None:
            given = np.asarray(kinds)
            if given.shape != (crowd.n_annotators,):
                raise DataError(f"kinds has shape {given.shape}, but there are {crowd.n_annotators} annotators")
            unknown = sorted(set(given.tolist()) - {MODEL, PERSON})
            if unknown:
                raise DataError(f"kinds must be {PERSON!r} or {MODEL!r}, got {shorten(unknown)}")
            codes = np.flatnonzero(given == MODEL)
        else:
            codes = np.empty(0, np.int64)
        if need and not codes.size:
            raise ConfigError(
                "none of the annotators is known to be a model: pass models=[...] with their ids, or kinds",
                parameter="models",
            )
        return cls(crowd, codes, np.setdiff1d(np.arange(crowd.n_annotators), codes))

    def name(self, code: int) -> Any:
        """Id of an annotator."""
        return self.crowd.annotator_vocabulary.arrow[int(code)].as_py()

    def labels_of(self, code: int, rng: np.random.Generator) -> Ints:
        """What an annotator said of every instance, (n,), -1 where nothing: of several labels the most frequent one,
        of equally frequent ones any."""
        crowd = self.crowd
        rows = crowd.by_annotator[int(code)]
        said = np.full(crowd.n_instances, -1, np.int64)
        pairs, number = np.unique(cells(crowd.instance[rows], crowd.n_classes, crowd.label[rows]), return_counts=True)
        instance, label = np.divmod(pairs, max(crowd.n_classes, 1))
        order = np.lexsort((rng.random(len(pairs)), number, instance))
        said[instance[order]] = label[order]  # the last one of an instance stays
        return said

    def of_people(self) -> Annotations:
        """The labels of people; of a repeated (instance, person) the last one."""
        crowd = self.crowd.where(np.isin(self.crowd.annotator, self.people))
        last = distinct_rows(cells(crowd.instance, crowd.n_annotators, crowd.annotator), last=True)
        return crowd.where(np.isin(np.arange(len(crowd)), last))


def reference_of(sides: Sides, reference: Any) -> tuple[Floats, str]:
    """Probability of every class of every instance (n, C), NaN rows where nothing is known, and where it is from.

    ``reference`` is an array (n, C), anything that holds gold labels, or None for the consensus of people.
    """
    crowd = sides.crowd
    shape = crowd.n_instances, crowd.n_classes
    if reference is None:
        if not sides.people.size:
            raise DataError(
                "there are neither people nor gold labels: errors that models have in common cannot be seen from their "
                "labels alone",
                parameter="reference",
            )
        return people_consensus(sides), "people"
    if isinstance(reference, np.ndarray) and reference.ndim == 2:
        if reference.shape != shape:
            raise DataError(f"the reference has shape {reference.shape}, but the annotations need {shape} (n, C)")
        return np.asarray(reference, np.float64), "given"
    codes = gold_codes(crowd, reference)
    known = np.full(shape, np.nan)
    if codes is not None:
        rows = np.flatnonzero(codes >= 0)
        known[rows] = 0.0
        known[rows, codes[rows]] = 1.0
    return known, "gold"


def likeliest(reference: Floats) -> Ints:
    """The most probable class of every instance, (n,); -1 where nothing is known."""
    return np.where(np.isnan(reference).any(axis=1), -1, np.nan_to_num(reference).argmax(axis=1))


def people_consensus(sides: Sides) -> Floats:
    """What people say of every instance that two or more of them labelled, (n, C); NaN elsewhere.

    With three people or more their quality is estimated (hierarchical Dawid-Skene), else they vote.
    """
    said = sides.of_people()
    active = int(np.count_nonzero(said.labels_per_annotator))
    method = HierarchicalDawidSkene() if active > 2 else MajorityVote()
    consensus = np.array(method.fit(said).posterior_)
    consensus[said.labels_per_instance < FEW] = np.nan
    return consensus


def _codes(crowd: Annotations, models: Iterable[Any]) -> Ints:
    """Codes of models by id, or by code where these are no ids."""
    wanted = [models] if isinstance(models, str) else list(models)
    known = {one: code for code, one in enumerate(crowd.annotator_vocabulary.arrow.to_pylist())}
    unknown = [one for one in wanted if one not in known]
    if not unknown:
        codes = [known[one] for one in wanted]
    elif all(isinstance(one, int | np.integer) and 0 <= one < crowd.n_annotators for one in wanted):
        codes = [int(one) for one in wanted]
    else:
        raise ConfigError(f"no annotator is called {shorten(unknown)}", parameter="models")
    if len(set(codes)) < len(codes):
        raise ConfigError(f"models names an annotator twice: {shorten(wanted)}", parameter="models")
    return np.array(codes, np.int64)
