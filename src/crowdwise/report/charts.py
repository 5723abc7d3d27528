"""The charts of a report, declared in Altair as Vega-Lite; the page fills in the data, by the name of each data set."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import altair as alt

from crowdwise.report.pictures import GROUP_COLOURS

Spec = dict[str, Any]

NAMED_CELLS = 12  # classes up to which a matrix shows its numbers

# colours of the page, its charts and the groups; those of groups are Okabe and Ito's, lighter on a dark background
_LIGHT = {"ink": "#1c2530", "muted": "#5b6673", "line": "#d9dfe6", "ground": "#ffffff", "accent": "#0b62b8"}
_DARK = {"ink": "#e6ebf1", "muted": "#a3afbd", "line": "#364252", "ground": "#161d26", "accent": "#6cb6ff"}
_HEAT = {"light": ["#f7fafd", "#0b4f9e"], "dark": ["#1d2733", "#2f7be0"]}
GROUPS = {
    "light": list(GROUP_COLOURS),
    "dark": ["#56b4e9", "#e69f00", "#2fc79c", "#e39ac2", "#9ec5ff", "#ff8a47", "#b4bfca"],
}


def themes() -> dict[str, Spec]:
    """Vega configurations for a light and a dark page."""
    return {name: _theme(name, colours) for name, colours in (("light", _LIGHT), ("dark", _DARK))}


def specs(classes: Sequence[str]) -> dict[str, Spec]:
    """Every chart by name, for a page about these classes."""
    about = {"classes": _classes(_angle(classes, 480)), "matrix": _matrix(classes, _angle(classes, 260))}
    return _same_on_every_page() | _declared(about)


@functools.cache
def _same_on_every_page() -> dict[str, Spec]:
    charts = {
        "agreement": _agreement(),
        "confidence": _confidence(),
        "skills": _skills(),
        "curve": _curve(),
        "map": _map(),
        "gain": _gain(),
        "loss": _training("loss", "loss"),
        "agreeing": _training("agreement", "agreement with held-out labels"),
        "comparison": _comparison("standard deviation", "runs"),
        "ranking": _comparison("standard error", "folds"),
    }
    return _declared(charts)


def _declared(charts: dict[str, Any]) -> dict[str, Spec]:
    made = {name: chart.to_dict(validate=False) for name, chart in charts.items()}  # each part has been validated
    return {name: _described(spec) for name, spec in made.items()}


def _described(spec: Spec) -> Spec:
    """The chart with its description at the top, where screen readers look; Altair puts it into the layers."""
    return spec if "description" in spec else spec | {"description": spec["layer"][0]["description"]}


def _theme(name: str, colours: dict[str, str]) -> Spec:
    return {
        "background": "transparent",
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": colours["muted"],
            "titleColor": colours["muted"],
            "titleFontWeight": "normal",
            "gridColor": colours["line"],
            "domainColor": colours["line"],
            "tickColor": colours["line"],
            "labelLimit": 130,
            "labelFontSize": 11,
            "titleFontSize": 11,
        },
        "legend": {"labelColor": colours["ink"], "titleColor": colours["muted"], "labelLimit": 220, "orient": "bottom"},
        "text": {"color": colours["ink"]},
        "point": {"color": colours["accent"], "filled": True},
        **{mark: {"color": colours["accent"]} for mark in ("circle", "bar", "line", "area")},
        "rule": {"color": colours["muted"]},
        "range": {"category": GROUPS[name], "heatmap": _HEAT[name]},
    }


def _chart(name: str, height: Any, description: str) -> Any:
    return alt.Chart(alt.NamedData(name)).properties(width="container", height=height, description=description)


def _angle(classes: Sequence[str], width: int) -> int:
    """0 if the names of the classes fit side by side, otherwise a slope."""
    return 0 if len(classes) * max((7 * len(name) + 14 for name in classes), default=0) <= width else -40


def _tips(*fields: tuple[str, ...]) -> list[Any]:
    """Tooltips, each a field with an optional format and title."""
    names = ("shorthand", "format", "title")
    given: list[dict[str, Any]] = [
        {name: text for name, text in zip(names, field, strict=False) if text} for field in fields
    ]
    return [alt.Tooltip(**options) for options in given]


def _percent(**options: Any) -> Any:
    return alt.Axis(format=".0%", **options)


def _intervals(base: Any, x: str, y: Any, tooltip: list[Any], size: int, **axis: Any) -> Any:
    """A point for each row of the data, with a line from ``low`` to ``high``."""
    whisker = base.mark_rule(strokeWidth=2, opacity=0.6).encode(x=alt.X("low:Q", **axis), x2="high:Q", y=y)
    return whisker + base.mark_point(size=size, opacity=1).encode(x=alt.X(x, **axis), y=y, tooltip=tooltip)


def _agreement() -> Any:
    base = _chart("agreement", 160, "Measures of agreement with 95 % intervals")
    y = alt.Y("measure:N", sort=None, title=None, axis=alt.Axis(labelLimit=220, grid=True))
    tooltip = _tips(("measure:N",), ("value:Q", ".3f"), ("low:Q", ".3f"), ("high:Q", ".3f"))
    return _intervals(base, "value:Q", y, tooltip, 80, title=None, scale=alt.Scale(domainMax=1))


def _classes(angle: int) -> Any:
    base = _chart("classes", 190, "Share of each class among the labels and in the consensus")
    return base.mark_bar().encode(
        x=alt.X("class:N", sort=None, title=None, axis=alt.Axis(labelAngle=angle, labelOverlap=True)),
        xOffset=alt.XOffset("what:N", sort=None),
        y=alt.Y("share:Q", title=None, axis=_percent(tickCount=4)),
        color=alt.Color("what:N", sort=None, title=None),
        tooltip=_tips(("class:N",), ("what:N",), ("share:Q", ".1%")),
    )


def _confidence() -> Any:
    base = _chart("confidence", 190, "Number of items by the probability of their consensus label")
    tens = _percent(values=[k / 10 for k in range(11)], grid=False)
    return base.mark_bar(binSpacing=1).encode(
        x=alt.X("low:Q", bin="binned", title="probability of the consensus", axis=tens),
        x2="high:Q",
        y=alt.Y("items:Q", title="items", axis=alt.Axis(tickCount=4, tickMinStep=1)),
        tooltip=_tips(("low:Q", ".0%"), ("high:Q", ".0%"), ("items:Q",)),
    )


def _picked() -> Any:
    """The selected annotator, -1 for none; the page sets it."""
    return alt.param(name="picked", value=-1)


def _skills() -> Any:
    base = _chart("skills", 150, "Skill of every annotator with its interval, the best first")
    tag = "(data('skills')[datum.value] || {}).tag || ''"  # ranks are places in the data
    names = alt.Axis(labelExpr=tag, labelAngle=-40, labelLimit=110, labelOverlap=False, ticks=False, domain=False)
    x = alt.X("rank:O", title=None, axis=names)
    chosen = "datum.id === picked"
    whisker = base.mark_rule(opacity=0.45).encode(
        x=x,
        y=alt.Y("low:Q", title="skill", axis=_percent(tickCount=4), scale=alt.Scale(domain=[0, 1])),
        y2="high:Q",
        strokeWidth=alt.condition(chosen, alt.value(4), alt.value(1.5)),
    )
    percents = (("skill:Q", ".0%"), ("low:Q", ".0%"), ("high:Q", ".0%"))
    point = base.mark_point(opacity=1, cursor="pointer").encode(
        x=x,
        y=alt.Y("skill:Q", title="skill"),
        size=alt.condition(chosen, alt.value(180), alt.value(36)),
        tooltip=_tips(("name:N", "", "annotator"), *percents, ("labels:Q", ",")),
    )
    return (whisker + point).add_params(_picked())


def _matrix(classes: Sequence[str], angle: int) -> Any:
    """Cells of a matrix; with many classes, the page leaves out those that are 0."""
    n_classes, scale = len(classes), alt.Scale(domain=list(classes))
    axis: dict[str, Any] = {"labels": n_classes <= 40, "ticks": False, "domain": False, "labelLimit": 90}
    height = min(max(26 * n_classes, 120), 340)
    base = _chart("matrix", height, "How often the annotator gives each label to each class").encode(
        x=alt.X("label:N", scale=scale, title="label given, %", axis=alt.Axis(orient="top", labelAngle=angle, **axis)),
        y=alt.Y("true:N", scale=scale, title="true class", axis=alt.Axis(**axis)),
        tooltip=_tips(("true:N", "", "true class"), ("label:N", "", "label given"), ("share:Q", ".0%")),
    )
    rect = base.mark_rect(aria=n_classes <= NAMED_CELLS).encode(
        color=alt.Color("share:Q", scale=alt.Scale(domain=[0, 1]), legend=None)
    )
    if n_classes > NAMED_CELLS:
        return rect.properties(view=alt.ViewBackground(stroke="#8a96a3"))
    text = alt.Text("whole:Q")
    weak = base.transform_filter("datum.share <= 0.45").mark_text(fontSize=11, aria=False)
    strong = base.transform_filter("datum.share > 0.45").mark_text(fontSize=11, aria=False, color="#ffffff")
    return rect + weak.encode(text=text) + strong.encode(text=text)


def _curve() -> Any:
    base = _chart("curve", 110, "Mean chance that labels are right, from the first label to the last")
    scale = alt.Scale(zero=False, nice=True)
    return base.mark_line(point=True, strokeWidth=2).encode(
        x=alt.X("labels:Q", title="labels given so far", axis=alt.Axis(tickMinStep=1, grid=False)),
        y=alt.Y("right:Q", title="right", scale=scale, axis=_percent(tickCount=4)),
        tooltip=_tips(("labels:Q",), ("right:Q", ".0%")),
    )


def _map() -> Any:
    """Annotators and the edges between them; those of the picked annotator stand out."""
    touching, chosen = "datum.from === picked || datum.to === picked", "datum.id === picked"
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    x = alt.X("x:Q", title="1st principal component", axis=hidden)
    y = alt.Y("y:Q", title="2nd principal component", axis=hidden)
    faint = alt.Opacity("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0.04, 0.45]), legend=None)
    edges = alt.Chart(alt.NamedData("edges")).mark_rule(aria=False)
    edges = edges.encode(
        x=x,
        y=y,
        x2="x2:Q",
        y2="y2:Q",
        strokeWidth=alt.condition(touching, alt.value(2.2), alt.value(0.8)),
        color=alt.condition(touching, alt.value("#d55e00"), alt.value("#8a96a3")),
        opacity=alt.condition(touching, alt.value(0.9), faint),
    )
    groups = list(range(7))
    shapes = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "circle"]
    nodes = alt.Chart(alt.NamedData("nodes")).mark_point(opacity=0.95, cursor="pointer", strokeWidth=1)
    nodes = nodes.encode(
        x=x,
        y=y,
        color=alt.Color("shade:N", scale=alt.Scale(domain=groups), legend=None),
        shape=alt.Shape("shade:N", scale=alt.Scale(domain=groups, range=shapes), legend=None),
        size=alt.condition(chosen, alt.value(320), alt.value(75)),
        stroke=alt.condition(chosen, alt.value("#d55e00"), alt.value("#ffffff")),
        tooltip=_tips(("name:N", "", "annotator"), ("group:N",), ("skill:Q", ".0%"), ("neighbours:N",)),
    )
    names = alt.Chart(alt.NamedData("nodes")).mark_text(dy=-12, fontSize=11, aria=False).encode(x=x, y=y)
    tags = names.transform_filter("datum.tag && datum.id !== picked").encode(text="tag:N")
    own = names.transform_filter(chosen).mark_text(dy=-16, fontSize=13, fontWeight="bold", aria=False)
    words = "Annotators by how they err; lines join similar ones"
    layers = alt.layer(edges, nodes, tags, own.encode(text="name:N"))
    chart = layers.properties(width="container", height=440, description=words)
    return chart.add_params(_picked())


def _gain() -> Any:
    base = _chart("gain", 170, "Expected number of items put right by the first labels of the list")
    return base.mark_area(opacity=0.35, line=True).encode(
        x=alt.X("number:Q", title="further labels", axis=alt.Axis(grid=False, tickMinStep=1)),
        y=alt.Y("right:Q", title="items put right", axis=alt.Axis(tickCount=4)),
        tooltip=_tips(("number:Q", "", "labels"), ("right:Q", ".2f", "put right")),
    )


def _training(field: str, title: str) -> Any:
    base = _chart("training", 200, f"{title} after every epoch")
    return base.mark_line(point=alt.OverlayMarkDef(size=22), strokeWidth=2).encode(
        x=alt.X("step:Q", title="epoch, through all stages", axis=alt.Axis(tickMinStep=1, grid=False)),
        y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)),
        color=alt.Color("stage:N", sort=None, title=None),
        tooltip=_tips(("stage:N",), ("epoch:Q",), (f"{field}:Q", ".4f", title), ("seconds:Q", ".1f")),
    )


def _comparison(error: str, runs: str) -> Any:
    base = _chart("comparison", 120, f"Every method, mean and {error}")
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(labelLimit=220))
    numbers = (("mean:Q", ".2f"), ("spread:Q", ".2f", error), ("runs:Q", "", runs))
    tooltip = _tips(("row:N", "", "method"), *numbers)
    scale = alt.Scale(zero=False, nice=True)
    return _intervals(base, "mean:Q", y, tooltip, 90, title="test accuracy, %", scale=scale)
