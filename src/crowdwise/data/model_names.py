"""Which annotators are language models, as their names say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from crowdwise.data.types import Array, Mask

_START = r"(?:^|[/\s:_-])"  # of a word: "openai/gpt-4o", "run_llama3"
_WORDS = r"(?:mini|small|medium|large|nano|pro|flash|ultra|base|xl|xxl|chat|instruct|it|latest)"
_VERSION = rf"(?:[\s_.:-]?v?\d|[\s_:-]{_WORDS}\b)"
_KNOWN = (  # names that people do not have
    "mistral|mixtral|ministral|magistral|gemini|qwen|qwq|deepseek|grok|wizardlm|chatglm|internlm|nemotron|vicuna|stablelm|dbrx"
    "|baichuan|codestral"
)
_AMBIGUOUS = (
    "gpt|llama|claude|gemma|bard|palm|phi|aya|olmo|yi|falcon|alpaca|zephyr|orca|nova|flan|bloom|command|opt|granite"
)
_SURE = re.compile(
    "|".join(
        (
            rf"{_START}(?:chatgpt|gpt[\s_-]?(?:[2-9]|neo|j\b|oss)|o[134]-(?:mini|preview|pro))",
            rf"{_START}(?:text-(?:ada|babbage|curie|davinci|bison)|chat-bison|davinci-\d)",
            rf"{_START}claude[\s_-](?:\d|v\d|opus|sonnet|haiku|instant)",
            rf"{_START}(?:flan[\s_-]?(?:t5|ul2|palm)|m?t5-{_WORDS}|palm[\s_-]?2|bloomz|command-r)",
            rf"{_START}(?:code|tiny|open)?llama{_VERSION}",
            rf"{_START}(?:{_KNOWN}){_VERSION}",
            rf"{_START}(?:{_AMBIGUOUS})[\s_.:-]?v?\d[\d.]*[\s_:-](?:{_WORDS}|\d+(?:\.\d+)?b)\b",
            rf"{_START}deepseek[\s_-]?(?:r1|coder|chat)\b",
            rf":\d+(?:\.\d+)?b\b|-\d+(?:\.\d+)?b-{_WORDS}\b",  # billions of parameters: "orca:7b"
            r":latest$",
        )
    ),
    re.IGNORECASE,
)
_LIKELY = re.compile(  # a person's name or number, unless others here are certainly models
    rf"{_START}(?:(?:{_KNOWN}|{_AMBIGUOUS})(?:$|[\s_/:.-]|\d)|t5\b|ul2\b|o[134]$)", re.IGNORECASE
)


PEOPLE = 2.0  # labels of people per item from which on they show how far models err alike


def models_alone(annotators: Sequence[Any], labels: Array, n_items: int, models: Collection[Any]) -> bool:
    """Whether agreement is that of models: two or more of the annotators are, and people gave fewer than 2 labels per item.

    ``labels`` (R,) are the numbers of labels of the annotators, and ``models`` ids of those that are models.

    >>> models_alone(["gpt-4", "llama-3", "ann"], np.array([10, 10, 10]), 10, ["gpt-4", "llama-3"])
    True
    """
    named = {str(each) for each in models}
    known = np.array([str(each) in named for each in annotators], bool)
    asked = known & (labels > 0)
    return bool(asked.sum() > 1 and labels[~known].sum() < PEOPLE * max(n_items, 1))


def model_names(names: Iterable[Any]) -> Mask:
    """Which of the annotators' names are those of language models, as a mask; e-mail addresses and numbers are not.

    A name without a version, such as claude, is that of a model if another one is certainly a model.

    >>> model_names(["gpt-4o", "claude", "mistral:latest", "claude.monet@art.org", 7]).tolist()
    [True, True, True, False, False]
    >>> model_names(["Claude", "Gemma", "Phil"]).tolist()
    [False, False, False]
    """
    texts = [each if isinstance(each, str) and "@" not in each else "" for each in names]
    sure: Mask = np.array([bool(_SURE.search(text)) for text in texts], bool)
    if not sure.any():
        return sure
    return np.asarray(sure | np.array([bool(_LIKELY.search(text)) for text in texts], bool))
