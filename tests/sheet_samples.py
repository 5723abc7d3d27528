"""Small spreadsheets, made by hand: what a program would write, and what no program should."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

Rows = Sequence[Sequence[Any]]
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_ODS = "urn:oasis:names:tc:opendocument:xmlns:"


def packed(parts: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            kind = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED  # by which it is told
            archive.writestr(name, content, kind)
    return file.getvalue()


def xlsx_parts(sheets: Mapping[str, Rows]) -> dict[str, str]:
    """The files in an xlsx file; texts are shared."""
    texts = list(dict.fromkeys(str(cell) for rows in sheets.values() for row in rows for cell in row if _text(cell)))
    names = "".join(
        f'<sheet name="{escape(name)}" sheetId="{k}" r:id="rId{k}"/>' for k, name in enumerate(sheets, start=1)
    )
    kind = f"{_OFFICE}/worksheet"
    relations = "".join(
        f'<Relationship Id="rId{k}" Type="{kind}" Target="worksheets/sheet{k}.xml"/>' for k in range(1, len(sheets) + 1)
    )
    shared = f'<Relationship Id="rId99" Type="{_OFFICE}/sharedStrings" Target="sharedStrings.xml"/>'
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="rId1" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_RELATIONS}">{relations}{shared}</Relationships>',
        "xl/sharedStrings.xml": f'<sst xmlns="{_MAIN}">'
        + "".join(f'<si><t xml:space="preserve">{escape(text)}</t></si>' for text in texts)
        + "</sst>",
    }
    for k, rows in enumerate(sheets.values(), start=1):
        lines = "".join(
            f'<row r="{y}">' + "".join(_cell(cell, f"{chr(64 + x)}{y}", texts) for x, cell in enumerate(row, start=1))
            + "</row>"
            for y, row in enumerate(rows, start=1)
        )  # fmt: skip
        parts[f"xl/worksheets/sheet{k}.xml"] = f'<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>'
    return parts


def xlsx(sheets: Mapping[str, Rows]) -> bytes:
    return packed(xlsx_parts(sheets))


def ods(sheets: Mapping[str, Rows], **repeats: int) -> bytes:
    """An ods file; ``columns`` and ``rows`` say how often its last cell and row are repeated."""
    tables = ""
    for name, rows in sheets.items():
        lines = [[_ods_cell(cell) for cell in row] for row in rows]
        if repeats:
            lines[-1][-1] = lines[-1][-1].replace(
                "<table:table-cell", f'<table:table-cell table:number-columns-repeated="{repeats["columns"]}"', 1
            )
        made = ["<table:table-row>" + "".join(line) + "</table:table-row>" for line in lines]
        if repeats:
            made[-1] = made[-1].replace(
                "<table:table-row>", f'<table:table-row table:number-rows-repeated="{repeats["rows"]}">', 1
            )
        tables += f'<table:table table:name="{escape(name)}">{"".join(made)}</table:table>'
    spaces = " ".join(f'xmlns:{name}="{_ODS}{name}:1.0"' for name in ("office", "table", "text"))
    content = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document-content {spaces}><office:body><office:spreadsheet>'
        f"{tables}</office:spreadsheet></office:body></office:document-content>"
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    entry = f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/>'
    manifest = f'<manifest:manifest xmlns:manifest="{_ODS}manifest:1.0">{entry}</manifest:manifest>'
    return packed({"mimetype": kind, "META-INF/manifest.xml": manifest, "content.xml": content})


def _text(cell: Any) -> bool:
    return isinstance(cell, str) and bool(cell)


def _cell(cell: Any, place: str, texts: list[str]) -> str:
    if cell is None or cell == "":
        return ""
    if _text(cell):
        return f'<c r="{place}" t="s"><v>{texts.index(cell)}</v></c>'
    return f'<c r="{place}"><v>{cell}</v></c>'


def _ods_cell(cell: Any) -> str:
    if cell is None or cell == "":
        return "<table:table-cell/>"
    if _text(cell):
        return f'<table:table-cell office:value-type="string"><text:p>{escape(cell)}</text:p></table:table-cell>'
    return (
        f'<table:table-cell office:value-type="float" office:value="{cell}"><text:p>{cell}</text:p></table:table-cell>'
    )
