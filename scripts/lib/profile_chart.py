"""A figure of matplotlib as separate pictures and as part of the page (SVG). In the page it uses the page's
colours, light or dark, and carries its values, which profile.js shows at the pointer."""
import html
import io
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

INK, GRID = "#222222", "#dddddd"
# Colours that colour-blind readers can distinguish (Okabe and Ito).
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888"]
# In the page each of these is a variable of its style.
VARIABLES = {INK: "currentColor", GRID: "var(--grid)", **{c: f"var(--c{i})" for i, c in enumerate(COLORS)}}
MOST_POINTS = 160  # of a series that show their values
# Of the separate pictures. A document takes the last two at any size. They have no date, so that equal results make
# equal files.
FORMATS = ("png", "svg", "pdf")

plt.rcParams.update({
    "svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "rrdk", "font.family": "sans-serif", "font.size": 9,
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.titlesize": 10, "legend.frameon": False})


class Chart:
    """A figure with a name. In the page its series can be hidden, and its points show their values."""

    def __init__(self, name, title, figure):
        self.name, self.title, self.figure = name, title, figure
        self.series, self.points, self.parts = [], [], 0

    def number(self, series):
        if series not in self.series:
            self.series.append(series)
        return self.series.index(series)

    def add(self, series, *artists):
        """Adds artists to a series, whose artists are hidden and shown together."""
        for artist in artists:
            artist.set_gid(f"{self.name}-s{self.number(series)}-{self.parts}")
            self.parts += 1

    def tell(self, axis, series, points, most=MOST_POINTS):
        """Adds points with values: x, y in the axis' units, and their meaning in words."""
        step = max(1, -(-len(points) // most))
        self.points += [(axis, x, y, self.number(series), text) for x, y, text in points[::step]]

    def legend(self, legend):
        for text in legend.get_texts():
            if text.get_text() in self.series:
                text.set_gid(f"{self.name}-l{self.number(text.get_text())}")

    def save(self, folder):
        """Writes the pictures; returns the page's SVG and, for profile.js, the points in its coordinates."""
        self.figure.savefig(folder / f"{self.name}.png", dpi=144, facecolor="white")
        self.figure.set_layout_engine("none")  # it is laid out by now, which takes longer than to draw it
        self.figure.savefig(folder / f"{self.name}.pdf", metadata={"CreationDate": None})
        self.figure.set_dpi(72)
        text = io.StringIO()
        self.figure.savefig(text, format="svg", dpi=72, transparent=True, metadata={"Date": None, "Creator": None})
        (folder / f"{self.name}.svg").write_text(text.getvalue(), encoding="utf-8")
        height = self.figure.get_size_inches()[1] * 72
        points = []
        for axis, x, y, series, words in self.points:
            at = axis.transData.transform((x, y))
            points.append([round(float(at[0]), 1), round(float(height - at[1]), 1), series, words])
        plt.close(self.figure)
        return in_page(text.getvalue(), self.name, self.title), {"series": self.series, "points": points}


def in_page(svg, name, title):
    """Returns the SVG without what would affect the rest of the page: global styles, and names that other charts use."""
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    for color, variable in VARIABLES.items():
        svg = svg.replace(color, variable)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", svg)
    svg = re.sub(r"(?<=[\"#(])(?=(?:m|p|C)[0-9a-f]{8,})", f"{name}-", svg)
    svg = re.sub(rf' id="(?!{name}-)[^"]*"', "", svg)
    width = re.search(r'viewBox="0 0 ([0-9.]+)', svg)[1]
    head = f'<svg class="chart" style="max-width: {float(width) * 1.6:.0f}px" id="{name}-chart" role="img" ' \
           f'aria-label="{html.escape(title)}" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox='
    return re.sub(r"<svg [^>]*?viewBox=", head, svg, count=1)
