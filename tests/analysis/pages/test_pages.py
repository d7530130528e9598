"""All pages in a real Chromium: nothing fetched, no complaint, all of it reached by pointer and by keys.

Screenshots lie in build/screenshots afterwards, for a person to look at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.journal.events import Origin
from analysis.comparing.comparison import compare
from analysis.comparing.published import published
from analysis.comparing.scaling import scaling
from analysis.pages.comparisons import comparison_html, scaling_html
from analysis.pages.report import report_html
from analysis.readings.judgement import Judged, examine
from analysis.submissions.ranking import rank
from tests.analysis.packages import make
from tests.analysis.pages.shown import Shown
from tests.analysis.pages.test_report import HOSTILE
from tests.house.tree import ROOT
from tests.journals import CIFAR, Machine, resized, write_run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SCREENSHOTS = ROOT / "build" / "screenshots"
SCREENS = [(1280, "light"), (768, "dark"), (400, "light")]
"""Screens of a desk, a tablet and a telephone; a scheme changes colours and no place."""
MOST_ELEMENTS = 60_000
"""Elements of the page of 2000 trials; it has 49,700."""
LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3, of text
FOCUSABLE = "a[href], button, select, summary, [tabindex='0']"


@pytest.fixture(scope="module")
def site(judged: Judged, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of page, in one folder."""
    folder = tmp_path_factory.mktemp("site")
    studied = tmp_path_factory.mktemp("study")
    runs = [
        write_run(studied / f"run-{size}", resized(CIFAR, 1.0), Machine(groups=size, random_seed=size))
        for size in (1, 2, 4)
    ]
    study = [examine(run) for run in runs]
    texts = {
        "report.html": report_html(judged),
        "scaling.html": scaling_html(scaling(study), study, published(study[0])),
        "compare.html": comparison_html(compare(study[0], study[1])),
    }
    machines = [Machine(groups=size, origin=Origin.SIMULATED) for size in (1, 2)]
    unmeasured = [
        examine(write_run(studied / f"simulated-{one.groups}", resized(CIFAR, 1.0), one)) for one in machines
    ]
    texts |= {
        "report-simulated.html": report_html(unmeasured[0]),
        "scaling-simulated.html": scaling_html(scaling(unmeasured), unmeasured, published(study[0])),
        "compare-simulated.html": comparison_html(compare(study[0], unmeasured[0])),
    }
    packages = tmp_path_factory.mktemp("packages")
    for run, name in zip(runs, ("System A", HOSTILE, "System C")):
        make(packages / f"{run.directory.name}.tar.gz", run, system_name=name)
    (packages / "broken.tar.gz").write_bytes(b"no archive")
    rank(sorted(packages.iterdir()), {}, texts.__setitem__, lambda text: None)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


MARKED = ("report-simulated", "scaling-simulated", "compare-simulated")
PAGES = ("report", "scaling", "compare", "index", "scaling-simulated")
"""One of each layout, and one with a mark."""


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_it_fits_its_window(
    name: str, width: int, scheme: str, site: Path, show: Callable[..., Shown]
) -> None:
    page = show(site / f"{name}.html", width, color_scheme=scheme, device_scale_factor=2).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
    for plot in page.locator(".plot").all():
        visible = [svg for svg in plot.locator(":scope > svg").all() if svg.is_visible()]
        assert len(visible) == 1
        box = visible[0].bounding_box()
        assert 0 < box["width"] <= width
        assert box["height"] > 40
        sizes = visible[0].evaluate(
            "svg => [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect().height)"
        )
        assert min(sizes) >= 11  # pixels of a line of text that can be read


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(scheme: str, site: Path, show: Callable[..., Shown]) -> None:
    page = show(site / "report.html", color_scheme=scheme).page
    colours = page.evaluate(
        """() => Object.fromEntries(["ink", "soft", "paper", "green", "red", "blue"].map(name => {
             const probe = document.createElement("i");
             probe.style.color = `var(--${name})`;
             document.body.append(probe);
             return [name, getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number)];
           }))"""
    )
    for name in ("ink", "soft", "green", "red", "blue"):
        assert contrast(colours[name], colours["paper"]) >= LEAST_CONTRAST, name


def contrast(first: list[float], second: list[float]) -> float:
    """WCAG's ratio of two colours in sRGB."""

    def luminance(colour: list[float]) -> float:
        parts = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def column(page: Any, table: str, place: int) -> list[str]:
    cells = page.locator(f"{table} tbody tr:not([hidden]) > :nth-child({place})").all()
    return [cell.get_attribute("data-key") or cell.inner_text() for cell in cells]


@pytest.mark.parametrize(("width", "says"), [(1280, "none"), (400, '"More columns: scroll sideways →"')])
def test_a_table_that_is_wider_than_the_screen_says_so(
    width: int, says: str, site: Path, show: Callable[..., Shown]
) -> None:
    page = show(site / "index.html", width).page
    box = page.locator(".scroll").first
    page.wait_for_function(
        "document.querySelector('.scroll').classList.contains('wider') || innerWidth > 400"
    )
    assert box.evaluate("box => getComputedStyle(box, '::before').content") == says
    assert (box.evaluate("box => box.scrollWidth > box.clientWidth + 1")) is (width == 400)


