"""The parts of readers against second implementations and cases by hand: guesses, quotes, answers of models, headers."""

from __future__ import annotations

import gzip
import json
import math
import zipfile
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crowdwise.annotations import Annotations
from crowdwise.errors import AnnotationError, ConfigError, ReadError
from crowdwise.readers import _answers, _guess, _quotes, read, table
from crowdwise.readers._answers import Classes, Found, Token, find_label, find_object, guess_label, soft_label
from crowdwise.readers._collector import is_picture, picture_of, text_of
from crowdwise.readers._columnar import _decoded_size
from crowdwise.readers._row_ids import _may_be_items
from crowdwise.readers._text import encoding_of
from crowdwise.readers.gold import read_gold
from crowdwise.readers.kinds import named_models
from export_samples import cvat_parts, sample


def put(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def records(path: Path, *rows: dict[str, Any]) -> Path:
    return put(path, *map(json.dumps, rows))


def labels_of(path: Path, **options: Any) -> dict[Any, Any]:
    """Instance -> label, of one model or person."""
    rows = read(path, **options).annotations.to_frame().to_pylist()
    return {row["instance"]: row["label"] for row in rows}


class TestGuesses:
    """Columns by content: how values of two columns meet, counted pair by pair."""

    @staticmethod
    def columns(seed: int) -> tuple[Any, Any, list[int], list[int]]:
        rng = np.random.default_rng(seed)
        one = rng.integers(5, size=30)
        other = np.where(rng.random(30) < 0.6, one % 3, rng.integers(3, size=30))
        return (
            _guess._candidate("one", pa.array(one)),
            _guess._candidate("other", pa.array(other.astype(str))),
            one.tolist(),
            other.tolist(),
        )

    @pytest.mark.parametrize("seed", range(6))
    def test_meetings_are_counted_pair_by_pair(self, seed: int) -> None:
        left, right, one, other = self.columns(seed)
        pairs = list(combinations(range(30), 2))
        own = sum(one[a] == one[b] for a, b in pairs)
        both = sum(one[a] == one[b] and other[a] == other[b] for a, b in pairs)
        chance = own * sum((times / 30) ** 2 for times in Counter(other).values())
        assert left.meetings(right) == pytest.approx((own, both, chance))
        assert left.pairs(right) == right.pairs(left) == len(set(zip(one, other, strict=True)))
        assert (left.size, right.size) == (len(set(one)), len(set(other)))
        clear = both - chance > _guess.CLEAR * math.sqrt(chance)
        assert left.excess(right) == pytest.approx((both - chance) / own if clear else 0)
        assert left.avoids(right) is (chance - both > _guess.CLEAR * math.sqrt(chance))

    def test_who_labels_everything_once_avoids_and_a_group_is_told(self) -> None:
        item, who = np.repeat(np.arange(40), 5), np.tile(np.arange(5), 40)
        items, people = _guess._candidate("item", pa.array(item)), _guess._candidate("who", pa.array(who))
        groups = _guess._candidate("group", pa.array(item % 4))
        assert items.avoids(people)
        assert not groups.avoids(people)
        assert items.tells(groups)
        assert not groups.tells(items)
        assert groups.excess(items) > 0

    def test_blanks_are_a_value_where_they_are_few(self) -> None:
        few = _guess._candidate("a", pa.array(["x", None, "yyy", "x", "yyy"]))
        assert (few.size, few.codes.tolist()) == (3, [0, 2, 1, 0, 1])
        assert few.width == pytest.approx((1 + 3 + 1 + 3) / 4)
        assert _guess._candidate("a", pa.array(["x", None, None, "x", "y"])) is None
        assert _guess._candidate("a", pa.array([[1], [2]])) is None
        assert _guess._candidate("a", [1, "x"]) is None

    @staticmethod
    def table(n: int = 40, seed: int = 0) -> dict[str, pa.Array]:
        rng = np.random.default_rng(seed)
        item, who = np.repeat(np.arange(n), 3), np.concatenate([rng.permutation(6)[:3] for _ in range(n)])
        label = np.where(rng.random(3 * n) < 0.85, item % 3, rng.integers(3, size=3 * n))
        return {"p": pa.array(item), "q": pa.array(who), "r": pa.array(label)}

    def guess(self, columns: dict[str, Any], **known: str) -> dict[str, str]:
        return _guess.guess_columns(columns, known, text=False)[0]

    def test_roles_follow_from_content(self) -> None:
        columns, roles = self.table(), {"instance": "p", "annotator": "q", "label": "r"}
        assert self.guess(columns) == roles
        assert self.guess(dict(reversed(columns.items())), label="r") == roles
        item = np.array(columns["p"])
        more = columns | {"category": pa.array(item // 4), "text": pa.array([f"text of {k}" for k in item])}
        assert self.guess(more) == roles  # the shorter of two that go together
        assert self.guess(columns | {"row": pa.array(range(len(item)))}) == roles

    def test_what_cannot_be_told_is_refused_with_the_reason(self) -> None:
        columns = self.table()
        with pytest.raises(AnnotationError, match="three columns are needed"):
            self.guess({name: columns[name] for name in "pq"})
        with pytest.raises(AnnotationError, match="15 rows tell too little about content"):
            self.guess(self.table(5))
        many = {f"column {k}": columns["p"] for k in range(_guess.MOST - 2)}
        with pytest.raises(AnnotationError, match=f"with {_guess.MOST + 1} columns that repeat"):
            self.guess(columns | many)
        empty = pa.array([None if k % 2 else str(k) for k in range(120)])
        with pytest.raises(AnnotationError, match="a named column is empty in places"):
            self.guess(columns | {"s": empty}, label="s")
        noise = {**columns, "r": pa.array(np.random.default_rng(1).integers(3, size=120))}
        with pytest.raises(AnnotationError, match="no columns repeat like instances, people and a few labels"):
            self.guess(noise)
        rng, item = np.random.default_rng(2), np.array(columns["p"])
        second = np.where(rng.random(120) < 0.85, item % 5, rng.integers(5, size=120))
        with pytest.raises(AnnotationError, match="'r' or 's' could be the label"):
            self.guess(columns | {"s": pa.array(second)})
        assert self.guess(columns | {"s": pa.array(second)}, label="s")["label"] == "s"

    def test_items_are_more_than_people_and_repeat(self) -> None:
        people = pa.array(["a", "b", "a", "b", "a", "b"])
        assert _may_be_items(pa.array([1, 1, 2, 2, 3, 3]), people)
        assert not _may_be_items(pa.array([1, 1, 1, 2, 2, 2]), people)  # as many as people
        assert not _may_be_items(pa.array([1, 2, 3, 4, 5, 6]), people)  # numbers of the rows
        assert not _may_be_items(pa.array([0.5, 0.5, 1, 1, 2, 2]), people)  # measurements
        assert not _may_be_items([[1], [1], [2], [2], [3], [3]], people)


class TestQuotes:
    @staticmethod
    def files(folder: Path, seed: int) -> Path:
        """Records, some of them quoted over lines, with and without faults."""
        rng = np.random.default_rng(seed)
        good = ['a,"b\nc",d', "a,b,c", '"x ""y"" z",b,c', 'a,"b,c",d', '"","b","c"']
        bad = ['a,"one\nx,y,z\ntwo",d', 'a,"b"c,d', 'a,"b "c",d']
        rows = [good[rng.integers(len(good))] for _ in range(12)]
        for _ in range(seed % 3):
            rows.insert(int(rng.integers(12)), bad[rng.integers(len(bad))])
        return put(folder / f"{seed}.csv", "item,worker,label", *rows)

    @pytest.mark.parametrize("seed", range(24))
    def test_are_judged_alike_whatever_is_looked_at_together(
        self, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, found = self.files(tmp_path, seed), []
        for size in (1 << 24, 40, 7, 1):
            monkeypatch.setattr(_quotes, "BLOCK", size)
            with path.open("rb") as file:
                found.append(_quotes._fault(file, b",", 3))
        assert found[1:] == found[:1] * 3
        by_hand = None
        text = path.read_text()
        if seed % 3 == 0:
            assert found[0] is None
        if found[0] is not None:
            by_hand = text.split("\n")[found[0].line - 1]
            assert '"' in by_hand

    def test_a_sure_fault_comes_before_an_earlier_one_that_is_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = put(tmp_path / "a.csv", "i,j,y", 'a,"one\nx,y,z\ntwo",d', "a,b,c", 'a,"b"c,d')
        for size in (1 << 24, 10):
            monkeypatch.setattr(_quotes, "BLOCK", size)
            with path.open("rb") as file:
                fault = _quotes._fault(file, b",", 3)
            assert (fault.line, fault.problem) == (6, "text follows the closing quote of a field")

    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            (('p"q,r,s', "x,y,z", 'u",v,w'), None),  # quotes in the midst of fields enclose nothing
            (('"p,q,r', "x,y,z", 'u",v,w'), "a quoted field goes over lines that look like records"),
            (('"p,q', "x,y", 'u",v,w'), None),
            (('"p,q', 'x",y', 'u,"v",w'), None),
            (('"p"x,y,z', "a,b,c"), "text follows the closing quote of a field"),
            (('p,"x,y', "a,b,c"), "a quoted field is never closed"),
        ],
    )
    def test_enclose_only_from_the_border_of_a_field(self, tmp_path: Path, lines: Any, problem: Any) -> None:
        path = put(tmp_path / "a.csv", "item,worker,label", *lines)
        with path.open("rb") as file:
            fault = _quotes._fault(file, b",", 3)
        assert (None if fault is None else (fault.line, fault.problem)) == (None if problem is None else (2, problem))


class TestAnswers:
    KNOWN = Classes(("cat", "dog", "tom cat"))

    def test_only_the_first_characters_are_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "it is a dog"
        for longest, label in ((len(text), "dog"), (len(text) - 1, None)):
            monkeypatch.setattr(_answers, "LONGEST", longest)
            assert find_label(text, self.KNOWN, None).label == label
        monkeypatch.setattr(_answers, "LONGEST", 3)
        assert guess_label("dogs", None).label == "dog"

    @pytest.mark.parametrize(
        ("text", "label", "start"),
        [
            ("  *Dog*.", "dog", 3),
            ("It is the tom cat!", "tom cat", 10),
            ("cat or dog?\nFinally: dog", "dog", 21),
            ("a dog\nis what it is", "dog", 2),
            ('so {"label" :  [ "dog" ]}', "dog", 18),
            ('{"why": "cat", "answer": "dog"}', "dog", 26),
            ("cat-like", None, 0),
            ("dog 1.5, or dog.2", "dog", 0),
            ("hotdog", None, 0),
        ],
    )
    def test_the_place_of_the_label_is_told(self, text: str, label: Any, start: int) -> None:
        found = find_label(text, self.KNOWN, None)
        assert found.label == label
        if label is not None:
            assert found.start == start
            assert text[start:].lower().startswith(label)

    def test_classes_that_differ_by_case_only_are_told_by_case(self) -> None:
        known = Classes(("US", "us", "Them"))
        assert [find_label(text, known, None).label for text in ("US", "us", "them", "Us")] == [
            "US",
            "us",
            "Them",
            None,
        ]

    def test_the_first_object_that_is_not_empty_is_read(self) -> None:
        assert find_object('{} {x} [{"a": 1}] {"b": 2}') == ({"a": 1}, 8)
        assert find_object("{" * 19 + '{"a": 1}') == ({"a": 1}, 19)
        assert find_object("{" * 20 + '{"a": 1}') is None
        assert find_object("no object") is None

    @pytest.mark.parametrize(
        ("text", "label"),
        [
            ("'Dog'.", "Dog"),
            ("d" * _answers.SHORT, "d" * _answers.SHORT),
            ("d" * (_answers.SHORT + 1), None),
            ("one\ntwo", None),
            ("...", None),
            ('{"rating": 4.0, "label": "x"}', "x"),
            ('{"rating": true}', "true"),
            ('{"rating": ["y"]}', "y"),
            ('{"rating": ["y", "z"], "score": 3}', 3),
            ('{"mood": "m"}', None),
        ],
    )
    def test_without_classes_a_field_or_a_short_answer_is_the_label(self, text: str, label: Any) -> None:
        assert guess_label(text, None).label == label

    def test_the_field_of_the_question_comes_first(self) -> None:
        assert guess_label('{"label": "x", "mood": "m"}', "mood").label == "m"
        assert find_label('{"cat": 1, "answer": "dog", "label": "cat"}', self.KNOWN, "answer").label == "dog"

    def test_probabilities_are_products_along_the_path_that_was_taken(self) -> None:
        """ "new york" and "new delhi" share a token; "york" is decided behind it, quotes and case do not count."""
        known = Classes(("New York", "New Delhi", "Rome"))
        tokens = [
            Token('"', -0.1, []),
            Token("New", math.log(0.7), [("new", math.log(0.7)), ("rome", math.log(0.2)), ("hm", math.log(0.1))]),
            Token(" York", math.log(0.6), [(" York", math.log(0.6)), (" Delhi", math.log(0.3))]),
        ]
        shares, sure = soft_label(Found("New York", start=1), tokens, known)
        seen = {"New York": 0.7 * 0.6, "New Delhi": 0.7 * 0.3, "Rome": 0.2}
        # both spellings of the first token begin the two cities, and only the one that was taken goes on
        expected = {name: share / sum(seen.values()) for name, share in seen.items()}
        assert shares == pytest.approx(expected)
        assert sure == pytest.approx(expected["New York"])

    def test_without_soft_labels_confidence_is_the_mean_probability_of_the_tokens(self) -> None:
        tokens = [Token("the ", -0.5), Token("do", math.log(0.5)), Token("g", math.log(0.125)), Token("!", -9.0)]
        alone = soft_label(Found("dog", start=4), tokens, Classes(("DOG", "dog")))  # not told apart without case
        assert alone == (None, pytest.approx(math.sqrt(0.5 * 0.125)))
        assert soft_label(Found("dog", start=99), tokens, self.KNOWN) == (None, None)


def chat(content: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **more}, "finish_reason": "stop"}], "model": "m"}


