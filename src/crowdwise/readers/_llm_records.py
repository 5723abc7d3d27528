"""Records of language models' answers, of every provider and tool: batch outputs, chats, Autolabel, distilabel, Inspect."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from crowdwise.readers._answers import Token, name_of
from crowdwise.readers._collector import simple
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


def answers(source: InputFile, options: ReadOptions) -> Iterator[Answer]:
    """All answers of a file."""
    if source.kind == "zip":
        yield from _inspect(list(_inspect_samples(source)), options)
        return
    if source.kind == "csv":
        yield from _autolabel(source)
        return
    if source.first is not None and {"eval", "samples"} <= set(source.names):
        for document in source.records:
            header = document.record("eval")
            yield from _inspect([(header, sample) for sample in document.list("samples")], options)
        return
    for number, record in enumerate(source.records, start=1):
        yield from _record(record, number, source.path.name.split(".")[0])


def _record(record: Node, number: int, stem: str) -> Iterator[Answer]:
    fields = record.fields()
    known = next((record.get(key) for key in _IDS if fields.get(key) is not None), None)
    if known is None and isinstance(fields.get("metadata"), dict):
        known = record.need("metadata").get("id")
    if "result" in fields and isinstance(fields["result"], dict) and "type" in fields["result"]:
        yield from _anthropic(record, _id(known, number), stem)
        return
    response = record.get("response")
    if response is not None and isinstance(response.value, dict) and "candidates" in response.value:
        yield from _gemini(record, response, _id(known, number), stem)
        return
    if "candidates" not in fields and fields.get("status") and isinstance(fields.get("request"), dict):
        yield Answer(record, _id(known, number), stem, failure=FAILED)
        return
    if "model_name" in fields:
        yield _distilabel(record, _id(known, number))
        return
    if known is None:
        raise record.error(f"there is no id: none of {', '.join(map(repr, _IDS))}")
    instance = known.id()
    if "custom_id" in fields and ("response" in fields or "error" in fields):
        if fields.get("error") is not None or response is None:
            yield Answer(record, instance, stem, failure=FAILED)
            return
        status = response.fields().get("status_code", 200)
        body = response.get("body")
        if status != 200 or body is None:
            yield Answer(record, instance, stem, failure=FAILED)
            return
        yield from _body(body, instance, stem)
        return
    yield from _body(record, instance, stem)


def _id(known: Node | None, number: int) -> Id:
    return number if known is None else known.id()


# -- OpenAI, and all who follow it ----------------------------------------------------------------------------------------


def _body(body: Node, instance: Id, stem: str) -> Iterator[Answer]:
    """The answers in a chat completion, a response, or a line of a chat log."""
    named = body.get("model")
    model = stem if named is None else named.id()
    fields = body.fields()
    if isinstance(fields.get("choices"), list):
        for choice in body.list("choices"):
            yield _choice(choice, instance, model)
        return
    if isinstance(fields.get("output"), list):
        yield _response(body, instance, model)
        return
    if fields.get("error") is not None:
        yield Answer(body, instance, model, failure=FAILED)
        return
    content = next((body.get(key) for key in _CHATS if fields.get(key) is not None), None)
    if content is None:
        yield Answer(body, instance, model, failure=EMPTY)
        return
    yield Answer(
        body, instance, model, _text(content), failure=_ended(fields.get("stop_reason") or fields.get("finish_reason"))
    )


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


def _is_log(value: Any) -> bool:
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


def _anthropic(record: Node, instance: Id, stem: str) -> Iterator[Answer]:
    result = record.need("result")
    message = result.record("message")
    if result.value.get("type") != "succeeded" or message is None:
        yield Answer(record, instance, stem, failure=FAILED)
        return
    named = message.get("model")
    content = message.get("content")
    failure = _ended(message.fields().get("stop_reason"))
    yield Answer(record, instance, stem if named is None else named.id(), _text(content), failure=failure)


def _gemini(record: Node, response: Node, instance: Id, stem: str) -> Iterator[Answer]:
    named = response.get("modelVersion")
    model = stem if named is None else named.id()
    if record.fields().get("status"):
        yield Answer(record, instance, model, failure=FAILED)
        return
    for candidate in response.list("candidates"):
        fields = candidate.fields()
        reason = fields.get("finishReason", "STOP")
        failure = None if reason == "STOP" else _ended(reason) or (CUT if reason == "MAX_TOKENS" else FAILED)
        content = candidate.record("content")
        text = None if content is None else _text(content.get("parts"))
        average = fields.get("avgLogprobs")
        sure = math.exp(float(average)) if average is not None and _is_log(average) else None
        tokens = _gemini_tokens(fields.get("logprobsResult"))
        yield Answer(candidate, instance, model, text, tokens, None if tokens else sure, failure)


def _gemini_tokens(result: Any) -> tuple[Token, ...]:
    if not isinstance(result, dict):
        return ()
    top = result.get("topCandidates")
    others = [
        one.get("candidates") if isinstance(one, dict) else None for one in (top if isinstance(top, list) else ())
    ]
    return _tokens(result.get("chosenCandidates"), others, "logProbability")


def _distilabel(record: Node, instance: Id) -> Answer:
    model, fields = record.need("model_name").id(), record.fields()
    content = next((record.get(key) for key in ("labels", "label", "generation") if fields.get(key) is not None), None)
    if content is None:
        return Answer(record, instance, model, failure=EMPTY)
    if isinstance(content.value, list):
        found = [one.value for one in content.items() if isinstance(one.value, str | int | float)]
        return Answer(record, instance, model, json.dumps({"labels": found}), item=_item(fields))
    return Answer(record, instance, model, _text(content), item=_item(fields))


def _item(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if simple(name) in _CONTENTS and isinstance(value, str)}


def _autolabel(source: InputFile) -> Iterator[Answer]:
    column = _labelled(source.names)
    if column is None:
        return
    stem, name = column.removesuffix("_label"), source.path.name.split(".")[0]
    known = next((key for key in _IDS if key in source.names), None)
    for number, row in enumerate(source.records, start=1):
        fields = row.fields()
        done = str(fields.get(f"{stem}_successfully_labeled", "")).strip().lower()
        failed = fields.get(f"{stem}_error") not in (None, "") or done == "false"
        given = row.get(known) if known is not None else None
        sure = fields.get(f"{stem}_confidence")
        yield Answer(
            row,
            _id(given, number),
            name,
            None if failed else _text(row.get(column)),
            confidence=_number(sure),
            failure=FAILED if failed else None,
            item=_item(fields),
        )


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def inspect_parts(source: InputFile) -> list[str]:
    """The parts of an archive that Inspect wrote; none if it is another."""
    names = list(source.parts)
    return (
        [name for name in names if name.startswith("samples/") and name.endswith(".json")]
        if "header.json" in names
        else []
    )


def _inspect_samples(source: InputFile) -> Iterator[tuple[Node | None, Node]]:
    head = Node(parse_json(source.parts["header.json"](), "header.json, "), "header.json").record("eval")
    for name in inspect_parts(source):
        yield head, Node(parse_json(source.parts[name](), f"{name}, "), name)


def _inspect(samples: list[tuple[Node | None, Node]], options: ReadOptions) -> Iterator[Answer]:
    """Scores of Inspect: of each sample and epoch what the scorer read as the answer, or its value."""
    scorers = dict.fromkeys(name for _, sample in samples for name in _scores(sample))
    scorer = options.choose(scorers)
    for head, sample in samples:
        named = None if head is None else head.get("model")
        model = f"{scorer}/{named.id()}" if named is not None else scorer
        instance = sample.need("id").id()
        score = _scores(sample).get(scorer)
        if sample.fields().get("error") is not None or score is None:
            yield Answer(sample, instance, model, failure=FAILED)
            continue
        answer = score.get("answer") or score.get("value")
        yield Answer(sample, instance, model, _text(answer))


def _scores(sample: Node) -> dict[str, Node]:
    scores = sample.get("scores")
    if scores is None or not isinstance(scores.value, dict):
        return {}
    return {name: Node(value, scores, name) for name, value in scores.value.items() if isinstance(value, dict)}
