"""What language models answered: batch outputs, chat logs, Autolabel, distilabel and Inspect.

Answers are matched by id, never by order. An answer without exactly one class is an abstention: it is counted by its
reason, and nothing is filled in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from crowdwise.errors import ReadError
from crowdwise.readers._answers import Classes, Found, find_label, guess_label, name_of, soft_label
from crowdwise.readers._collector import Collector
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._llm_records import EMPTY, Answer, answers, inspect_parts, shape
from crowdwise.readers._node import Label, storable
from crowdwise.readers._source import InputFile


@READERS.register("llm")
class LanguageModels(Reader):
    """Every answer is an annotation by a model; several answers of one model about one instance share one label."""

    summary = (
        "language models: batch outputs (OpenAI, Anthropic, Gemini, vLLM), chat logs, Autolabel, distilabel, Inspect"
    )
    kinds = ("jsonl", "json", "csv", "zip")
    rank = 1
    answers = True

    def detect(self, source: InputFile) -> str | None:
        if source.kind == "zip":
            return "it holds 'header.json' and samples" if inspect_parts(source) else None
        return shape(source)

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        if source.kind not in self.kinds or self.detect(source) is None:
            raise ReadError("the records are not those of a batch output, a chat log, Autolabel, distilabel or Inspect")
        given = list(answers(source, options))
        classes = Classes(tuple(options.classes)) if options.classes else _observed(given, options.question)
        collector = Collector(source, options)
        for answer in given:
            _collect(collector, answer, classes, options.question)
        if not collector:
            hint = "" if options.classes else "; name the classes to look for with classes=[...]"
            raise ReadError(f"no answer names a class ({collector.reasons}){hint}")
        found = "" if options.classes else f"classes as answered: {', '.join(map(name_of, classes.values[:10]))}"
        return collector.export(options.question, remark=found)


def _collect(collector: Collector, answer: Answer, classes: Classes, question: str | None) -> None:
    if answer.failure is not None:
        collector.left_out[answer.failure] += 1
        return
    if not answer.text or not answer.text.strip():
        collector.left_out[EMPTY] += 1
        return
    found = find_label(answer.text, classes, question)
    if found.label is None:
        collector.left_out[found.reason] += 1
        return
    collector.item(answer.instance, answer.item)
    shares, sure = soft_label(found, answer.tokens, classes)
    confidence = sure if answer.confidence is None else answer.confidence
    for label, share in (shares or {found.label: 1.0}).items():
        own = confidence if label == found.label else share
        collector.add(answer.node, answer.instance, answer.model, label, model=True, weight=share, confidence=own)


def _observed(answers: Iterable[Answer], question: str | None) -> Classes:
    """Classes from the answers themselves, each as it is most often spelled."""
    spelled: dict[str, Counter[Any]] = {}
    for answer in answers:
        found = Found(None) if answer.text is None else guess_label(answer.text, question)
        if found.label is not None:
            label = storable(found.label) if isinstance(found.label, str) else found.label
            spelled.setdefault(name_of(found.label).casefold(), Counter())[label] += 1
    values: list[Label] = [names.most_common(1)[0][0] for names in spelled.values()]
    if any(isinstance(value, str) for value in values):  # classes are of one kind
        values = [name_of(value) for value in values]
    elif any(isinstance(value, float) and not value.is_integer() for value in values):
        values = [float(value) for value in values]
    else:
        values = [int(value) for value in values]
    return Classes(tuple(values))
