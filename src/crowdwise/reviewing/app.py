"""The page of a review: what it answers to which address. Without scripts it is made of links and forms."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import jinja2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from crowdwise.constraints import check_value
from crowdwise.errors import CrowdwiseError, DataError
from crowdwise.report import headline
from crowdwise.report.thumbnails import encoded
from crowdwise.reviewing import exporting
from crowdwise.reviewing.answers import Action
from crowdwise.reviewing.guard import Gate, Guard
from crowdwise.reviewing.queue import ORDERS, Order, View
from crowdwise.reviewing.session import Session

PAGE = Path(__file__).parent / "page"
STATIC = {"review.js": "text/javascript", "review.css": "text/css"}
KEYS = "1234567890qwertyiopadfghlzxbnm"  # of the classes; s, u, c, v, j and k have other uses
ROWS = 200  # of the list that are sent at a time
PLAIN_ROWS = 30  # of the list in the page itself
FIELDS = 20  # of a form, at most; the page sends five
SIDE = 1_400  # pixels of a picture
EXPORTS = {  # name of the file -> format
    "annotations.csv": "table",
    "annotations.jsonl": "table",
    "annotations.parquet": "table",
    "annotations-crowd-kit.csv": "crowd-kit",
    "label-studio.json": "label-studio",
    "labels.csv": "table",
    "labels.jsonl": "table",
    "labels.parquet": "table",
}


def application(session: Session, guard: Guard) -> Any:
    """The review as an ASGI application."""
    pages = Pages(session, guard)
    routes = [
        Route("/open", pages.open),
        Route("/", pages.page),
        Route("/answer", pages.answer, methods=["POST"]),
        Route("/queue", pages.queue),
        Route("/state", pages.state),
        Route("/picture/{item:int}", pages.picture),
        Route("/export/{name}", pages.export),
        Route("/static/{name}", pages.static),
    ]
    handlers: dict[Any, Any] = {CrowdwiseError: _failed}
    return Gate(Starlette(routes=routes, exception_handlers=handlers), guard)


def _failed(request: Request, error: Exception) -> Response:
    """What is wrong, in words; a disk that is full is not the fault of whoever asked."""
    return Response(str(error), status_code=400 if isinstance(error, ValueError) else 507, media_type="text/plain")


class Pages:
    """One method per address. Plain functions run in threads, so that nobody waits for another's disk."""

    def __init__(self, session: Session, guard: Guard) -> None:
        self.session, self.guard = session, guard
        templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(PAGE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
        )
        templates.filters |= {"percent": percent, "query": lambda view: "?" + urlencode(view) if view else "/"}
        self._templates = templates
        crowd = session.crowd
        names = [session.class_name(code) for code in range(crowd.n_classes)]
        self._classes = [
            {"code": code, "name": name, "key": key}
            for code, (name, key) in enumerate(zip(names, class_keys(names), strict=True))
        ]
        self._annotators = [str(name) for name in crowd.annotator_vocabulary.arrow.to_pylist()]

    def open(self, request: Request) -> Response:
        """The link that was printed: a cookie takes the place of its token.

        The page itself goes on, as browsers do not send a strict cookie along where another site sent them here.
        """
        cookie = self.guard.cookie(request.query_params.get("token", ""))
        if cookie is None:
            return Response("this link is not valid any more; open the one of the running review", 403)
        html = self._templates.get_template("open.html").render()
        return HTMLResponse(html, headers={"Set-Cookie": cookie})

    def page(self, request: Request) -> Response:
        """An item: the one in the address, else the next one of the queue."""
        reviewer, view = request.scope["reviewer"], self._view(request)
        wanted = _number(request.query_params.get("item"), self.session.crowd.n_instances)
        item = self.session.next_item(reviewer, view) if wanted is None else wanted
        if wanted is not None:
            self.session.hold(reviewer, wanted)
        return HTMLResponse(self._rendered(request, view, item))

    async def answer(self, request: Request) -> Response:
        """An answer, from the script or from the form."""
        from starlette.concurrency import run_in_threadpool

        body = await request.body()
        return await run_in_threadpool(self._answer, request, body)

    def _answer(self, request: Request, body: bytes) -> Response:
        form = _form(body)
        crowd, reviewer, view = self.session.crowd, request.scope["reviewer"], self._view(request)
        pressed, _, chosen = form.get("do", "").partition(":")  # "label:3", as one button sends one value
        check_value("do", pressed, Action, DataError)
        item = _number(form.get("item"), crowd.n_instances)
        seconds = form.get("seconds", "")
        touched = self.session.answer(
            reviewer,
            pressed,  # type: ignore[arg-type]
            item,
            _number(chosen, crowd.n_classes),
            comment=form.get("comment", "").strip(),
            seconds=float(seconds) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", seconds) else None,
            key=form.get("key", "")[:64],
        )
        stay = pressed in ("undo", "comment") and touched is not None  # undone: look at it again
        if "fragment" not in request.query_params:
            address = self._address(view, item=touched if stay else None, blind=_blind(request))
            return RedirectResponse(address, 303)
        following = touched if stay else self.session.next_item(reviewer, view)
        if stay and touched is not None:
            self.session.hold(reviewer, touched)
        return HTMLResponse(self._rendered(request, view, following))

    def queue(self, request: Request) -> Response:
        """Lines of the list: ``count`` from ``start`` of a ``version`` with the item ``first`` in front."""
        asked, n = request.query_params, self.session.crowd.n_instances
        version, start = _number(asked.get("version")), _number(asked.get("start")) or 0
        first, count = _number(asked.get("first"), n), min(_number(asked.get("count")) or ROWS, ROWS)
        version, items = self.session.queue(self._view(request), version, first)
        shown = items[start : start + count]
        rows = self.session.rows(shown, request.scope["reviewer"], blind=_blind(request))
        return JSONResponse({"version": version, "total": len(items), "start": start, "rows": rows})

    def state(self, request: Request) -> Response:
        """How far the review is; the script asks now and then."""
        progress = self.session.progress(request.scope["reviewer"])
        html = self._templates.get_template("progress.html").render(progress=progress)
        return JSONResponse({"version": progress.version, "progress": html})

    def picture(self, request: Request) -> Response:
        """The picture of an item, drawn anew: nothing but a picture leaves, whatever the file holds."""
        item, pictures = request.path_params["item"], self.session.pictures
        if pictures is None or not 0 <= item < len(pictures):
            return Response("there is no such picture", 404)
        value = pictures[item]
        found = encoded(value.as_py() if hasattr(value, "as_py") else value, self.session.root, SIDE, quality=88)
        if found is None:
            return Response("there is no such picture below the root", 404)
        return Response(found[0], media_type=f"image/{found[1]}")

    def export(self, request: Request) -> Response:
        """The annotations or the labels as a file."""
        name = request.path_params["name"]
        if name not in EXPORTS:
            return Response(f"unknown export; known: {', '.join(EXPORTS)}", 404)
        from starlette.background import BackgroundTask

        folder = tempfile.TemporaryDirectory(prefix="crowdwise-review-")
        path = Path(folder.name) / name
        exporting.save(self.session, path, name.split(".")[0].split("-")[0], EXPORTS[name])
        return FileResponse(
            path, filename=name, media_type="application/octet-stream", background=BackgroundTask(folder.cleanup)
        )

    def static(self, request: Request) -> Response:
        """Script and style."""
        name = request.path_params["name"]
        if name not in STATIC:
            return Response("there is no such file", 404)
        return Response((PAGE / name).read_bytes(), media_type=STATIC[name])

    # -- rendering ---------------------------------------------------------------------------------------------------

    def _rendered(self, request: Request, view: View, item: int | None) -> str:
        """The page, or, for the script, only what changes with the item."""
        reviewer, session = request.scope["reviewer"], self.session
        fragment = "fragment" in request.query_params
        version, items = session.queue(view, first=item)
        last, blind = session.last(reviewer), _blind(request)
        listed = items[:0] if fragment else items[:PLAIN_ROWS]
        return self._templates.get_template("item.html" if fragment else "page.html").render(
            title=session.export.message.partition(":")[0] or "review",
            reviewer=reviewer,
            shown=None if item is None else session.shown(item, reviewer),
            progress=session.progress(reviewer),
            last=None if last is None else {"id": str(last[1].item), "answer": last[1]},
            classes=self._classes,
            annotators=self._annotators,
            orders=ORDERS,
            exports=list(EXPORTS),
            view=view,
            blind=blind,
            query=self._asked(view),
            key=secrets.token_urlsafe(12),
            version=version,
            total=len(items),
            rows=session.rows(listed, reviewer, blind=blind),
            row_urls=[self._address(view, item=row, blind=blind) for row in listed.tolist()],
            answer_url="/answer" + self._address(view, blind=blind)[1:],
        )

    def _view(self, request: Request) -> View:
        asked, crowd = request.query_params, self.session.crowd
        order: Any = asked.get("order", "doubt")
        check_value("order", order, Order, DataError)
        return View(
            order, _number(asked.get("class"), crowd.n_classes), _number(asked.get("annotator"), crowd.n_annotators)
        )

    def _asked(self, view: View) -> dict[str, Any]:
        """A view as parameters of an address."""
        asked = {"order": view.order if view.order != "doubt" else None, "class": view.of_class}
        asked["annotator"] = view.of_annotator
        return {name: value for name, value in asked.items() if value is not None}

    def _address(self, view: View, *, item: int | None = None, blind: bool = False) -> str:
        asked = self._asked(view) | ({"item": item} if item is not None else {}) | ({"blind": 1} if blind else {})
        return "/?" + urlencode(asked) if asked else "/"