class TestBatches:
    """Answers of models in the shapes of their providers; of each shape what failed is counted by its reason."""

    def test_of_responses_join_their_parts_and_keep_their_probabilities(self, tmp_path: Path) -> None:
        logs = [
            {"token": "no", "logprob": math.log(0.75), "top_logprobs": [{"token": "yes", "logprob": math.log(0.25)}]}
        ]

        def line(key: str, body: dict[str, Any]) -> dict[str, Any]:
            return {"custom_id": key, "response": {"status_code": 200, "body": {"model": "m", **body}}}

        def message(*parts: dict[str, Any]) -> list[dict[str, Any]]:
            return [
                {"type": "reasoning", "content": [{"type": "output_text", "text": "yes"}]},
                {"type": "message", "content": [*parts]},
            ]

        part = {"type": "output_text", "text": "no", "logprobs": logs}
        path = records(
            tmp_path / "a.jsonl",
            line("p", {"output": message(part)}),
            line("q", {"output": message({"type": "output_text", "text": "y"}, {"type": "output_text", "text": "es"})}),
            line("r", {"output": message({"type": "refusal", "refusal": "no"})}),
            line(
                "s",
                {
                    "output": message(part),
                    "status": "incomplete",
                    "incomplete_details": {"reason": "max_output_tokens"},
                },
            ),
            line("t", {"output": [], "status": "failed"}),
        )
        export = read(path, classes=["yes", "no"])
        rows = export.annotations.to_frame().to_pylist()
        assert {(row["instance"], row["label"]): row["weight"] for row in rows} == pytest.approx(
            {("p", "no"): 0.75, ("p", "yes"): 0.25, ("q", "yes"): 1}
        )
        assert "1 refused, 1 cut off, 1 failed" in export.message

    def test_of_chats_may_be_refusals_calls_and_errors(self, tmp_path: Path) -> None:
        def line(key: str, body: Any, **more: Any) -> dict[str, Any]:
            return {"custom_id": key, "response": {"status_code": 200, "body": body}, **more}

        call = {"function": {"name": "f", "arguments": '{"label": "yes"}'}}
        filtered = chat("no")
        filtered["choices"][0]["finish_reason"] = "content_filter"
        bad = line("w", chat("no"))
        bad["response"]["status_code"] = 500
        path = records(
            tmp_path / "a.jsonl",
            line("p", chat("no")),
            line("q", chat(None, tool_calls=[call])),
            line("r", chat(None, tool_calls=[call, call])),
            line("s", chat("no", refusal="I may not")),
            line("t", filtered),
            line("u", chat("no"), error={"code": 1}),
            line("v", {"error": {"code": 1}, "model": "m"}),
            bad,
            line("x", chat([{"type": "text", "text": "n"}, {"type": "text", "text": "o"}])),
        )
        assert labels_of(path) == {"p": "no", "q": "yes", "x": "no"}
        message = read(path).message
        for reason in ("1 empty", "1 refused", "1 filtered", "3 failed"):
            assert reason in message

    def test_of_gemini_and_anthropic_that_failed_are_counted(self, tmp_path: Path) -> None:
        def candidate(text: str, **more: Any) -> dict[str, Any]:
            return {"content": {"parts": [{"text": text}]}, **more}

        def gemini(key: str, *found: dict[str, Any], **more: Any) -> dict[str, Any]:
            response = {"candidates": [*found], "modelVersion": "g"}
            return {"key": key, "request": {"contents": []}, "response": response, **more}

        path = records(
            tmp_path / "g.jsonl",
            gemini("p", candidate("no", avgLogprobs=math.log(0.5))),
            gemini("q", candidate("yes", finishReason="MAX_TOKENS")),
            gemini("r", candidate("yes", finishReason="STRANGE")),
            gemini("s", candidate("yes"), status="error"),
            {"key": "t", "request": {"contents": []}, "status": "error"},
            gemini("u", candidate("yes", finishReason="STOP")),
        )
        export = read(path)
        assert labels_of(path) == {"p": "no", "u": "yes"}
        assert export.confidences[0] == pytest.approx(0.5)
        assert np.isnan(export.confidences[1])
        assert "left out: 1 cut off, 3 failed" in export.message
        result = {"type": "succeeded", "message": {"model": "c", "content": [{"type": "text", "text": "no"}]}}
        other = {
            "type": "succeeded",
            "message": {"model": "c", "content": [{"type": "tool_use", "input": {"label": "yes"}}]},
        }
        anthropic = records(
            tmp_path / "a.jsonl",
            {"custom_id": "p", "result": result},
            {"custom_id": "q", "result": {"type": "expired"}},
            {"custom_id": "r", "result": other},
        )
        assert labels_of(anthropic) == {"p": "no", "r": "yes"}
        assert "left out: 1 failed" in read(anthropic).message

    @pytest.mark.parametrize(
        ("ratings", "classes"),
        [([3, 2.5, 3], [2.5, 3.0]), ([3, 4.0, 4], [3, 4]), ([3, "good", 4.0], ["3", "4", "good"])],
    )
    def test_that_are_numbers_make_classes_of_one_kind(self, tmp_path: Path, ratings: Any, classes: Any) -> None:
        rows = [{"id": k, "model": "m", "content": json.dumps({"rating": one})} for k, one in enumerate(ratings)]
        found = read(records(tmp_path / "a.jsonl", *rows)).annotations
        assert found.classes.tolist() == classes
        assert [str(classes[y]).removesuffix(".0") for y in found.label] == [
            str(one).removesuffix(".0") for one in ratings
        ]

    @pytest.mark.parametrize("key", ["id", "item_id", None])
    def test_of_autolabel_go_by_their_ids_or_by_the_number_of_the_row(self, tmp_path: Path, key: str | None) -> None:
        rows = [f"{name},{label},0.9,True" for name, label in (("q", "no"), ("p", "yes"), ("r", "no"))]
        path = put(tmp_path / "m.csv", f"{key or 'note'},mood_label,mood_confidence,mood_successfully_labeled", *rows)
        expected = dict(zip("qpr" if key else [1, 2, 3], ["no", "yes", "no"], strict=True))
        assert labels_of(path, format="llm") == expected

    def test_beside_weighted_labels_of_people_leave_these_alone(self, tmp_path: Path) -> None:
        people = put(tmp_path / "p.csv", "item,worker,label,weight", "0,ann,yes,3", "1,ann,no,0.5", "1,bob,yes,2")

        def answers(name: str, *said: str) -> Path:
            return records(tmp_path / name, *({"id": str(k), "model": "gpt", "content": y} for k, y in enumerate(said)))

        found = read([people, answers("a.jsonl", "yes", "no"), answers("b.jsonl", "no", "no")]).annotations
        rows = {tuple(map(str, list(row.values())[:3])): row["weight"] for row in found.to_frame().to_pylist()}
        assert rows == {
            ("0", "ann", "yes"): 3,
            ("1", "ann", "no"): 0.5,
            ("1", "bob", "yes"): 2,
            ("0", "gpt", "yes"): 0.5,
            ("0", "gpt", "no"): 0.5,
            ("1", "gpt", "no"): 1,
        }

    def test_without_an_id_are_refused_by_record(self, tmp_path: Path) -> None:
        path = records(
            tmp_path / "a.jsonl", {"id": "p", "model": "m", "content": "no"}, {"model": "m", "content": "yes"}
        )
        with pytest.raises(ReadError, match=r"line 2: there is no id: none of 'custom_id', 'id'"):
            read(path)
        kept = records(
            tmp_path / "b.jsonl",
            {"metadata": {"id": 7}, "model": "m", "content": "no"},
            {"metadata": {"id": 8}, "model": "m", "content": "yes"},
        )
        assert labels_of(kept) == {7: "no", 8: "yes"}

    def test_of_several_models_in_one_log_stay_apart(self, tmp_path: Path) -> None:
        rows = [{"id": k, "model": name, "content": "yes" if k else "no"} for k in range(3) for name in ("m", "n")]
        found = read(records(tmp_path / "a.jsonl", *rows)).annotations
        assert found.annotators.tolist() == ["m", "n"]
        assert found.votes().tolist() == [[2, 0], [0, 2], [0, 2]]


