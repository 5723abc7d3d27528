"""Records of language models' answers, of every provider and tool: batch outputs, chats, Autolabel, distilabel, Inspect."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, TypeGuard

from crowdwise.data.frames import simple_name
from crowdwise.readers._answers import Token, name_of
from crowdwise.readers._export import ReadOptions
from crowdwise.readers._node import Id, Node, parse_json
from crowdwise.readers._source import InputFile

FAILED, CUT, REFUSED, FILTERED, EMPTY = "failed", "cut off", "refused", "filtered", "empty"
_ENDS = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), CUT),
    **dict.fromkeys(("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii"), FILTERED),
    "refusal": REFUSED,
}
_AUTOLABEL = ("_confidence", "_successfully_labeled", "_error", "_annotation")
_CONTENTS = ("text", "sentence", "document", "question", "title", "review", "image", "imageurl")
_CHATS = ("choices", "content", "output", "response", "completion")
_IDS = ("custom_id", "id", "key", "item_id", "instance_id")


@dataclass(frozen=True)
class Answer:
    """One answer of a model about one instance."""

    node: Node
    instance: Id
    model: Id
    text: str | None = None
    tokens: tuple[Token, ...] = ()
    confidence: Any = None
    failure: str | None = None
    """Why there is no answer."""
    item: Mapping[str, Any] = field(default_factory=dict)
    """The instance itself, where the file has it."""


# -- which shape it is ----------------------------------------------------------------------------------------------------


def shape(source: InputFile) -> str | None:
    """By what a file is recognised, in words; None if it is not of these kinds."""
    names = set(source.names)
    if source.kind == "csv":
        column = _labelled(source.names)
        return None if column is None else f"it has {column!r} and what Autolabel writes beside it"
    if {"eval", "samples"} <= names:
        return "it has 'eval' and 'samples', as Inspect writes"
    if "custom_id" in names and ({"response", "result", "error"} & names):
        return "it has 'custom_id' and a response"
    first = {} if source.first is None else source.first.value
    if isinstance(first.get("response"), dict) and "candidates" in first["response"]:
        return "its responses have 'candidates'"
    if "model_name" in names and {"distilabel_metadata", "labels", "generation"} & names:
        return "it has 'model_name', as distilabel writes"
    if "model" in names and set(_CHATS) & names and ({*_IDS, "metadata"} & names):
        return "it has 'model' and an answer"
    return None


def _labelled(names: list[str]) -> str | None:
    """The column of labels of Autolabel."""
    for name in names:
        stem = name.removesuffix("_label")
        if stem != name and any(stem + suffix in names for suffix in _AUTOLABEL):
            return name
    return None


def answers(source: InputFile, options: ReadOptions) -> Iterable[Answer]:
    """All answers of a file."""
    if source.kind == "csv":
        return _autolabel(source)
    if source.kind == "zip":
        head = _part(source, "header.json").record("eval")
        return _inspect([(head, _part(source, name)) for name in inspect_parts(source)], options)
    if {"eval", "samples"} <= set(source.names):
        logs = [[(log.record("eval"), sample) for sample in log.list("samples")] for log in source.records]
        return chain.from_iterable(_inspect(samples, options) for samples in logs)
    stem = source.path.name.split(".")[0]
    return chain.from_iterable(_record(record, k, stem) for k, record in enumerate(source.records, start=1))


def _record(record: Node, number: int, stem: str) -> Iterable[Answer]:
    """The answers in a record; one without an id goes by its number, where the tool writes records in order."""
    fields, response = record.fields(), record.get("response")
    known = record.first(*_IDS)
    if known is None and isinstance(fields.get("metadata"), dict):
        known = record.need("metadata").get("id")
    instance = number if known is None else known.id()
    failed = [Answer(record, instance, stem, failure=FAILED)]
    result = fields.get("result")
    if isinstance(result, dict) and "type" in result:
        return _anthropic(record, instance, stem) or failed
    if response is not None and isinstance(response.value, dict) and "candidates" in response.value:
        return _gemini(record, response, instance, stem)
    if "candidates" not in fields and fields.get("status") and isinstance(fields.get("request"), dict):
        return failed
    if "model_name" in fields:
        return [_distilabel(record, instance)]
    if known is None:
        raise record.error(f"there is no id: none of {', '.join(map(repr, _IDS))}")
    if "custom_id" not in fields or not {"response", "error"} & fields.keys():
        return _body(record, instance, stem)
    if fields.get("error") is not None or response is None or response.fields().get("status_code", 200) != 200:
        return failed
    body = response.get("body")
    return failed if body is None else _body(body, instance, stem)


def _model(node: Node, key: str, stem: str) -> Id:
    """The model that a record names, else the file's name."""
    named = node.get(key)
    return stem if named is None else named.id()