def class_keys(names: Sequence[str]) -> list[str | None]:
    """A key for every class: its own name where all names are keys, else one after the other, as far as they go.

    >>> class_keys(["cat", "dog"]), class_keys(["0", "1"])
    (['1', '2'], ['0', '1'])
    """
    own = [name.lower() for name in names]
    if len(set(own)) == len(own) and all(len(name) == 1 and name in KEYS for name in own):
        return list(own)
    return [KEYS[code] if code < len(KEYS) else None for code in range(len(names))]


def percent(share: float) -> str:
    """A share in words, with a digit more near the ends; never 0 or 100 % for what is only close to it.

    >>> percent(0.971), percent(0.996), percent(0.99999), percent(1.0), percent(0.0004)
    ('97 %', '99.6 %', '>99.9 %', '100 %', '<0.1 %')
    """
    return headline.percent(share).replace("%", " %")


def _form(body: bytes) -> dict[str, str]:
    """The fields of a form; of those that are given several times, the last."""
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=FIELDS)
    except ValueError as error:
        raise DataError(f"the form has more than {FIELDS} fields") from error
    return {name: values[-1] for name, values in fields.items()}


def _blind(request: Request) -> bool:
    """Whether what the crowd says is hidden until the reviewer asks for it."""
    return "blind" in request.query_params


def _number(text: str | None, below: int | None = None) -> int | None:
    """A whole number from an address or a form; None if it is none, or too large."""
    if text is None or not re.fullmatch(r"[0-9]{1,12}", text):
        return None
    value = int(text)
    return value if below is None or value < below else None