class TestItems:
    def test_their_texts_stay_with_them_where_some_have_none(self, tmp_path: Path) -> None:
        rows = [
            {
                "text": text,
                "_input_hash": k,
                "_task_hash": k,
                "accept": [label],
                "answer": "accept",
                "_annotator_id": "ann",
            }
            | {"options": [{"id": "x"}, {"id": "y"}], "_view_id": "choice", "_session_id": "s-ann"}
            for k, (text, label) in enumerate([("first", "x"), ("", "y"), ("third", "x")])
        ]
        export = read(records(tmp_path / "p.jsonl", *rows), "prodigy")
        assert export.texts.to_pylist() == ["first", None, "third"]
        assert read(tmp_path / "p.jsonl", "prodigy", details=False).texts is None
        assert read(tmp_path / "p.jsonl", "prodigy", details=False).extra is None

    def test_names_of_prodigy_lose_what_they_have_in_common_with_a_word(self, tmp_path: Path) -> None:
        row = {"text": "t", "_input_hash": 1, "label": "x", "answer": "accept"}
        for names, told in ((("my-set-ann", "my-set-bob"), True), (("ann", "bob"), False)):
            path = records(tmp_path / "p.jsonl", *(row | {"_annotator_id": name} for name in names))
            export = read(path, "prodigy")
            assert export.annotations.annotators.tolist() == ["ann", "bob"]
            assert ("the common prefix 'my-set-' is left out" in export.message) is told

    @pytest.mark.parametrize("frame", ["1", 1.5, True, None])
    def test_frames_of_cvat_are_numbers(self, tmp_path: Path, frame: Any) -> None:
        parts = cvat_parts()
        parts["annotations"]["11"]["tags"][0]["frame"] = frame
        (tmp_path / "c.json").write_text(json.dumps(parts))
        with pytest.raises(ReadError, match=r"expected the number of a frame|'frame' is missing"):
            read(tmp_path / "c.json")

    def test_a_matrix_says_what_was_missing_and_how_to_keep_it(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", "item,ann,bob,cyd", "p,0,1,-1", "q,nan,0,1", "r,1,1,-1", "s,0,,0")
        message = read(path, "dense").message
        assert "-1 is taken for missing in 2 cells; nan is taken for missing in 1 cell" in message
        assert "(if -1 is a class, list all with classes=)" in message
        bare = put(tmp_path / "b.csv", "item,ann,bob,cyd", "p,0,1,1", "q,nan,0,1", "r,1,1,0")
        assert "if -1 is a class" not in read(bare, "dense").message

    @pytest.mark.parametrize(
        ("value", "picture"),
        [
            ("a.PNG", True),
            ("https://x.org/a.jpg?size=3#top", True),
            ("data:image/png;base64,AAAA", True),
            ("a.png is a file", False),
            ("https://x.org/?a.png", False),
            ("see data:image/png", False),
        ],
    )
    def test_pictures_are_told_by_their_names(self, value: str, picture: bool) -> None:
        assert is_picture(value) is picture

    def test_text_is_a_usual_field_or_the_first_that_is_no_picture(self) -> None:
        item = {"url": "a.png", "remark": "first", "Text": "the text", "n": 3, "image": "no suffix"}
        assert (text_of(item), picture_of(item)) == ("the text", "a.png")
        del item["Text"], item["url"]
        assert (text_of(item), picture_of(item)) == ("first", "no suffix")
        assert (text_of({"url": "a.png"}), picture_of({"remark": "x"})) == (None, None)
        assert (text_of({"text": ""}), text_of({"text": 3})) == (None, None)


LONG = ("item,worker,label", "a,ann,x", "a,bob,y", "b,ann,y", "b,bob,y")


class TestFiles:
    def test_suffixes_are_read_in_any_case(self, tmp_path: Path) -> None:
        expected = read(put(tmp_path / "a.csv", *LONG)).annotations
        packed = tmp_path / "B.CSV.GZ"
        packed.write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
        assert read(packed).annotations == expected
        rows = expected.to_frame().to_pylist()
        lines = records(tmp_path / "lines.JSON", *rows)  # a record in every line, in spite of its suffix
        assert read(lines).annotations == expected
        whole = tmp_path / "whole.json"
        whole.write_text(json.dumps(rows))
        assert read(whole).annotations == expected

    @pytest.mark.parametrize("before", [(), ("",), ("", " ")])
    def test_a_matrix_may_begin_with_the_separator(self, tmp_path: Path, before: tuple[str, ...]) -> None:
        lines = ("sep=;", "item;ann;bob;cyd", "p;x;y;x", "q;x;x;x", "r;y;y;x")
        found = read(put(tmp_path / "a.csv", *before, *lines)).annotations
        assert found.annotators.tolist() == ["ann", "bob", "cyd"]
        assert found.votes().tolist() == [[2, 1], [3, 0], [1, 2]]

    @pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"compression": "zstd"}])
    def test_what_packed_columns_take_is_known_before_they_are_unpacked(self, options: dict[str, str]) -> None:
        numbers = pa.array(np.zeros(5000, np.int64))
        words = pa.array(["word"] * 5000).dictionary_encode()
        batch = pa.record_batch({"n": numbers, "w": words, "m": pa.array([1.5] * 4999 + [None])})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_batch(batch)
        sizes = [_decoded_size(message) for message in pa.ipc.MessageReader.open_stream(sink.getvalue())]
        least = [0, 2 * 4 + 4, 5000 * 8 + 5000 * 4 + 5000 * 8 + 5000 // 8]  # the schema, the words, the rows
        assert len(sizes) == 3
        for size, needed in zip(sizes, least, strict=True):
            assert needed <= size <= needed + 64 * 8

    def test_labels_by_people_in_files_of_doccano_come_in_a_zip_file(self, tmp_path: Path) -> None:
        path = records(tmp_path / "ann.jsonl", {"id": 1, "text": "t", "label": ["x"]})
        with pytest.raises(ReadError, match="a doccano export is a zip file"):
            read(path, "doccano")


class TestGold:
    CROWD = Annotations.from_frame({"item": ["a", "b", "b"], "worker": ["ann", "ann", "bob"], "label": ["x", "y", "x"]})

    @pytest.mark.parametrize("header", ["item,gold", "key,gold", "gold,key", "key,truth", "id,label", "key,label"])
    def test_of_two_columns_the_other_one_is_the_item(self, tmp_path: Path, header: str) -> None:
        rows = ["a,y", "c,x", "b,x"] if not header.startswith("gold") else ["y,a", "x,c", "x,b"]
        found = read_gold(put(tmp_path / "g.csv", header, *rows), self.CROWD)
        assert found.gold == {"a": "y", "b": "x"}
        assert "gold for 2 of 2 instances" in found.message
        assert "1 more not in the crowd" in found.message

    def test_of_three_columns_the_item_must_be_told(self, tmp_path: Path) -> None:
        path = put(tmp_path / "g.csv", "key,note,gold", "a,n,y")
        with pytest.raises(Exception, match="no column for the instance; columns: 'key', 'note', 'gold'"):
            read_gold(path, self.CROWD)
        assert read_gold(path, self.CROWD, instance="key").gold == {"a": "y"}


class TestGuessedLabels:
    @pytest.mark.parametrize(("classes", "plausible"), [(2, True), (24, True), (25, False)])
    def test_there_are_five_rows_or_more_for_every_class(self, classes: int, plausible: bool) -> None:
        """Sixty items with two labels each, by two of three people, which agree nearly always."""
        item = np.repeat(np.arange(60), 2)
        who = (np.tile([0, 1], 60) + item) % 3
        label = item % classes
        label[:2] = 0, 1  # one disagreement, else the label would be a fact about the item
        names = ("item", "who", "label")
        triple = [
            _guess._candidate(name, pa.array(codes)) for name, codes in zip(names, (item, who, label), strict=True)
        ]
        assert _guess._plausible(tuple(triple), 120) is plausible
        assert not _guess._plausible((triple[0], triple[2], triple[1]), 120)


class TestTables:
    def test_gold_is_no_other_column(self, tmp_path: Path) -> None:
        rows = ["a,ann,x,x,fine", "b,ann,y,x,", "b,bob,x,x,odd"]
        for gold in ("gold", "truth", "answer key"):
            path = put(tmp_path / "a.csv", f"item,worker,label,{gold},note", *rows)
            export = read(path, gold=gold)
            assert export.gold == {"a": "x", "b": "x"}
            assert export.extra.column_names == ["note"]

    def test_a_header_is_looked_for_in_more_than_a_few_rows(self, tmp_path: Path) -> None:
        rows = ["u1,ann,x", "u1,bob,x", "u2,ann,x", "u2,bob,x"]
        for number in range(1, 5):
            path = put(tmp_path / "a.csv", "URL,Wer,Urteil", *rows[:number])
            told = "may be a header" in read(path, columns=["item", "annotator", "label"]).message
            assert told is (number + 1 > table.ROWS_OF_HEADER)

    def test_a_table_with_a_confidence_is_not_one_of_autolabel(self, tmp_path: Path) -> None:
        rows = ["a,ann,x,0.5", "a,bob,y,0.75", "b,ann,y,1"]
        export = read(put(tmp_path / "a.csv", "item,worker,label,label_confidence", *rows))
        assert export.format == "table"
        assert export.annotations.votes().tolist() == [[1, 1], [0, 1]]

    @pytest.mark.parametrize("names", ["item,ann", "ann", "id,ann"])
    def test_one_column_of_labels_is_no_matrix_unless_it_is_called_one(self, tmp_path: Path, names: str) -> None:
        rows = [f"p{k},{'xy'[k % 2]}" if "," in names else "xy"[k % 2] for k in range(12)]
        path = put(tmp_path / "a.csv", names, *rows)
        with pytest.raises(ReadError, match="no column for the"):
            read(path)
        if "," in names:
            assert read(path, "dense").annotations.votes().sum() == 12

    def test_what_toloka_did_not_accept_is_counted_by_status(self, tmp_path: Path) -> None:
        names = ["INPUT:text", "OUTPUT:result", "ASSIGNMENT:task_id", "ASSIGNMENT:worker_id", "ASSIGNMENT:status"]
        states = ["APPROVED", "REJECTED", "SUBMITTED", "EXPIRED", "REJECTED", "accepted"]
        rows = [
            "\t".join([f"text {k % 2}", "xy"[k % 2], f"t{k % 2}", f"w{k}", state]) for k, state in enumerate(states)
        ]
        export = read(put(tmp_path / "a.tsv", "\t".join(names), *rows), "toloka")
        kept = {row["annotator"]: row["label"] for row in export.annotations.to_frame().to_pylist()}
        assert {"w0", "w2"} <= kept.keys()
        assert not {"w1", "w3", "w4"} & kept.keys()
        assert "2 rejected, 1 expired" in export.message


class TestSmall:
    def test_truth_values_of_any_spelling_are_one_class(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"item": [1, 2], "worker": ["a", "a"], "label": [True, False]}), tmp_path / "a.parquet")
        for yes, no in (("TRUE", "FALSE"), ("True", "False"), ("true", "false")):
            put(tmp_path / "b.csv", "item,worker,label", f"1,b,{yes}", f"2,b,{no}")
            found = read([tmp_path / "a.parquet", tmp_path / "b.csv"]).annotations
            assert sorted(found.votes().tolist()) == [[0, 2], [2, 0]]

    def test_an_archive_of_one_annotator_is_recognised(self, tmp_path: Path) -> None:
        rows = [{"id": k, "text": "t", "label": ["xy"[k % 2]]} for k in range(3)]
        with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
            archive.writestr("ann.jsonl", "\n".join(map(json.dumps, rows)))
        assert read(tmp_path / "d.zip").format == "doccano"

    def test_a_sign_that_nobody_sees_makes_no_other_encoding(self, tmp_path: Path) -> None:
        for text in ("a\0b", "ab\0"):
            path = tmp_path / "a.csv"
            path.write_text(f"item,worker,label,text\n1,ann,x,{text}\n2,ann,y,plain\n")
            assert encoding_of(path) == "utf-8"

    def test_gold_of_the_crowd_alone_is_not_said_to_have_more(self, tmp_path: Path) -> None:
        crowd = TestGold.CROWD
        assert "more not in the crowd" not in read_gold(put(tmp_path / "g.csv", "item,gold", "a,x"), crowd).message

    def test_what_cannot_be_guessed_names_the_option(self) -> None:
        columns = {"p": pa.array([1, 2]), "q": pa.array([1, 2])}
        for known, parameter in (({}, "instance"), ({"instance": "p"}, "annotator")):
            with pytest.raises(AnnotationError) as error:
                _guess.guess_columns(columns, known, text=False)
            assert error.value.parameter == parameter

    @pytest.mark.parametrize("option", ["several", "duplicates"])
    def test_a_policy_that_does_not_exist_is_refused(self, tmp_path: Path, option: str) -> None:
        with pytest.raises(ConfigError, match=f"{option}.*'frist'|did you mean 'first'"):
            read(put(tmp_path / "a.csv", *LONG), **{option: "frist"})

    def test_a_blank_answer_is_none(self, tmp_path: Path) -> None:
        rows = [{"id": k, "model": "m", "content": said} for k, said in enumerate(["yes", " \n", "no", ""])]
        assert "left out: 2 empty" in read(records(tmp_path / "a.jsonl", *rows)).message

    def test_what_argilla_holds_without_a_submitted_answer_is_counted(self, tmp_path: Path) -> None:
        path = sample(tmp_path, "records.jsonl")
        drafts = path.read_text().count('"draft"')
        assert drafts > 1
        assert f"{drafts} draft" in read(path, "argilla").message

    def test_models_are_told_by_name_and_counted(self) -> None:
        assert named_models(["ann", "gpt-4", "bob"], None)[0] == {1}
        said = [named_models(["gpt-4", "claude-3", "ann"][:number], None)[1] for number in (1, 2)]
        assert said[0].startswith("; 1 annotator is a model, by name: gpt-4 (")
        assert said[1].startswith("; 2 annotators are models, by name: gpt-4, claude-3 (")
        assert named_models(["gpt-4", "ann"], {"ann": "model", "gpt-4": "person"}) == ({1}, "")