# -- OpenAI, and all who follow it ----------------------------------------------------------------------------------------


def _body(body: Node, instance: Id, stem: str) -> Iterable[Answer]:
    """The answers in a chat completion, a response, or a line of a chat log."""
    model, fields = _model(body, "model", stem), body.fields()
    if isinstance(fields.get("choices"), list):
        return [_choice(choice, instance, model) for choice in body.list("choices")]
    if isinstance(fields.get("output"), list):
        return [_response(body, instance, model)]
    if fields.get("error") is not None:
        return [Answer(body, instance, model, failure=FAILED)]
    content = body.first(*_CHATS)
    failure = EMPTY if content is None else _ended(fields.get("stop_reason") or fields.get("finish_reason"))
    return [Answer(body, instance, model, _text(content), failure=failure)]


def _choice(choice: Node, instance: Id, model: Id) -> Answer:
    fields = choice.fields()
    message = choice.record("message")
    failure = _ended(fields.get("finish_reason"))
    if message is not None and message.fields().get("refusal"):
        failure = REFUSED
    content = message.get("content") if message is not None else choice.get("text")
    if content is None and message is not None:
        content = _tool_call(message)
    logprobs = fields.get("logprobs")
    tokens = _tokens(logprobs.get("content")) if isinstance(logprobs, dict) else ()
    return Answer(choice, instance, model, _text(content), tokens, failure=failure)


def _tool_call(message: Node) -> Node | None:
    """The arguments of the only function that was called."""
    calls = message.list("tool_calls")
    function = calls[0].record("function") if len(calls) == 1 else None
    return None if function is None else function.get("arguments")


def _response(body: Node, instance: Id, model: Id) -> Answer:
    """The Responses API: output -> message -> content -> output_text."""
    fields = body.fields()
    failure = None if fields.get("status", "completed") == "completed" else FAILED
    details = fields.get("incomplete_details")
    if failure is not None and isinstance(details, dict):
        failure = _ended(details.get("reason")) or failure
    texts, tokens = [], list[Token]()
    for item in body.list("output"):
        if item.fields().get("type") != "message":
            continue
        for part in item.list("content"):
            if part.fields().get("type") == "refusal":
                failure = REFUSED
            elif part.fields().get("type") == "output_text":
                texts.append(part.text("text") or "")
                tokens += _tokens(part.fields().get("logprobs"))
    return Answer(body, instance, model, "".join(texts), tuple(tokens), failure=failure)


def _tokens(chosen: Any, others: list[Any] | None = None, field: str = "logprob") -> tuple[Token, ...]:
    """Tokens with what might have stood in their places; none at all where one is not understood."""

    def known(one: Any) -> bool:
        return isinstance(one, dict) and isinstance(one.get("token"), str) and _is_log(one.get(field))

    if not isinstance(chosen, list) or not all(map(known, chosen)):
        return ()
    others = [one.get("top_logprobs") for one in chosen] if others is None else others[: len(chosen)]
    tokens = []
    for one, some in zip_longest(chosen, others):
        rivals = [other for other in (some if isinstance(some, list) else ()) if known(other)]
        tokens.append(Token(one["token"], float(one[field]), [(each["token"], float(each[field])) for each in rivals]))
    return tuple(tokens)


