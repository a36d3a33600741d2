"""Write a diagram as SVG, as an HTML page, or as a DOT file for other tools."""

from __future__ import annotations

from html import escape

from substrate.graph.diagram.diagram_model import Edge, Node, Picture
from substrate.graph.diagram.layout_layers import lay_out

_BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 34, 26, 64, 28
_CHAR, _PAD, _LONGEST = 7.1, 22, 34
_FILL = {"": "#eef3fb", "changed": "#fde2e0", "impacted": "#fff1cf"}
_LINE = {"": "#5b7db1", "changed": "#c0392b", "impacted": "#b7791f"}


class _Box:
    def __init__(self, x: float, y: float, width: float) -> None:
        self.x, self.y, self.width = x, y, width

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def to_svg(picture: Picture) -> str:
    """A standalone drawing."""
    boxes, width, height = _boxes(picture)
    body = [_edge(edge, boxes) for edge in picture.edges]
    body += [_node(node, boxes[node.name]) for node in picture.nodes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" role="img">\n'
        f"<title>{escape(picture.title)}</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9"'
        ' markerUnits="userSpaceOnUse"'
        ' markerHeight="9" orient="auto"><path d="M0 0 8 4 0 8z" fill="#8a94a6"/></marker></defs>\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _boxes(picture: Picture) -> tuple[dict[str, _Box], float, float]:
    names = [node.name for node in picture.nodes]
    spots = lay_out(names, [(edge.source, edge.target) for edge in picture.edges])
    rows: dict[int, list[str]] = {}
    for name in sorted(names, key=lambda n: spots[n]):
        rows.setdefault(spots[name].layer, []).append(name)
    widths = {node.name: len(_label(node)) * _CHAR + _PAD for node in picture.nodes}
    spans = {r: sum(widths[n] + _GAP_X for n in row) - _GAP_X for r, row in rows.items()}
    total = max(spans.values(), default=200.0) + 2 * _MARGIN
    boxes = {}
    for r, row in rows.items():
        x = (total - spans[r]) / 2
        for name in row:
            boxes[name] = _Box(x, _MARGIN + r * (_BOX_HEIGHT + _GAP_Y), widths[name])
            x += widths[name] + _GAP_X
    height = 2 * _MARGIN + len(rows) * (_BOX_HEIGHT + _GAP_Y) - _GAP_Y
    return boxes, total, max(height, 80.0)


def _label(node: Node) -> str:
    name = node.name if len(node.name) <= _LONGEST else "…" + node.name[1 - _LONGEST :]
    return f"{name} ({node.files})" if node.files > 1 else name


def _node(node: Node, box: _Box) -> str:
    hover = "\n".join((node.name, *node.notes[:12]))
    more = len(node.notes) - 12
    hover += f"\n… and {more} more" if more > 0 else ""
    return (
        f'<g class="node" data-name="{escape(node.name)}"><title>{escape(hover)}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{_BOX_HEIGHT}"'
        f' rx="6" fill="{_FILL[node.state]}" stroke="{_LINE[node.state]}"/>'
        f'<text x="{box.middle:.1f}" y="{box.y + 22:.1f}" text-anchor="middle"'
        f' font-family="ui-monospace, monospace" font-size="12" fill="#1d2733">'
        f"{escape(_label(node))}</text></g>"
    )


def _edge(edge: Edge, boxes: dict[str, _Box]) -> str:
    a, b = boxes[edge.source], boxes[edge.target]
    downwards = b.y > a.y
    y1 = a.y + _BOX_HEIGHT if downwards else a.y
    y2 = b.y - 2 if downwards else b.y + _BOX_HEIGHT + 2
    if a.y == b.y:
        y1 = y2 = a.y + _BOX_HEIGHT
    bend = 34 if downwards or a.y == b.y else -34
    after = y2 + bend if a.y == b.y else y2 - bend
    thick = min(1 + edge.weight**0.5 * 0.4, 4)
    title = f"{edge.source} → {edge.target}: {edge.weight}"
    return (
        f'<path class="edge" data-from="{escape(edge.source)}" data-to="{escape(edge.target)}"'
        f' d="M{a.middle:.1f} {y1:.1f}C{a.middle:.1f} {y1 + bend:.1f} {b.middle:.1f} {after:.1f}'
        f' {b.middle:.1f} {y2:.1f}" fill="none" stroke="#8a94a6" stroke-width="{thick:.1f}"'
        f' opacity="0.75" marker-end="url(#tip)"><title>{escape(title)}</title></path>'
    )


def to_dot(picture: Picture) -> str:
    """For Graphviz and similar tools."""
    lines = ["digraph graph_of_modules {", "  node [shape=box, style=filled];"]
    for node in picture.nodes:
        fill = _FILL[node.state]
        lines.append(
            f"  {_quoted(node.name)} [label={_quoted(_label(node))}, fillcolor={_quoted(fill)}];"
        )
    lines += [
        f"  {_quoted(edge.source)} -> {_quoted(edge.target)} [label={_quoted(str(edge.weight))}];"
        for edge in picture.edges
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def to_html(picture: Picture, what: str) -> str:
    """One self-contained file: the drawing, a legend and a table."""
    legend = {node.state for node in picture.nodes}
    keys = [
        f'<span class="key"><i style="background:{_FILL[s]};border-color:{_LINE[s]}"></i>'
        f"{label}</span>"
        for s, label in (("changed", "changed"), ("impacted", "uses what changed"), ("", "module"))
        if s in legend
    ]
    rows = [
        f'<tr data-name="{escape(node.name)}"><td>{escape(node.name)}</td>'
        f"<td>{escape(node.state) or node.files}</td>"
        f"<td>{'<br>'.join(escape(note) for note in node.notes) or _ways(node, picture)}</td></tr>"
        for node in picture.nodes
    ]
    head = "<th>state</th><th>what</th>" if legend - {""} else "<th>files</th><th>imports</th>"
    return _PAGE.format(
        title=escape(f"{what}: {picture.title}"),
        what=escape(what),
        told=escape(picture.title),
        legend=" ".join([*keys, '<span class="key">an arrow points at what is used</span>']),
        svg=to_svg(picture),
        head=head,
        rows="\n".join(rows) or '<tr><td colspan="3">nothing to show</td></tr>',
    )


def _ways(node: Node, picture: Picture) -> str:
    out = sum(edge.weight for edge in picture.edges if edge.source == node.name)
    back = sum(edge.weight for edge in picture.edges if edge.target == node.name)
    return f"imported {back} times by others; imports others {out} times"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 24px; color: #1d2733; background: #fff; }}
h1 {{ font-size: 20px; margin: 0; }} p {{ margin: 4px 0 12px; color: #526070; }}
.key {{ margin-right: 18px; color: #526070; }}
.key i {{ display: inline-block; width: 14px; height: 14px; border: 1px solid; border-radius: 3px;
 margin-right: 6px; vertical-align: -2px; }}
.picture {{ overflow: auto; border: 1px solid #d9dfe8; border-radius: 8px; margin: 12px 0;
 max-height: 75vh; }}
.picture svg {{ display: block; margin: auto; max-width: 100%; height: auto; }}
.node, tr[data-name] {{ cursor: pointer; }}
tr[data-name]:hover {{ background: #f4f7fb; }}
.dim {{ opacity: 0.12 !important; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; }}
td, th {{ text-align: left; vertical-align: top; padding: 5px 10px; }}
tr {{ border-top: 1px solid #e6eaf0; }}
td:first-child {{ font-family: ui-monospace, monospace; }}
</style></head><body>
<h1>{what}</h1>
<p>{told}. Point at a box or a line of the table to see only what it uses and what uses it; click to
hold it, click beside it to let go.</p>
<div>{legend}</div>
<div class="picture">{svg}</div>
<table><thead><tr><th>path</th>{head}</tr></thead><tbody>
{rows}
</tbody></table>
<script>
const nodes = [...document.querySelectorAll(".node")];
const edges = [...document.querySelectorAll(".edge")];
function only(name) {{
  const near = new Set([name]);
  for (const e of edges) {{
    const mine = e.dataset.from === name || e.dataset.to === name;
    e.classList.toggle("dim", name !== null && !mine);
    if (mine) {{ near.add(e.dataset.from); near.add(e.dataset.to); }}
  }}
  for (const n of nodes) n.classList.toggle("dim", name !== null && !near.has(n.dataset.name));
}}
let held = null;
for (const n of [...nodes, ...document.querySelectorAll("tr[data-name]")]) {{
  n.addEventListener("mouseenter", () => held === null && only(n.dataset.name));
  n.addEventListener("mouseleave", () => held === null && only(null));
  n.addEventListener("click", (event) => {{
    event.stopPropagation();
    held = held === n.dataset.name ? null : n.dataset.name;
    only(held === null ? n.dataset.name : held);
  }});
}}
document.addEventListener("click", () => {{ held = null; only(null); }});
</script></body></html>
"""