def test_a_press_on_a_heading_sorts(site: Path, show: Callable[..., Shown]) -> None:
    page = show(site / "report.html").page
    page.locator("#trials-table summary").click()
    errors = page.locator("#trials-table th", has_text="validation error")
    errors.locator("button").click()
    falling = [float(cell) for cell in column(page, "#trials-table", 5) if cell]
    assert falling == sorted(falling, reverse=True)
    assert errors.get_attribute("aria-sort") == "descending"
    errors.locator("button").press("Enter")
    rising = [float(cell) for cell in column(page, "#trials-table", 5) if cell]
    assert rising == falling[::-1]
    page.locator("#trials-table th button", has_text="morphism").press("Space")
    words = column(page, "#trials-table", 3)
    assert words == sorted(words, key=str.casefold)


def test_a_table_is_copied(site: Path, show: Callable[..., Shown]) -> None:
    shown = show(site / "report.html", permissions=["clipboard-read", "clipboard-write"])
    page = shown.page
    page.locator("#error summary").click()
    page.locator("#error .copy").click()
    page.locator("#error .copy", has_text="Copied").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.splitlines()[0] == "time\ttrial\tvalidation error"
    assert text.count("\n") == page.locator("#error tbody tr").count()


@pytest.mark.parametrize("name", MARKED)
def test_the_mark_stays_in_sight_and_is_copied(name: str, site: Path, show: Callable[..., Shown]) -> None:
    page = show(site / f"{name}.html", permissions=["clipboard-read", "clipboard-write"]).page
    page.locator(".copy:visible").last.click()  # scrolls down to it
    page.locator(".copy", has_text="Copied").wait_for()
    assert page.evaluate("scrollY") > 0
    assert 0 <= page.locator(".mark").bounding_box()["y"] < 100
    assert page.evaluate("navigator.clipboard.readText()").startswith("SIMULATED: ")
    assert page.title().startswith("SIMULATED: ")
    colours = page.locator(".mark").evaluate(
        """one => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]
                    .map(colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number))"""
    )
    assert contrast(*colours) >= LEAST_CONTRAST


def test_what_is_to_be_typed_looks_so_and_what_is_copied_is_no_formula(
    site: Path, show: Callable[..., Shown]
) -> None:
    page = show(site / "report.html").page
    assert page.locator("footer code").inner_text() == "aiperf-hpc validate"
    assert "`" not in page.locator("body").evaluate("body => body.innerText")
    cells = ["=1+1", "@x", "-2+3+cmd|' /C x'!A0", "+1.5 %", "-0.3 ms", "12"]
    assert page.evaluate("cells => cells.map(harmless)", cells) == [
        *(f"'{cell}" for cell in cells[:3]),
        *cells[3:],
    ]


@pytest.mark.parametrize("name", PAGES)
def test_the_keyboard_reaches_everything(name: str, site: Path, show: Callable[..., Shown]) -> None:
    page = show(site / f"{name}.html").page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.evaluate(
        """selector => { [...document.querySelectorAll(selector)].filter(e => e.getClientRects().length)
                           .forEach((e, i) => { e.dataset.stop = i; }); }""",
        FOCUSABLE,
    )
    wanted = page.locator("[data-stop]").count()
    seen = set()
    for _ in range(wanted + 10):
        page.keyboard.press("Tab")
        stop = page.evaluate("document.activeElement.dataset.stop ?? null")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert stop is None or outline != "none"
        seen.add(stop)
    assert wanted > 0
    assert len(seen - {None}) == wanted


def test_arrow_keys_walk_through_a_figure(site: Path, show: Callable[..., Shown]) -> None:
    page = show(site / "report.html").page
    for name in ("throughput", "lineage", "groups", "time", "layers"):
        plot, tip = page.locator(f"#{name} .plot"), page.locator(f"#{name} .tip")
        plot.focus()
        assert tip.is_hidden()
        page.keyboard.press("ArrowRight")
        first = tip.inner_text()
        assert first.strip()
        page.keyboard.press("ArrowRight")
        assert tip.inner_text() != first
        page.keyboard.press("ArrowLeft")
        assert tip.inner_text() == first
        page.keyboard.press("Escape")
        assert tip.is_hidden()


