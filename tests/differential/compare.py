"""What a road found against what the reference read: where they differ, in words."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from differential import reference
from differential.cases import Case
from differential.roads import CrowdwiseError, Outcome, Refusal, roads_of
from differential.rules import Crowd, is_repeat
from differential.values import Refused

SAME, DIFFERENT, RAW, ACCEPTED = "same", "different", "raw error", "accepted"
REFUSED, BOTH_REFUSED, OPEN = "refused", "both refused", "left open"
FAULTS = (DIFFERENT, RAW, ACCEPTED)


@dataclass
class Verdict:
    """How a road fared with a case."""

    road: str
    outcome: str
    why: str = ""
    found: Any = None


@dataclass
class Verdicts:
    """Of all roads that were tried."""

    case: Case
    expected: Crowd | None
    refusal: str
    roads: list[Verdict] = field(default_factory=list)

    @property
    def faults(self) -> list[Verdict]:
        return [each for each in self.roads if each.outcome in FAULTS]


def judge(case: Case, roads: int | None = None) -> Verdicts:
    """Take a case down its roads, ``read`` and some others, by turns; all of them without a number."""
    expected, refusal = None, ""
    try:
        expected = reference.read(case.files, case.names, case.kind, case.options)
    except Refused as error:
        refusal = str(error)
    verdicts = Verdicts(case, expected, refusal)
    known = roads_of(case)
    others = list(known)[1:]
    if roads is not None and len(others) > roads - 1:
        others = [others[(case.number + k) % len(others)] for k in range(roads - 1)]
    for name in ["read", *others]:
        with tempfile.TemporaryDirectory(prefix="differential-") as folder:
            verdicts.roads.append(_tried(case, name, known[name], Path(folder), expected))
    return verdicts


def _tried(case: Case, name: str, road: Any, folder: Path, expected: Crowd | None) -> Verdict:
    for file, data in case.files.items():
        (folder / file).write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = road(case, folder)
    except (CrowdwiseError, Refusal) as error:
        message = str(error).replace(str(folder), "")
        if expected is None:
            return Verdict(name, BOTH_REFUSED, message)
        return Verdict(name, OPEN if expected.open else REFUSED, message)
    except Exception as error:  # whatever escapes is a fault
        return Verdict(name, RAW, f"{type(error).__name__}: {error}")
    if expected is None:
        return Verdict(name, ACCEPTED, "", found)
    wrong = differences(expected, found)
    if wrong and expected.open:
        return Verdict(name, OPEN, wrong, found)
    return Verdict(name, DIFFERENT if wrong else SAME, wrong, found)


def differences(expected: Crowd, found: Outcome) -> str:
    """Where they differ; empty where they do not."""
    checks = [_rows, _gold, _texts, _models, _winners, _shares, _sizes, _counts]
    return next((wrong for check in checks if (wrong := check(expected, found))), "")


def _keys(expected: Crowd, names: set[str]) -> dict[str, str] | str:
    """Name of a class -> its key; in words, what does not fit."""
    found: dict[str, str] = {}
    for name in sorted(names):
        keys = [key for key, known in expected.names.items() if name in known]
        if not keys:
            return f"class {name!r} is none of {sorted(map(sorted, expected.names.values()))}"
        found[name] = name if name in keys else keys[0]
    if len(set(found.values())) < len(found):
        return f"one class has several names: {sorted(found)}"
    return found


def _rows(expected: Crowd, found: Outcome) -> str:
    if found.rows is None:
        return ""
    keys = _keys(expected, {label for *_, label, _ in found.rows})
    if isinstance(keys, str):
        return keys
    rows = Counter((i, j, keys[y], round(w, 4)) for i, j, y, w in found.rows)
    wanted = expected.triples()
    if rows == wanted:
        return ""
    return f"missing {list((wanted - rows).elements())[:6]}; too many {list((rows - wanted).elements())[:6]}"


def _gold(expected: Crowd, found: Outcome) -> str:
    if found.gold is None or expected.gold_open:
        return ""
    keys = _keys(expected, set(found.gold.values()))
    if isinstance(keys, str):
        return f"gold: {keys}"
    gold = {one: keys[truth] for one, truth in found.gold.items()}
    return "" if gold == expected.gold else f"gold {gold}, not {expected.gold}"


def _texts(expected: Crowd, found: Outcome) -> str:
    if found.texts is None:
        return ""
    for one, text in found.texts.items():
        wanted = expected.texts.get(one)
        if (wanted or "") != (text or ""):
            return f"text of {one!r}: {text!r}, not {wanted!r}"
    return ""


def _models(expected: Crowd, found: Outcome) -> str:
    if found.models is None or found.models == expected.models:
        return ""
    return f"models {found.models}, not {expected.models}"


def _winners(expected: Crowd, found: Outcome) -> str:
    if found.winners is None:
        return ""
    votes = expected.votes()
    if set(found.winners) != set(votes):
        return f"instances {sorted(found.winners)[:9]}, not {sorted(votes)[:9]}"
    keys = _keys(expected, {label for label, _ in found.winners.values()})
    if isinstance(keys, str):
        return keys
    for one, (label, confidence) in found.winners.items():
        share = votes[one].get(keys[label], 0.0)
        if expected.gold.get(one) == keys[label]:
            continue  # told, or right by itself
        if share < max(votes[one].values()) - 1e-5:
            return f"{one!r} is {label!r}, but votes are {votes[one]}"
        if abs(share / sum(votes[one].values()) - confidence) > 1e-5:
            return f"{one!r} is {label!r} with {confidence}, but votes are {votes[one]}"
    return ""


def _shares(expected: Crowd, found: Outcome) -> str:
    if not found.shares:
        return ""
    votes = expected.votes()
    for one, shares in found.shares.items():
        keys = _keys(expected, {name for name, share in shares.items() if share > 0})
        if isinstance(keys, str):
            return keys
        total = sum(votes[one].values())
        wanted = {key: vote / total for key, vote in votes[one].items()}
        given = {keys[name]: share for name, share in shares.items() if share > 0}
        if one in expected.gold:
            continue
        if set(given) != set(wanted) or any(abs(given[key] - wanted[key]) > 1e-5 for key in wanted):
            return f"shares of {one!r}: {given}, not {wanted}"
    return ""


def _sizes(expected: Crowd, found: Outcome) -> str:
    if found.sizes is None:
        return ""
    wanted = {
        "instances": len({i for i, *_ in expected.rows}),
        "annotators": len({j for _, j, *_ in expected.rows}),
        "annotations": len(expected.rows),
    }
    wrong = {name: size for name, size in found.sizes.items() if size != wanted[name]}
    if wrong:
        return f"sizes {wrong}, not {wanted}"
    return _agreement(expected, found)


def _agreement(expected: Crowd, found: Outcome) -> str:
    """Mean over instances of the share of pairs of labels that are equal, where nobody labelled twice."""
    pairs: dict[tuple[str, str], list[tuple[str, str, str, float]]] = {}
    labels: dict[str, list[str]] = {}
    for row in expected.rows:
        pairs.setdefault(row[:2], []).append(row)
        labels.setdefault(row[0], []).append(row[2])
    if any(len(group) > 1 for group in pairs.values()) or any(weight != 1 for *_, weight in expected.rows):
        return ""
    shares = []
    for given in labels.values():
        if len(given) > 1:
            equal = sum(n * (n - 1) for n in Counter(given).values())
            shares.append(equal / (len(given) * (len(given) - 1)))
    if not shares or found.agreement is None:
        return ""
    wanted = sum(shares) / len(shares)
    return "" if abs(wanted - found.agreement) < 1e-9 else f"raw agreement {found.agreement}, not {wanted}"


def _counts(expected: Crowd, found: Outcome) -> str:
    if found.counts is None:
        return ""
    groups: dict[tuple[str, str], list[tuple[str, str, str, float]]] = {}
    for row in expected.rows:
        groups.setdefault(row[:2], []).append(row)
    if any(is_repeat(group) for group in groups.values()) or any(weight != 1 for *_, weight in expected.rows):
        return "" if set(found.counts) == {row[1] for row in expected.rows} else f"annotators {set(found.counts)}"
    wanted = Counter(row[1] for row in expected.rows)
    return "" if wanted == found.counts else f"labels by annotator {found.counts}, not {dict(wanted)}"
