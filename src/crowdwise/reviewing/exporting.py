"""What a review leaves: the annotations of crowd and reviewers, and the consensus, in every format that can be written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa

from crowdwise.readers import Export, write, write_labels
from crowdwise.readers.write import AUTO, LABEL_STUDIO, output_format
from crowdwise.reviewing.consensus import merged
from crowdwise.reviewing.session import Session


def all_annotations(session: Session) -> Export:
    """The crowd's annotations and those of the reviewers, with times and durations."""
    export, everything = session.export, merged(session.crowd, session.answers)
    given = session.answers.triples()[3]
    if not given:
        return export
    people = everything.n_annotators - len(export.kinds)
    times = np.array([round(answer.time * 1e6) for answer in given], np.int64).view("datetime64[us]")
    before = export.timestamps
    if before is None:
        before = np.full(len(session.crowd), "NaT", "datetime64[us]")
    spent = np.array([np.nan if answer.seconds is None else answer.seconds for answer in given], np.float64)
    earlier = export.durations
    if earlier is None:
        earlier = np.full(len(session.crowd), np.nan)
    durations = np.concatenate([earlier, spent])
    confidences = export.confidences
    if confidences is not None:
        confidences = np.concatenate([confidences, np.full(len(given), np.nan)])
    return dataclasses.replace(
        export,
        annotations=everything,
        kinds=np.concatenate([export.kinds, np.full(people, "person", "<U6")]),
        timestamps=np.concatenate([before, times]),
        durations=None if np.isnan(durations).all() else durations,
        confidences=confidences,
        extra=None if export.extra is None else _with_empty_rows(export.extra, len(given)),
        n_rows=len(everything),
    )


def _with_empty_rows(table: pa.Table, number: int) -> pa.Table:
    """A table and, after its rows, some of which nothing is known."""
    empty = pa.table([pa.nulls(number, kind) for kind in table.schema.types], names=table.column_names)
    return pa.concat_tables([table, empty])


def consensus_labels(session: Session) -> pa.Table:
    """The consensus: instance, label and confidence, who reviewed it, and what they remarked."""
    now, crowd = session.settle(), session.crowd
    reviewers: dict[int, list[str]] = {}
    for who, item in session.answers.labels:
        reviewers.setdefault(item, []).append(who)
    remarks: dict[int, list[str]] = {}
    several = len({who for who, _ in session.answers.comments}) > 1
    for (who, item), text in session.answers.comments.items():
        remarks.setdefault(item, []).append(f"{who}: {text}" if several else text)

    def column(found: dict[int, list[str]]) -> pa.Array:
        return pa.array(
            ["; ".join(found[code]) if code in found else None for code in range(crowd.n_instances)], pa.string()
        )

    return pa.table(
        {
            "instance": crowd.instance_vocabulary.arrow,
            "label": crowd.class_vocabulary.take(now.label),
            "confidence": now.confidence,
            "reviewed_by": column(reviewers),
            "comment": column(remarks),
        }
    )


def save(session: Session, path: Path, what: str = "annotations", to: str = AUTO) -> None:
    """Write the annotations or the labels; a file for Label Studio has both, labels as predictions."""
    if output_format(path, to) == LABEL_STUDIO:
        write(
            all_annotations(session),
            path,
            LABEL_STUDIO,
            labels=consensus_labels(session),
            model=session.consensus.method,
        )
    elif what == "annotations":
        write(all_annotations(session), path, to)
    else:
        write_labels(consensus_labels(session), path, to)
