"""What models said -> labels: the three rules, soft labels, abstentions by reason, and files beside those of people."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from crowdwise import read
from crowdwise.errors import ConfigError, ReadError
from crowdwise.readers import read_together, write
from crowdwise.readers._answers import Classes, Found, Token, find_label, soft_label
from export_samples import SAID, sample

KNOWN = Classes(("positive", "negative", "very positive"))


# -- the three rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('{"label": "positive"}', "positive"),
        ('Sure!\n```json\n{"label": "NEGATIVE", "why": "it is not positive"}\n```', "negative"),
        ('{"why": "negative words", "mood": "positive"}', "positive"),
        ('{"answer": ["negative"]}', "negative"),
        ("Positive", "positive"),
        ("  **positive**.\n", "positive"),
        ('"negative"', "negative"),
        ("very positive", "very positive"),
        ("The text is not neutral; my answer:\nnegative", "negative"),
        ("First I thought positive.\nThen: negative", "negative"),
        ("It is very positive, I think", "very positive"),
        ("positively", None),
        ("positive or negative", None),
        ("I cannot say", None),
        ('{"label": "neutral"}', None),
        ('{"reason": "this sounds positive to me"}', None),
        ('{"label": ["positive", "negative"]}', None),
        ("{}", None),
        ("", None),
    ],
)
def test_rules(text, label):
    assert find_label(text, KNOWN, None).label == label


def test_the_question_names_the_field():
    text = '{"mood": "negative", "topic": "positive", "label": "positive"}'
    assert find_label(text, KNOWN, "mood").label == "negative"
    assert find_label(text, KNOWN, None).label == "positive"
    assert find_label('{"mood": "sad"}', KNOWN, "mood").reason == "with an unknown class"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("4", 4),
        ('{"rating": 4.0}', 4),
        ("Rating: 4.", 4),
        ("4.5", None),
        ("-4", None),
        ("4 out of 5", None),
        ("14", None),
    ],
)
def test_numbers_are_classes_too(text, label):
    assert find_label(text, Classes((1, 2, 3, 4, 5)), None).label == label


def test_case_counts_where_classes_differ_by_it_only():
    known = Classes(("A", "a"))
    assert find_label("a", known, None).label == "a"
    assert find_label("A.", known, None).label == "A"


def test_code_is_not_run():
    text = "__import__('os').system('touch /tmp/ran')"
    assert find_label(text, KNOWN, None).label is None


# -- soft labels ---------------------------------------------------------------------------------------------------------


def logs(**shares):
    return [(name.replace("_", " "), math.log(share)) for name, share in shares.items()]


def test_probabilities_of_first_tokens():
    top = logs(pos=0.6, _neg=0.3, neither=0.1)
    shares, sure = soft_label(Found("positive"), [Token("pos", math.log(0.6), top)], Classes(("positive", "negative")))
    assert shares == pytest.approx({"positive": 2 / 3, "negative": 1 / 3})
    assert sure == pytest.approx(2 / 3)


def test_tokens_inside_json_are_found():
    text = ['{"', "label", '":', ' "', "neg", '"}']
    tokens = [Token(part, -0.01, logs(neg=0.7, pos=0.3) if part == "neg" else ()) for part in text]
    known = Classes(("pos", "neg"))
    found = find_label("".join(text), known, None)
    shares, _ = soft_label(found, tokens, known)
    assert shares == pytest.approx({"pos": 0.3, "neg": 0.7})


def test_a_shared_first_token_is_followed_by_the_next():
    known = Classes(("1", "10", "2"))
    tokens = [
        Token("1", math.log(0.8), logs(**{"1": 0.8, "2": 0.2})),
        Token("0", math.log(0.5), [("0", math.log(0.5)), ("\n", math.log(0.5))]),
    ]
    shares, sure = soft_label(Found("10"), tokens, known)
    assert shares == pytest.approx({"1": 0.4, "10": 0.4, "2": 0.2})
    assert sure == pytest.approx(0.4)
    shares, _ = soft_label(Found("1"), tokens[:1], known)
    assert shares == pytest.approx({"1": 0.8, "2": 0.2})


def test_few_probable_classes_make_no_soft_label():
    shares, sure = soft_label(
        Found("pos"), [Token("pos", math.log(0.3), logs(pos=0.3, hm=0.5))], Classes(("pos", "neg"))
    )
    assert shares is None
    assert sure == pytest.approx(0.3)
    assert soft_label(Found("pos"), [], Classes(("pos", "neg"))) == (None, None)


def test_improbable_classes_are_left_out():
    shares, _ = soft_label(Found("a"), [Token("a", -0.001, logs(a=0.995, b=0.005))], Classes(("a", "b")))
    assert shares == {"a": 1.0}


# -- files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file", ["openai.jsonl", "responses.jsonl.gz", "anthropic.jsonl", "gemini.jsonl", "chats.jsonl", "distilabel.jsonl"]
)
def test_every_shape_says_the_same(tmp_path, file):
    export = read(sample(tmp_path, file))
    assert export.format == "llm"
    assert (export.kinds == "model").all()
    hard = export.annotations.hard().to_frame().to_pylist()
    said = sorted((str(row["instance"]), row["annotator"].split("-")[-1], row["label"]) for row in hard)
    assert said == sorted(SAID)


@pytest.mark.parametrize(("file", "who"), [("autolabel.csv", "ann"), ("inspect.json", "ann"), ("inspect.eval", "bob")])
def test_shapes_of_one_model(tmp_path, file, who):
    export = read(sample(tmp_path, file))
    assert export.format == "llm"
    rows = export.annotations.to_frame().to_pylist()
    assert sorted((str(row["instance"]), row["label"]) for row in rows) == sorted(
        (i, y) for i, j, y in SAID if j == who
    )


def test_probabilities_become_weights_and_failures_are_counted(tmp_path):
    export = read(sample(tmp_path, "openai.jsonl"), classes=["pos", "neg"])
    assert export.annotations.weight is not None
    first = export.annotations.select(annotators=export.annotations.annotator_codes(["gpt-ann"]))
    np.testing.assert_allclose(first.votes()[0], [0.2, 0.8], atol=1e-4)
    assert np.nanmax(export.confidences) <= 1
    assert "left out: 2 failed" in export.message
    assert "classes as answered" in read(sample(tmp_path, "openai.jsonl")).message


def batch(path: Path, answers, model="gpt", **more):
    rows = []
    for number, content in enumerate(answers):
        choice = {"message": {"content": content}, "finish_reason": "stop"} | more
        body = {"model": model, "choices": [choice]}
        rows.append({"custom_id": str(number), "response": {"status_code": 200, "body": body}, "error": None})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_abstentions_have_reasons(tmp_path):
    path = batch(tmp_path / "b.jsonl", ["yes", "no", "yes or no", "perhaps", '{"label": "maybe"}', "", None])
    export = read(path, classes=["yes", "no"])
    assert export.annotations.n_instances == 2
    for reason in ("1 naming several classes", "1 naming no class", "1 with an unknown class", "2 empty"):
        assert reason in export.message
    for end, reason in (("length", "cut off"), ("content_filter", "filtered")):
        with pytest.raises(ReadError, match=f"2 {reason}"):
            read(batch(tmp_path / "b.jsonl", ["yes", "no"], finish_reason=end), classes=["yes", "no"])
    with pytest.raises(ReadError, match="2 refused"):
        read(batch(tmp_path / "b.jsonl", ["yes", "no"], message={"content": "yes", "refusal": "I cannot"}))
    with pytest.raises(ReadError, match="name the classes to look for with classes="):
        read(batch(tmp_path / "b.jsonl", ["I rather think that it may be\nthis or that"]))
    with pytest.raises(ConfigError, match="classes must be a list"):
        read(path, classes="yes")


def test_several_draws_are_one_label(tmp_path):
    choices = [{"message": {"content": text}, "finish_reason": "stop"} for text in ("yes", "yes", "no", "hm")]
    row = {
        "custom_id": "7",
        "response": {"status_code": 200, "body": {"model": "m", "choices": choices}},
        "error": None,
    }
    path = tmp_path / "draws.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"custom_id": "8"}))
    shared = read(path, classes=["yes", "no"]).annotations
    np.testing.assert_allclose(shared.votes(), [[1 / 3, 2 / 3]] * 2, rtol=1e-6)
    kept = read(path, classes=["yes", "no"], duplicates="keep").annotations
    assert (len(kept), kept.n_duplicates) == (6, 4)


def test_models_can_be_left_out(tmp_path):
    with pytest.raises(ReadError, match="by models"):
        read(sample(tmp_path, "chats.jsonl"), models=False)


# -- several files -------------------------------------------------------------------------------------------------------


def people(path: Path, labels=("yes", "no"), ids=range(4)):
    rows = [f"{i},{who},{labels[(i + (who == 'bob' and i == 1)) % 2]}" for i in ids for who in ("ann", "bob")]
    path.write_text("item,worker,label\n" + "\n".join(rows) + "\n")
    return path


def test_people_and_models_are_merged_by_id(tmp_path):
    files = [
        people(tmp_path / "people.csv"),
        batch(tmp_path / "gpt.jsonl", ["It is yes", "no", "Yes.", "none", "no"], "gpt-4o"),
        batch(tmp_path / "claude.jsonl", ["yes", "YES", "hm"], "claude"),
    ]
    export = read_together(files)
    crowd = export.annotations
    assert crowd.classes.tolist() == ["no", "yes"]
    assert dict(zip(crowd.annotators.tolist(), export.kinds.tolist(), strict=True)) == {
        "ann": "person",
        "bob": "person",
        "gpt-4o": "model",
        "claude": "model",
    }
    assert crowd.n_instances == 5  # ids are text in all files now
    assert len(crowd) == 8 + 4 + 2
    assert "together: 14 annotations of 5 instances by 4 annotators, 2 of them models" in export.message
    assert read_together(files[:1]).annotations == read(files[0]).annotations
    assert read(files).annotations == crowd
    assert read(files[::-1]).annotations.n_annotators == 4  # in any order


def test_numbers_of_people_are_found_in_answers(tmp_path):
    files = [people(tmp_path / "p.csv", labels=(1, 5)), batch(tmp_path / "m.jsonl", ["Rating: 5", '{"rating": 1}'])]
    crowd = read_together(files).annotations
    assert crowd.classes.tolist() == [1, 5]
    assert crowd.select(annotators=crowd.annotator_codes(["gpt"])).label.tolist() == [1, 0]


def test_files_that_do_not_go_together_are_refused(tmp_path):
    one = people(tmp_path / "one.csv")
    with pytest.raises(ReadError, match=r"two.csv: none of its 2 instances"):
        read_together([one, people(tmp_path / "two.csv", ids=[70, 80])])
    with pytest.raises(ConfigError, match="named twice"):
        read_together([one, one])
    with pytest.raises(ReadError, match="'ann' is a person in one file and a model in another"):
        read_together([one, batch(tmp_path / "m.jsonl", ["yes", "no"], "ann")])
    with pytest.raises(ReadError, match=r"missing.csv"):
        read_together([one, tmp_path / "missing.csv"])


def test_tables_of_people_with_other_classes_are_merged(tmp_path):
    both = read_together([people(tmp_path / "a.csv"), people(tmp_path / "b.csv", labels=("maybe", "yes"))])
    assert both.annotations.classes.tolist() == ["maybe", "no", "yes"]
    assert both.annotations.n_annotators == 2
    assert both.annotations.n_duplicates == 8


# -- weights and scores in files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_weights_and_confidences_survive_a_file(tmp_path, suffix):
    export = read(sample(tmp_path, "openai.jsonl"))
    write(export, tmp_path / f"again.{suffix}")
    again = read(tmp_path / f"again.{suffix}")
    np.testing.assert_allclose(again.annotations.weight, export.annotations.weight, atol=1e-6)
    np.testing.assert_allclose(again.confidences, export.confidences, atol=1e-6)
    assert again.kinds.tolist() == export.kinds.tolist()
    assert again.columns["weight"] == "weight"


def test_a_column_of_weights(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("item,worker,label,share\n1,a,x,0.5\n1,a,y,0.5\n2,a,x,0\n2,b,y,2\n")
    crowd = read(path, weight="share").annotations
    np.testing.assert_allclose(crowd.votes(), [[0.5, 0.5], [0, 2]])
    assert read(path).annotations.weight is None
    path.write_text("item,worker,label,weight\n1,a,x,heavy\n")
    assert read(path).annotations.weight is None  # some other weight
    with pytest.raises(ReadError, match="weight 'heavy' is not a number"):
        read(path, weight="weight")
    with pytest.raises(ConfigError, match="has fixed fields"):
        read(sample(tmp_path, "chats.jsonl"), "llm", weight="share")


def test_scores_of_tools_are_kept(tmp_path):
    tasks = json.loads(sample(tmp_path, "tasks.json").read_text())
    prediction = {"model_version": "m", "score": 0.75, "result": tasks[0]["annotations"][0]["result"]}
    tasks[0]["predictions"] = [prediction]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks))
    export = read(path)
    assert sorted(export.confidences[~np.isnan(export.confidences)]) == [0.7, 0.7, 0.75]
    write(export, tmp_path / "again.json")
    assert np.nanmax(read(tmp_path / "again.json").confidences) == 0.75
