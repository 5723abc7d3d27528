"""What a report says, and that it stays small, safe and honest about what it leaves out."""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crowdwise import simulate
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError, DataError
from crowdwise.readers import read
from crowdwise.report import limits, render_page, write_page
from crowdwise.report.content import comparison, empty, gather, training
from crowdwise.report.serve import ReportServer
from crowdwise.report.source import Source, from_export
from crowdwise.report.thumbnails import SIDE, thumbnail
from report_crowds import crowd as small_crowd


def data_of(html: str) -> dict[str, Any]:
    """The data that a page carries."""
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_the_overview_puts_the_method_beside_majority_vote(source: Source) -> None:
    page = gather(source)
    shares = {row["name"]: row["share"] for row in page.overview["accuracy"]}
    assert shares["majority-vote"] <= shares["committee"] <= 1
    assert page.overview["agreement"][0]["measure"] == "raw agreement"
    assert all(row["low"] <= row["value"] <= row["high"] for row in page.overview["agreement"])
    assert [size[:2] for size in page.overview["sizes"]] == [
        ("60", "items"),
        ("6", "annotators"),
        ("240", "labels"),
        ("3", "classes"),
    ]


def test_truth_judges_and_informs_nothing(source: Source) -> None:
    blind = gather(dataclasses.replace(source, truth=None))
    page = gather(source)
    assert blind.overview["accuracy"] == []
    assert [row["likely"] for row in blind.items["rows"]] == [row["likely"] for row in page.items["rows"]]


def test_every_annotator_has_skill_matrix_neighbours_pace_and_a_curve(source: Source) -> None:
    rows = gather(source).annotators["rows"]
    assert {row["name"] for row in rows} == {f"person {k}" for k in range(6)}
    for row in rows:
        assert row["low"] <= row["skill"] <= row["high"]
        assert len(row["matrix"]) == 9
        assert all(abs(sum(row["matrix"][start : start + 3]) - 100) <= 2 for start in (0, 3, 6))
        assert 2 < row["seconds"] < 9
        assert row["driftLow"] <= row["drift"] <= row["driftHigh"]
        assert row["curve"][-1][0] == row["labels"]
        assert all(rows[other]["name"] != row["name"] for other in row["similar"])
    skill = {row["name"]: row["skill"] for row in rows}
    assert skill["person 0"] > skill["person 5"]