@pytest.mark.parametrize("width", [1280, 400])
def test_pointing_at_a_trial_tells_it_and_its_ancestors(
    width: int, site: Path, judged: Judged, show: Callable[..., Shown]
) -> None:
    page = show(site / "report.html", width).page
    best = judged.replay.best
    assert best is not None
    plot = page.locator("#lineage .plot")
    plot.scroll_into_view_if_needed()
    place = plot.evaluate(
        """(plot, number) => {
             const data = JSON.parse(plot.querySelector("script").textContent);
             const svg = [...plot.querySelectorAll(":scope > svg")].find(s => s.getClientRects().length);
             const marks = data[svg.classList.contains("narrow") ? "narrow" : "wide"];
             const i = data.names.indexOf(number), box = svg.getBoundingClientRect();
             const scale = box.width / svg.viewBox.baseVal.width;
             return [box.left + marks.left[i] * scale, box.top + marks.height[i] * scale];
           }""",
        best.number,
    )
    page.mouse.move(*place)
    tip = page.locator("#lineage .tip")
    assert tip.inner_text().startswith(f"Trial {best.number}, complete")
    generations = page.locator("#lineage .ancestors").get_attribute("points").split()
    lineage, parent = 1, best.trial.parent
    while parent is not None:
        lineage, parent = lineage + 1, judged.replay.trials[parent].trial.parent
    assert len(generations) == lineage
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    page.mouse.move(0, 0)
    assert tip.is_hidden()


def test_it_prints(site: Path, show: Callable[..., Shown]) -> None:
    page = show(site / "report.html", color_scheme="dark").page
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert (
        page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()")
        == "#fff"
    )
    pdf = page.pdf(format="A4")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / "report.pdf").write_bytes(pdf)
    assert pdf.startswith(b"%PDF")
    assert 3 <= pdf.count(b"/Type /Page\n") <= 30 or pdf.count(b"/Type /Page") > 3
    page.set_viewport_size({"width": 680, "height": 1009})  # A4 within its margins
    height = page.evaluate("document.querySelector('.lead').getBoundingClientRect().bottom + scrollY")
    assert height <= 271 * 96 / 25.4  # the head and its figure are one page


@pytest.mark.parametrize("name", PAGES)
def test_no_column_is_lost_on_paper(name: str, site: Path, show: Callable[..., Shown]) -> None:
    page = show(site / f"{name}.html", 680).page  # A4 within its margins
    page.emulate_media(media="print")
    widths = page.evaluate("[...document.querySelectorAll('table')].map(one => one.scrollWidth)")
    assert 0 < max(widths) <= 680


def test_a_ranking_is_filtered_and_sorted_and_hostile_names_do_nothing(
    site: Path, show: Callable[..., Shown]
) -> None:
    """An alert would stop the page; a handler would show in the console."""
    shown = show(site / "index.html")
    shown.page.on("dialog", lambda dialog: shown.complaints.append(dialog.message))
    page = shown.page
    assert HOSTILE in page.locator(".ranking td.system").all_inner_texts()[1]
    assert page.locator(".ranking img").count() == 0
    assert page.locator("output").inner_text() == "3 shown"
    page.locator("select[name=size]").select_option("up to 8 devices")
    assert page.locator("output").inner_text() == "3 shown"
    page.locator("select[name=vendor]").select_option("NVIDIA")
    assert page.locator(".ranking tbody tr:not([hidden])").count() == 3
    devices = page.locator(".ranking th button", has_text=re.compile("^devices$"))
    devices.click()
    assert column(page, ".ranking", 7) == ["8", "4", "2"]
    devices.click()
    assert column(page, ".ranking", 7) == ["2", "4", "8"]
    assert page.locator("#refused").inner_text().count("broken.tar.gz") >= 1


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = replace(CIFAR, limits=replace(CIFAR.limits, minutes=0, max_trials=2000))
    machine = Machine(groups=512, devices_per_group=8)
    run = write_run(tmp_path_factory.mktemp("large") / "large", config, machine)
    path = run.directory / "report.html"
    path.write_text(report_html(examine(run)), encoding="utf-8")
    return path


@pytest.mark.timeout(900)
def test_2000_trials_of_512_groups_open_fast_and_stay_fluid(large: Path, show: Callable[..., Shown]) -> None:
    """By what a browser has to do for it, which is the same on any machine."""
    assert large.stat().st_size < 5_000_000
    page = show(large).page
    assert page.evaluate("document.getElementsByTagName('*').length") < MOST_ELEMENTS
    plot = page.locator("#lineage .plot")
    plot.scroll_into_view_if_needed()
    moves = """plot => {
      const box = plot.getBoundingClientRect(), tip = plot.querySelector(".tip");
      const seen = new MutationObserver(() => {});
      seen.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
      let changed = 0, seconds = 0, least = 0;
      for (let i = 0; i < 200; i++) {
        const x = box.left + box.width * (i * 0.618 % 1), y = box.top + box.height * i / 200;
        const begun = performance.now();
        plot.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
        const ended = performance.now();
        changed = Math.max(changed, seen.takeRecords().length);
        tip.style.left = `${i}px`;
        tip.offsetWidth;
        least += performance.now() - ended;
        seconds += ended - begun;
        seen.takeRecords();
      }
      return [changed, seconds / least];
    }"""
    counters = page.context.new_cdp_session(page)
    counters.send("Performance.enable")

    def layouts() -> float:
        metrics = counters.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "LayoutCount")

    before = layouts()
    changed, times_least = plot.evaluate(moves)
    assert changed <= 10
    assert layouts() - before <= 2 * 200
    assert times_least < 20, "times as long as the smallest change takes to be laid out"