def _is_log(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and value < 1e-3


def _text(content: Node | None) -> str | None:
    """Text, or the texts of a list of parts, or an object as JSON."""
    if content is None or isinstance(content.value, str):
        return None if content is None else content.value
    if isinstance(content.value, list):
        parts = [one.value if isinstance(one.value, dict) else {"text": one.value} for one in content.items()]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        calls = [
            part["input"] for part in parts if part.get("type") == "tool_use" and isinstance(part.get("input"), dict)
        ]
        return "".join(texts) or (json.dumps(calls[0]) if len(calls) == 1 else None)
    if isinstance(content.value, dict):
        return json.dumps(content.value)
    return name_of(content.value) if isinstance(content.value, int | float) else None


def _ended(reason: Any) -> str | None:
    return _ENDS.get(reason.lower()) if isinstance(reason, str) else None


# -- the others -----------------------------------------------------------------------------------------------------------


def _anthropic(record: Node, instance: Id, stem: str) -> list[Answer]:
    """The answer of a batch; none if it did not succeed."""
    result = record.need("result")
    message = result.record("message")
    if result.value.get("type") != "succeeded" or message is None:
        return []
    failure = _ended(message.fields().get("stop_reason"))
    return [Answer(record, instance, _model(message, "model", stem), _text(message.get("content")), failure=failure)]


def _gemini(record: Node, response: Node, instance: Id, stem: str) -> Iterator[Answer]:
    model = _model(response, "modelVersion", stem)
    if record.fields().get("status"):
        yield Answer(record, instance, model, failure=FAILED)
        return
    for candidate in response.list("candidates"):
        fields, content = candidate.fields(), candidate.record("content")
        reason = fields.get("finishReason", "STOP")
        failure = None if reason == "STOP" else _ended(reason) or FAILED
        text = None if content is None else _text(content.get("parts"))
        average = fields.get("avgLogprobs")
        tokens = _gemini_tokens(fields.get("logprobsResult"))
        sure = math.exp(average) if not tokens and _is_log(average) else None
        yield Answer(candidate, instance, model, text, tokens, sure, failure)


def _gemini_tokens(result: Any) -> tuple[Token, ...]:
    if not isinstance(result, dict):
        return ()
    top = result.get("topCandidates")
    others = [
        one.get("candidates") if isinstance(one, dict) else None for one in (top if isinstance(top, list) else ())
    ]
    return _tokens(result.get("chosenCandidates"), others, "logProbability")


def _distilabel(record: Node, instance: Id) -> Answer:
    model, content = record.need("model_name").id(), record.first("labels", "label", "generation")
    if content is None:
        return Answer(record, instance, model, failure=EMPTY)
    if isinstance(content.value, list):
        found = [one for one in content.value if isinstance(one, str | int | float)]
        return Answer(record, instance, model, json.dumps({"labels": found}), item=_item(record.fields()))
    return Answer(record, instance, model, _text(content), item=_item(record.fields()))


def _item(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if simple_name(name) in _CONTENTS and isinstance(value, str)}


def _autolabel(source: InputFile) -> Iterator[Answer]:
    column = _labelled(source.names)
    if column is None:
        return
    stem, model = column.removesuffix("_label"), source.path.name.split(".")[0]
    key = next((key for key in _IDS if key in source.names), None)
    for number, row in enumerate(source.records, start=1):
        fields, known = row.fields(), row.get(key) if key is not None else None
        instance = number if known is None else known.id()
        done = str(fields.get(f"{stem}_successfully_labeled", "")).strip().lower()
        failed = fields.get(f"{stem}_error") not in (None, "") or done == "false"
        text, failure = (None, FAILED) if failed else (_text(row.get(column)), None)
        sure = fields.get(f"{stem}_confidence")
        yield Answer(row, instance, model, text, confidence=sure, failure=failure, item=_item(fields))


def inspect_parts(source: InputFile) -> list[str]:
    """The parts of an archive that Inspect wrote; none if it is another."""
    known = [name for name in source.parts if name.startswith("samples/") and name.endswith(".json")]
    return known if "header.json" in source.parts else []


def _part(source: InputFile, name: str) -> Node:
    return Node(parse_json(source.parts[name](), f"{name}, "), name)


def _inspect(samples: list[tuple[Node | None, Node]], options: ReadOptions) -> Iterator[Answer]:
    """Scores of Inspect: of each sample and epoch what the scorer read as the answer, or its value."""
    scorer = options.choose(name for _, sample in samples for name in _scores(sample))
    for head, sample in samples:
        named = None if head is None else head.get("model")
        model = f"{scorer}/{named.id()}" if named is not None else scorer
        instance = sample.need("id").id()
        score = _scores(sample).get(scorer)
        if sample.fields().get("error") is not None or score is None:
            yield Answer(sample, instance, model, failure=FAILED)
        else:
            yield Answer(sample, instance, model, _text(score.first("answer", "value")))


def _scores(sample: Node) -> dict[str, Node]:
    scores = sample.get("scores")
    if scores is None or not isinstance(scores.value, dict):
        return {}
    return {name: Node(value, scores, name) for name, value in scores.value.items() if isinstance(value, dict)}