class TestInspect:
    def test_samples_without_scores_failed(self, tmp_path: Path) -> None:
        def sample(key: str, **more: Any) -> dict[str, Any]:
            return {"id": key, "epoch": 1, **more}

        samples = [
            sample("p", scores={"match": {"value": "C", "answer": "yes"}}),
            sample("q"),
            sample("r", scores=3),
            sample("s", scores={"match": {"value": "no"}}),
            sample("t", scores={"match": {"value": "no"}}, error={"message": "late"}),
        ]
        path = tmp_path / "log.json"
        path.write_text(json.dumps({"eval": {"model": "m"}, "samples": samples}))
        assert labels_of(path) == {"p": "yes", "s": "no"}
        assert "left out: 3 failed" in read(path).message


def test_parts_of_an_archive_are_known_by_their_suffix_in_any_case(tmp_path: Path) -> None:
    rows = [{"id": k, "text": f"text {k}", "label": ["xy"[k % 2]]} for k in range(3)]
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.writestr("ANN.JSONL", "\n".join(map(json.dumps, rows)))
        archive.writestr("bob.json", json.dumps(rows[:2]))
        archive.writestr("notes.txt", "no labels")
    found = read(tmp_path / "d.zip", "doccano")
    assert found.annotations.annotators.tolist() == ["ANN", "bob"]
    assert found.annotations.votes().tolist() == [[2, 0], [0, 2], [1, 0]]
    assert found.texts.to_pylist() == ["text 0", "text 1", "text 2"]