def test_groups_that_err_alike_are_found_on_the_map() -> None:
    """Half of the annotators take every cat for a dog, the others every dog for an owl."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=300)
    instance = np.repeat(np.arange(300), 6)
    annotator = np.concatenate([rng.choice(20, 6, replace=False) for _ in range(300)])
    sways = np.where(annotator < 10, 0, 1)
    erring = (truth[instance] == sways) & (rng.random(len(instance)) < 0.45)
    label = np.where(erring, truth[instance] + 1, truth[instance])
    page = gather(
        Source("two groups", Annotations.from_triples(instance, annotator, label), truth=truth.astype(np.int32))
    )
    groups = {row["name"]: row["group"] for row in page.annotators["rows"]}
    assert len({groups[str(k)] for k in range(10)} | {groups[str(k)] for k in range(10, 20)}) >= 2
    assert {groups[str(k)] for k in range(10)}.isdisjoint({groups[str(k)] for k in range(10, 20)})


def test_items_are_ranked_by_doubt_and_keep_all_labels(source: Source) -> None:
    page = gather(source)
    rows, people = page.items["rows"], page.items["people"]
    assert [row["doubt"] for row in rows] == sorted((row["doubt"] for row in rows), reverse=True)
    given = {
        (row["id"], people[who], page.classes[label])
        for row in rows
        for who, label in zip(row["labels"][::2], row["labels"][1::2], strict=True)
    }
    crowd = source.annotations
    expected = zip(
        crowd.instances[crowd.instance], crowd.annotators[crowd.annotator], crowd.classes[crowd.label], strict=True
    )
    assert given == {(str(a), str(b), str(c)) for a, b, c in expected}


def test_what_to_label_next_stays_within_the_budget(source: Source) -> None:
    assert len(gather(source, budget=12).next) == 12
    assert gather(source, budget=0).next == []
    with pytest.raises(ConfigError, match="budget must be 0 or more, got -1"):
        gather(source, budget=-1)


def test_an_unknown_method_is_named(source: Source) -> None:
    with pytest.raises(ConfigError, match="unknown method 'dawidskene'; did you mean 'dawid-skene'"):
        gather(source, method="dawidskene")


def test_warnings_are_plain_words() -> None:
    """A spammer who is in a hurry, single labels, and a repeated one."""
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=100)
    instance, annotator = (part.ravel() for part in np.meshgrid(np.arange(100), np.arange(4), indexing="ij"))
    label = np.where(annotator == 3, 0, np.where(rng.random(400) < 0.1, 1 - truth[instance], truth[instance]))
    keep = (instance >= 20) | (annotator == 0)
    crowd = Annotations.from_triples(
        np.append(instance[keep], 50),
        np.append(annotator[keep], 0),
        np.append(label[keep], 0),
        annotators=["ann", "bob", "cy", "lazy"],
        classes=["no", "yes"],
    )
    durations = np.where(crowd.annotator == 3, 0.5, 6.0)
    said = "\n".join(gather(Source("x", crowd, durations=durations)).overview["warnings"])
    assert "“lazy” labels almost independently of the item" in said
    assert "“lazy” took less than a quarter of the usual 6.0 s per label" in said
    assert "20 of 100 items have a single label" in said
    assert "1 label by annotators who had already labelled the item" in said


def test_classes_that_nobody_chose_are_named() -> None:
    crowd = Annotations.from_triples([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], classes=["no", "yes", "never"])
    assert "Nobody chose “never”." in gather(Source("x", crowd)).overview["warnings"]


@pytest.mark.parametrize(
    "crowd",
    [
        Annotations.from_triples([0], [0], [0]),
        Annotations.from_triples([0, 0], [0, 1], [0, 1]),
        Annotations.from_triples([0, 1, 2], [0, 1, 2], [0, 1, 0]),
        Annotations.from_triples([0, 0, 0], [0, 1, 2], [0, 0, 0]),
        Annotations.from_triples([], [], [], n_instances=3, n_annotators=2, n_classes=2),
    ],
    ids=["one label", "two labels", "nothing shared", "one class", "no labels"],
)
def test_the_smallest_crowds_have_a_page(crowd: Annotations) -> None:
    assert "<h1" in render_page(gather(Source("tiny", crowd)))


def large(n: int, annotators: int, per_item: int, classes: int) -> Source:
    rng = np.random.default_rng(0)
    truth = rng.integers(classes, size=n)
    instance = np.repeat(np.arange(n), per_item)
    annotator = (np.repeat(rng.integers(annotators, size=n), per_item) + np.tile(np.arange(per_item), n)) % annotators
    label = np.where(rng.random(len(instance)) < 0.25, rng.integers(classes, size=len(instance)), truth[instance])
    crowd = Annotations.from_triples(
        instance, annotator, label, n_instances=n, n_annotators=annotators, n_classes=classes
    )
    return Source("large", crowd, texts=[f"{k} " + "some words of a sentence " * 6 for k in range(n)])


@pytest.mark.slow
def test_ten_thousand_items_by_three_hundred_annotators_stay_under_five_megabytes(tmp_path: Path) -> None:
    source = large(10_000, 300, 10, 10)
    rng = np.random.default_rng(0)
    source = dataclasses.replace(source, pictures=rng.integers(255, size=(10_000, 32, 32, 3), dtype=np.uint8))
    path = write_page(gather(source), tmp_path / "report.html")
    assert path.stat().st_size < 5_000_000
    data = data_of(path.read_text("utf-8"))
    assert len(data["annotators"]["rows"]) == 300
    assert len(data["items"]["rows"]) == 10_000
    assert "picture" in data["items"]["rows"][0]


def test_a_larger_crowd_is_sampled_and_the_page_says_so() -> None:
    page = gather(large(12_000, 400, 3, 3), method="dawid-skene", budget=10)
    assert (len(page.annotators["rows"]), page.annotators["total"]) == (limits.MOST_ANNOTATORS, 400)
    assert page.items["total"] == 12_000
    assert len(page.items["rows"]) <= limits.MOST_ITEMS
    html = render_page(page)
    assert "the 300 annotators with most labels, of 400" in html
    assert re.search(r"This is a sample: the [\d,]+ items whose consensus is most doubtful, of 12,000", html)


def test_matrices_of_many_classes_are_left_out_where_they_do_not_fit() -> None:
    rows = gather(large(400, 120, 5, 90), method="majority-vote", budget=0).annotators["rows"]
    with_matrix = [row for row in rows if "matrix" in row]
    assert 0 < len(with_matrix) < len(rows)
    assert sum(len(row["matrix"]) for row in with_matrix) <= limits.MATRIX_NUMBERS


def test_json_cannot_leave_its_element() -> None:
    text = "</script><!--<script>&\u2028\u2029\ud7ff"
    embedded = limits.safe_json({"text": text})
    assert not re.search(r"[<>&\u2028\u2029]", embedded)
    assert json.loads(embedded) == {"text": text}


def test_the_charts_javascript_is_made_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vl_convert

    from crowdwise.report import page

    monkeypatch.setenv("CROWDWISE_CACHE", str(tmp_path / "cache"))
    made = page._bundle.__wrapped__()
    (kept,) = (tmp_path / "cache").iterdir()
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda entry: "window.vegaEmbed = 1;")
    assert page._bundle.__wrapped__() == made
    kept.write_text("", "utf-8")  # damaged: made anew
    assert page._bundle.__wrapped__() == "window.vegaEmbed = 1;"
    monkeypatch.setenv("CROWDWISE_CACHE", str(kept / "no folder"))
    assert page._bundle.__wrapped__() == "window.vegaEmbed = 1;"


def test_annotators_without_labels_are_named(source: Source) -> None:
    crowd = Annotations.from_triples([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], annotators=["ann", "bob", "cyd"])
    page = gather(Source("x", crowd))
    assert "“cyd” gave no label." in page.overview["warnings"]
    assert [row["name"] for row in page.annotators["rows"]] == ["ann", "bob"]


def test_models_are_marked_and_not_asked_again(source: Source) -> None:
    kinds = np.array(["model", *["person"] * 5])
    page = gather(dataclasses.replace(source, kinds=kinds), budget=20)
    assert [row["name"] for row in page.annotators["rows"] if "kind" in row] == ["person 0"]
    assert len(page.next) == 20
    assert "person 0" not in {row["annotator"] for row in page.next}
    assert "1 model among them" in page.overview["sizes"][1][2]


def test_the_page_names_no_address_outside_itself(source: Source) -> None:
    html = render_page(gather(source))
    own = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)  # Vega names its documentation in messages
    own = re.sub(r'"\$schema":"[^"]*"', "", own)
    assert not re.search(r"(src|href)=\"?https?:|url\(|@import", own)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe-eval" not in policy[1]


def test_text_of_the_overview_is_escaped(source: Source) -> None:
    html = render_page(gather(dataclasses.replace(source, title="<b>x</b>", message="<i>", facts={"<u>": "<s>"})))
    assert '<h1 class="data">&lt;b&gt;x&lt;/b&gt;</h1>' in html
    assert not re.search(r"<b>x|<i>|<u>|<s>", html.partition("<script")[0])


def test_times_texts_and_pictures_are_found_in_the_table(tmp_path: Path) -> None:
    Image.new("RGB", (300, 200), "red").save(tmp_path / "one.png")
    table = tmp_path / "crowd.csv"
    table.write_text(
        "task,worker,label,created_at,lead_time,text,image\n"
        "a,ann,yes,2026-01-02T10:00:00Z,4.5,first,one.png\n"
        "a,bob,no,2026-01-02T10:00:30Z,2.5,first,one.png\n"
        "b,ann,no,2026-01-02T10:01:00Z,,second,../elsewhere.png\n",
        encoding="utf-8",
    )
    source = from_export(table, read(table))
    assert source.timestamps is not None
    assert np.diff(source.timestamps).tolist() == [30.0, 30.0]
    assert source.durations is not None
    assert source.durations[:2].tolist() == [4.5, 2.5]
    assert np.isnan(source.durations[2])
    assert source.texts == ["first", "second"]
    rows = {row["id"]: row for row in gather(source).items["rows"]}
    assert rows["a"]["picture"].startswith("data:image/jpeg;base64,")
    assert "picture" not in rows["b"]
    assert rows["b"]["address"] == "../elsewhere.png"


def test_pictures_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "secret.png")
    (tmp_path / "inner").mkdir()
    assert thumbnail("../secret.png", tmp_path / "inner") is None
    assert thumbnail(str(tmp_path / "secret.png"), tmp_path / "inner") is None
    assert thumbnail("https://example.org/a.png", tmp_path) is None
    assert thumbnail("secret.png", tmp_path) is not None


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 1), (4, 4, 3), (3, 40, 40), (300, 200, 3)])
def test_arrays_of_any_layout_become_thumbnails(shape: tuple[int, ...]) -> None:
    assert thumbnail(np.random.default_rng(0).normal(size=shape)) is not None
    assert thumbnail(np.zeros(5)) is None
    assert SIDE < 300


def test_methods_are_compared_by_mean_and_spread() -> None:
    records = [
        {"column": "digits", "row": "TAIDTM", "test_accuracy": 90.0},
        {"column": "digits", "row": "CE", "test_accuracy": 70.0},
        {"column": "digits", "row": "TAIDTM", "test_accuracy": 92.0},
        {"column": "digits", "row": "CE", "error": "it failed"},
    ]
    rows = {row["row"]: row for row in comparison(records)}
    assert (rows["TAIDTM"]["mean"], rows["TAIDTM"]["runs"]) == (91.0, 2)
    assert rows["TAIDTM"]["spread"] == pytest.approx(1.4142, abs=1e-3)
    assert (rows["CE"]["mean"], rows["CE"]["spread"]) == (70.0, None)


def test_a_page_may_be_about_training_alone() -> None:
    page = empty("a run")
    page.training = training([{"stage": "warm-up", "epoch": 0, "loss": float("nan"), "agreement": 0.5, "seconds": 1.0}])
    html = render_page(page)
    assert data_of(html)["training"][0]["loss"] is None
    assert 'id="training"' in html
    assert 'id="annotators"' not in html


def test_a_missing_folder_is_an_error_and_nothing_is_left(source: Source, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        write_page(gather(source), tmp_path / "nowhere" / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")  # of a training that is much too short
def test_a_trained_model_shows_how_matrices_change_with_the_instance() -> None:
    from crowdwise import TAIDTM, datasets
    from crowdwise.data.training import TrainingData
    from crowdwise.report.source import from_training

    digits = datasets.load("digits")
    X, y = digits.X_train[:600], digits.y_train[:600]
    crowd = simulate.aidn(X, y, n_annotators=20, labels_per_instance=4, noise_rate=0.3, random_state=0)
    short = {"recipe": "paper", "epochs": 1, "warmup_epochs": 8, "transition_epochs": 4, "gcn_epochs": 4, "verbose": 0}
    model = TAIDTM(**short, batch_size=64, k=5, svd_rank=3, min_examples=5)
    model.fit(X, crowd.annotations)
    page = gather(from_training(TrainingData("digits", X, crowd.annotations, crowd=crowd), model, "digits"), budget=5)
    assert page.map["heads"]
    row = page.annotators["rows"][0]
    chances = [moment["right"] for moment in row["moments"]]
    assert len(chances) == 4
    assert chances == sorted(chances)
    assert row["moments"][0]["matrix"] != row["moments"][-1]["matrix"]
    assert page.items["rows"][0]["picture"].startswith("data:image/png")
    assert page.items["rows"][0]["predicted"][1] <= 1
    assert page.overview["accuracy"][0]["name"] == "taidtm"


def test_the_server_answers_this_machine_only() -> None:
    with ReportServer(0, lambda: "<p>now</p>", lambda: {"crowd": "</script>"}) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        assert server.server_address[0] == "127.0.0.1"
        assert urllib.request.urlopen(server.address).read() == b"<p>now</p>"
        assert urllib.request.urlopen(server.address + "progress").read() == b'{"crowd":"\\u003c/script\\u003e"}'
        strange = urllib.request.Request(server.address, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(strange)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.address + "../etc/passwd")
        server.shutdown()


# -- models and people ---------------------------------------------------------------------------------------------------


def test_a_section_on_models_only_where_there_are_models() -> None:
    source = small_crowd(120, 6, 5)
    assert gather(source).models == {}
    assert gather(dataclasses.replace(source, kinds=np.array(["person"] * 6))).models == {}
    found = gather(dataclasses.replace(source, kinds=np.array(["person"] * 4 + ["model"] * 2))).models
    assert [row["name"] for row in found["rows"]] == ["person 4", "person 5"]
    assert found["rows"][0]["passed"] is False
    assert found["votes"].startswith("2 models count as")
    assert found["alike"]["rows"][0][0]["r"] == 1.0


def test_models_without_people_or_truth_are_shown_all_the_same() -> None:
    source = dataclasses.replace(small_crowd(), kinds=np.array(["model"] * 6), truth=None)
    found = gather(source).models
    assert len(found["rows"]) == 6
    assert found["alike"] is None
    assert "cannot be determined" in found["advice"][0]
    assert "Models and people" in render_page(gather(source))
