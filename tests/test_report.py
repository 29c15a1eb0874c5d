"""The page: one file, nothing fetched, nothing of an input run; in a real browser where there is one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, found

from hwmodel.cli import main
from hwmodel.report.html import html
from hwmodel.report.markup import seconds
from hwmodel.report.page import page_from, page_of
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError

QUICKSTART = "rubin_lpx_deepseek_v3"
EVIL = "<script>window.pwned=1</script>\"'><img src=x onerror=window.pwned=1>&amp;"
CSS = Path(__file__).parents[1] / "hwmodel" / "report" / "page.css"
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))"
VOID = {"meta", "link", "input", "img", "br"}


class Checked(HTMLParser):
    """Balanced tags, what they are, and every address."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(name)
        if name not in VOID:
            self.open.append(name)
        for key, value in attributes:
            assert not key.startswith("on"), f"{name} has {key}"
            if key in ("src", "href", "xlink:href", "action", "data", "srcset"):
                self.addresses.append(str(value))
            if key == "id":
                self.ids.append(str(value))

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(text: str) -> Checked:
    parser = Checked()
    parser.feed(text)
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    levels = [int(tag[1]) for tag in parser.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(below - above <= 1 for above, below in pairwise(levels)), "a heading skips a level"
    assert re.search(r"[-+]0\.00 %", parser.text) is None, "what moves nothing is listed"
    assert parser.tags.count("script") == 1
    assert parser.tags.count("h1") == 1
    assert "img" not in parser.tags
    assert all(address.startswith(("#", "data:,")) for address in parser.addresses), parser.addresses
    targets = {address[1:] for address in parser.addresses if address.startswith("#")}
    assert targets <= set(parser.ids)
    return parser


def written(folder: Path, *args: str, status: int = 0) -> Path:
    page = folder / "page.html"
    with pytest.raises(SystemExit) as left:
        main(["report", *args, "--html", str(page)])
    assert left.value.code == status
    return page


def saved(folder: Path, name: str, capsys: pytest.CaptureFixture[str], *settings: str) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["run", name, "--json", *settings])
    found = json.loads(capsys.readouterr().out)
    (folder / "answer.json").write_text(json.dumps(found))
    return dict(found)


@pytest.mark.parametrize("name", catalog.names("scenarios"))
def test_every_scenario_makes_a_page(name: str) -> None:
    text = html(page_of(run(load_scenario(name))))
    parser = checked(text)
    assert len(text.encode()) < 2_000_000
    for words in ("Memory of one chip", "Bottlenecks, layer by layer", "Timeline", "Sources and doubts", "Inputs and versions"):
        assert words in parser.text
    assert parser.tags.count("table") >= 6
    assert parser.tags.count("details") >= 4


def test_the_front_says_where_the_best_plan_changes(tmp_path: Path) -> None:
    """Experts on LPUs are cheaper than EP72 from 183 tokens/s/user, as the first of the ten questions finds by another way."""
    parser = checked(written(tmp_path, "q01_gpu_alone", "--against", "q01_gpu_and_lpu").read_text())
    text = " ".join(parser.text.split())
    for words in ("Pareto front and crossovers", "tokens/s/chip over tokens/s/user", "USD/Mtok over tokens/s/user", "183.2"):
        assert words in text
    assert parser.ids.count("front-0") == parser.ids.count("front-1") == 1


def test_what_cannot_have_a_front_says_so(tmp_path: Path) -> None:
    floor = html(page_of(run(load_scenario("h100_llama_70b_decode"), ideal=True)))
    assert "A floor has no other plans" in checked(floor).text
    mixed = run(load_scenario("h100_llama_70b_decode", ["workload.phase=mixed", "workload.new_tokens=512"]))
    assert "A mixed step is not one of many batches" in checked(html(page_of(mixed))).text
    written(tmp_path, "h100_llama_70b_decode", "--against", "h100_llama_70b_prefill", status=2)
    written(tmp_path, "h100_llama_70b_decode", "--ideal", "--against", "h100_mixtral_decode", status=2)


def test_a_floor_and_a_plan_that_does_not_run() -> None:
    checked(html(page_of(run(load_scenario(QUICKSTART), ideal=True))))
    found = run(load_scenario("h100_llama_70b_decode", ["workload.batch=4000"]))
    parser = checked(html(page_of(found)))
    assert "does not run as planned" in parser.text
    assert found.reasons[0] in parser.text


def test_the_range_under_the_tpot_is_that_of_a_token_where_tokens_are_drafted() -> None:
    """Three tokens drafted, accepted with 0.8: a step makes 2.95 tokens, and so many times shorter are the ends as well."""
    drafts = "workload.speculative={draft: 3, acceptance: 0.8, method: free}"
    found = run(load_scenario("h100_llama_70b_decode", [drafts]))
    assert found.step.time_s / (found.step.tpot_s or 0) == pytest.approx(2.952)
    low, high = (seconds(end / 2.952) for end in (found.step.time_low_s, found.step.time_high_s))
    assert f"{low} to {high}" in checked(html(page_of(found))).text


def links(page: Path) -> set[str]:
    """Names of the formulas that a page leads to."""
    return {address.removeprefix("#why-") for address in checked(page.read_text()).addresses if address.startswith("#why-")}


def test_a_saved_answer_makes_the_page_of_a_live_one(
    tmp_path: Path, quickstart: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path, QUICKSTART, capsys)
    page = written(tmp_path, str(tmp_path / "answer.json"))
    assert page.read_text() == quickstart.read_text()
    assert len(links(page)) > 15


def test_a_saved_answer_of_a_changed_workload_is_asked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = saved(tmp_path, "h100_llama_70b_decode", capsys, "--set", "workload.batch=8", "--set", "cluster.pools.gpu.count=8")
    assert answer["pools"][0]["count"] == 8
    assert {"tpot", "cost", "step:low"} <= links(written(tmp_path, str(tmp_path / "answer.json")))


@pytest.mark.parametrize("change", ["numbers", "name", "path"])
def test_a_saved_answer_that_is_no_more_says_so(change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No formula that does not give the number beside it; the command for every headline instead."""
    answer = saved(tmp_path, QUICKSTART, capsys)
    if change == "numbers":
        answer["step"]["time_s"] *= 1 + 1e-6
    else:
        answer["scenario"] = "of_elsewhere; rm x" if change == "name" else "../answer"
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    page = written(tmp_path, str(tmp_path / "answer.json"))
    assert links(page) == set()
    parser = checked(page.read_text())
    assert "The page has no formulas: asked again, scenario " in parser.text
    assert ("gives other numbers now" if change == "numbers" else "is not found here") in parser.text
    name = QUICKSTART if change == "numbers" else "'of_elsewhere; rm x'" if change == "name" else "../answer"
    for total in ("step", "tpot", "throughput", "cost", "energy"):
        assert f"hwmodel explain {name} --op {total}" in parser.text
    assert "Roofline" in parser.text
    assert "A saved answer holds no schedule" in parser.text
    assert "A saved answer holds one plan at one batch" in parser.text


def test_an_own_scenario_beside_the_answer_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(catalog.find("scenarios", "h100_llama_70b_decode")).read_text().replace("batch: 16", "batch: 12")
    (tmp_path / "mine.yaml").write_text(text)
    assert saved(tmp_path, str(tmp_path / "mine.yaml"), capsys)["asked"]["workload"]["batch"] == 12
    assert {"tpot", "cost"} <= links(written(tmp_path, str(tmp_path / "answer.json")))


def test_crossovers_lead_to_the_points_between_which_they_lie() -> None:
    """By the page's own tables: the plan ahead below serves better just below the crossing, the other one just above."""
    page = page_of(run(load_scenario("q01_gpu_alone")), [load_scenario("q01_gpu_and_lpu")])
    assert page.tradeoff is not None
    rows = page.tradeoff["crossovers"]
    assert len(rows) >= 2
    text = html(page)
    parser = checked(text)
    for at, row in enumerate(rows):
        assert parser.addresses.count(f"#why-crossover:{at}") == 2  # the place and its range
        block = re.search(rf'<details id="why-crossover:{at}">.*?</details>', text, re.DOTALL)
        assert block is not None
        served: dict[str, list[tuple[float, float]]] = {}
        for line in re.findall(r"<tr><td.*?</tr>", block[0]):
            cells = [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", line)]
            served.setdefault(cells[0], []).append((float(cells[3].replace(",", "")), float(cells[6].replace(",", ""))))
        assert set(served) == set(row["between"])
        sign = -1 if "usd" in row["y"] else 1

        def worth(name: str, user: float, of: dict[str, list[tuple[float, float]]] = served, sign: int = sign) -> float:
            """What a plan gives at an interactivity: its next quicker batch serves."""
            return next((sign * value for at_, value in sorted(of[name]) if at_ >= user), -float("inf"))

        below, above = row["between"]
        slower, quicker = row["at"] * (1 - 2e-5), row["at"] * (1 + 2e-5)
        assert worth(below, slower) > worth(above, slower)
        assert worth(above, quicker) > worth(below, quicker)


def hostile(value: Any) -> Any:
    """Every text of a saved answer made hostile, keys of the contract and words that stand for a kind apart."""
    if isinstance(value, str):
        return value + EVIL
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    return [hostile(item) for item in value] if isinstance(value, list) else value


def test_nothing_of_a_saved_answer_becomes_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = saved(tmp_path, QUICKSTART, capsys)
    (tmp_path / "answer.json").write_text(json.dumps(hostile(answer)))
    text = written(tmp_path, str(tmp_path / "answer.json")).read_text()
    parser = checked(text)
    assert text.count("<script") == 1
    assert "window.pwned=1" in parser.text


def evil_scenario(folder: Path) -> Path:
    chip = {
        "kind": "gpu", "title": EVIL, "notes": EVIL, "unpublished": [EVIL], "peaks": {"bf16": "100 TFLOP/s"},
        "memory": [{"tier": "hbm", "capacity": "80 GB", "bandwidth": {"value": "1 TB/s", "range": ["0.5 TB/s", "2 TB/s"],
                    "status": "estimated", "source": EVIL}}],
        "execution": {"cores": 64, "launch": "1 us"}, "price": {"purchase": "10 USD", "source": EVIL},
        "power": {"tdp": "100 W", "source": EVIL},
    }  # fmt: skip
    scenario = {
        "title": EVIL, "question": EVIL, "model": "llama-3.1-8b", "workload": {"batch": 2, "context": 512},
        "cluster": {"pools": {"gpu": {"chip": chip, "count": 1}}},
    }  # fmt: skip
    path = folder / "evil <b>.yaml"
    path.write_text(json.dumps(scenario))
    return path


def test_nothing_of_a_scenario_becomes_markup(tmp_path: Path) -> None:
    path = str(evil_scenario(tmp_path))
    text = written(tmp_path, path, "--against", path).read_text()
    parser = checked(text)
    assert text.count("<script") == 1
    assert parser.text.count("window.pwned=1") > 3
    assert "evil <b>" in parser.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "is no JSON"),
        ("[1, 2]", "it has no scenario, feasible"),
        ('{"scenario": "x"}', "it has no feasible"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_other_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        page_from(path)


@pytest.mark.parametrize("key", ["step", "ops", "memory", "pools", "layers", "links"])
@pytest.mark.parametrize("value", ["text", None, 3, [3], {"a": 1}])
def test_broken_answers_are_told_as_such(key: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = saved(tmp_path, "h100_llama_70b_decode", capsys)
    (tmp_path / "answer.json").write_text(json.dumps({**answer, key: value}))
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "answer.json"), "--html", str(tmp_path / "page.html")])
    assert left.value.code == 2
    assert "is no whole answer" in capsys.readouterr().err


def test_settings_go_with_scenarios_only(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    written(tmp_path, str(tmp_path / "a.json"), "--set", "workload.batch=2", status=2)
    written(tmp_path, str(tmp_path / "a.json"), "--against", QUICKSTART, status=2)


def luminance(colour: str) -> float:
    full = colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])
    parts = [int(full[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_stands_out_from_its_ground(scheme: int) -> None:
    """WCAG 2.1: 4.5 for text, 3 for shapes that carry meaning beside their ground."""
    blocks = re.findall(r":root\{(.*?)\}", CSS.read_text(), re.DOTALL)
    colours = dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", blocks[scheme]))

    def contrast(one: str, other: str) -> float:
        bright, dark = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (bright + 0.05) / (dark + 0.05)

    for ground in ("bg", "card"):
        for ink in ("ink", "soft", "accent", "good", "bad", "warn"):
            assert contrast(ink, ground) >= 4.5, f"{ink} on {ground}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = found()
    if path is None:
        if os.environ.get("HWMODEL_BROWSER") == "needed":
            pytest.fail("no Chromium is installed, and HWMODEL_BROWSER says that it is needed")
        pytest.skip("no Chromium is installed (apt install chromium): the page is not tried in a browser")
    made = Browser(path, tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture
def fresh(browser: Browser) -> Browser:
    browser.events.clear()
    return browser


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("page"), QUICKSTART)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_the_page_opens_without_an_error(fresh: Browser, quickstart: Path, width: int, scheme: str) -> None:
    fresh.open(quickstart, width, scheme=scheme)
    assert fresh.wrong() == []
    assert [address for address in fresh.fetched() if not address.startswith("data:")] == [quickstart.as_uri()]
    assert fresh.run("document.querySelectorAll('table').length") >= 8
    assert fresh.run("document.querySelectorAll('svg.chart').length") >= 12
    assert fresh.run("document.documentElement.scrollWidth") <= width
    ground = fresh.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in re.findall(r"\d+", ground)[:3]) < 200) == (scheme == "dark")
    shapes = "Array.from(document.querySelectorAll('svg.chart')).filter(e => e.getBoundingClientRect().height < 30).length"
    assert fresh.run(shapes) == 0


def test_tables_sort_and_rows_open(fresh: Browser, quickstart: Path) -> None:
    fresh.open(quickstart)
    first = "document.querySelector('#ops-table tbody td').textContent"
    assert fresh.run(first) == "layer3.attention_decode"
    fresh.run("document.querySelectorAll('#ops-table th button')[4].click()")  # each, longest first
    assert fresh.run(first) == "head.logits"
    assert fresh.run("document.querySelectorAll('#ops-table th')[4].getAttribute('aria-sort')") == "descending"
    fresh.run("document.querySelectorAll('#ops-table th button')[4].click()")
    assert fresh.run(first) != "head.logits"
    fresh.run("document.querySelector('#ops-table button.more').click()")
    shown = "document.querySelector('#ops-table tr.why:not([hidden])').textContent"
    assert "time = " in fresh.run(shown)
    typed = "const f = document.getElementById('filter'); f.value = 'experts'; f.dispatchEvent(new Event('input'));"
    fresh.run(typed)
    left = "Array.from(document.querySelectorAll('#ops-table > tbody:not([hidden])')).map(b => b.rows[0].cells[0].textContent)"
    assert all("experts" in name for name in fresh.run(left))
    assert len(fresh.run(left)) == 4
    assert fresh.wrong() == []


def test_pictures_zoom_sort_and_speak(fresh: Browser, quickstart: Path) -> None:
    fresh.open(quickstart)
    chart = "document.querySelector('#layer-chart svg.chart')"
    fresh.run("document.querySelector('button[data-of=layer-chart][data-zoom=\"2\"]').click()")
    assert fresh.run(f"{chart}.getAttribute('width')") == "200%"
    fresh.run(f"{chart}.focus()")
    fresh.press("+")
    assert fresh.run(f"{chart}.getAttribute('width')") == "400%"
    fresh.press("ArrowRight")
    assert fresh.run("document.getElementById('said').textContent").startswith("layer 0: mla+ffn\n190.6 us")
    assert not fresh.run("document.getElementById('tip').hidden")
    fresh.run("document.querySelector('button[data-of=layer-chart][data-zoom=\"0\"]').click()")
    assert fresh.run(f"{chart}.getAttribute('width')") == "100%"
    fresh.run("document.querySelector('button[data-order=value]').click()")
    leftmost = "Array.from(document.querySelectorAll('.col')).find(e => parseFloat(e.getAttribute('x')) === 0).dataset.place"
    assert fresh.run(leftmost) == "3"
    fresh.run("document.querySelector('.dot').scrollIntoView({block: 'center', behavior: 'instant'})")
    fresh.run(PAINTED)
    box = fresh.run("(({x, y, width, height}) => [x + width / 2, y + height / 2])"
                    "(document.querySelector('.dot').getBoundingClientRect())")  # fmt: skip
    for shift in range(40):  # a busy machine paints the scrolled page late; until then the pointer is over something else
        fresh.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + shift % 2, y=box[1])
        fresh.run(PAINTED)
        if "FLOP/B" in fresh.run("document.getElementById('tip').textContent"):
            break
    assert "FLOP/B" in fresh.run("document.getElementById('tip').textContent")
    assert fresh.wrong() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_front_speaks_zooms_and_stays_inside(fresh: Browser, quickstart: Path, width: int) -> None:
    fresh.open(quickstart, width)
    chart = "document.querySelector('#front-0 svg.chart')"
    fresh.run(f"{chart}.focus()")
    fresh.press("ArrowRight")
    said = fresh.run("document.getElementById('said').textContent")
    assert said.startswith("as planned\nbatch 3,")
    assert "tokens/s/chip" in said
    fresh.press("+")
    assert fresh.run(f"{chart}.getAttribute('width')") == "200%"
    assert fresh.run(f"{chart}.querySelectorAll('.here').length") == 1  # the step of the page
    assert "the step of this page" in fresh.run(f"{chart}.querySelector('.here').dataset.tip")
    crossing = f"{chart}.querySelector('.mark.at').dataset.tip"
    assert "ahead below: " in fresh.run(crossing)
    outside = (
        f"(frame => Array.from(frame.querySelectorAll('circle')).filter(e => {{ const b = e.getBoundingClientRect(), "
        f"f = frame.getBoundingClientRect(); return b.left < f.left - 1 || b.right > f.right + 1 || b.top < f.top - 1 || "
        f"b.bottom > f.bottom + 1; }}).length)({chart})"
    )
    assert fresh.run(outside) == 0
    assert fresh.wrong() == []


def test_headlines_lead_to_their_formulas(fresh: Browser, quickstart: Path) -> None:
    fresh.open(quickstart)
    assert not fresh.run("document.getElementById('why-cost').open")
    fresh.run("document.querySelector('a.tile[href=\"#why-cost\"]').click()")
    fresh.run("new Promise(done => setTimeout(done, 100))")
    assert fresh.run("document.getElementById('why-cost').open")
    assert "usd_per_mtok = " in fresh.run("document.getElementById('why-cost').textContent")


def test_every_number_of_a_page_leads_to_its_formula(quickstart: Path) -> None:
    """Headlines, every tier in use, every pool, link, kind of layer and total are linked; every op opens its own formula."""
    text = quickstart.read_text()
    parser = checked(text)
    answer = run(load_scenario(QUICKSTART))
    led = {address.removeprefix("#why-") for address in parser.addresses if address.startswith("#why-")}
    wanted = {"step", "tpot", "throughput", "cost", "energy", "memory:gpu:hbm", "memory:lpx:sram"}
    wanted |= {f"pool:{row.pool}" for row in answer.pools} | {f"link:{row.source}>{row.target}" for row in answer.links}
    wanted |= {segment.name for segment in answer.placed.graph.segments}
    wanted |= {f"{of}:{end}" for of in ("step", "cost") for end in ("low", "high")}
    crossovers = {name for name in led if name.startswith("crossover:")}
    assert crossovers
    wanted |= crossovers
    assert led == wanted
    assert text.count('<tr class="why"') == len(answer.ops)


def test_links_with_odd_names_open_their_formula(fresh: Browser, quickstart: Path) -> None:
    fresh.open(quickstart)
    target = "document.getElementById('why-link:gpu>lpx')"
    assert not fresh.run(f"{target}.open")
    fresh.run("document.querySelector('a[href=\"#why-link:gpu>lpx\"]').click()")
    fresh.run("new Promise(done => setTimeout(done, 100))")
    assert fresh.run(f"{target}.open")
    assert "time = 116 * " in fresh.run(f"{target}.textContent")


def test_everything_that_can_be_pressed_has_a_name(fresh: Browser, quickstart: Path) -> None:
    fresh.open(quickstart)
    nameless = (
        "Array.from(document.querySelectorAll('button, a, input, svg.chart')).filter(e => "
        "!(e.textContent.trim() || e.getAttribute('aria-label'))).length"
    )
    assert fresh.run(nameless) == 0
    assert fresh.run("document.querySelectorAll('svg.chart:not([aria-label])').length") == 0
    assert fresh.run("document.documentElement.lang") == "en"


def test_hostile_names_do_nothing_in_a_browser(fresh: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh.open(written(tmp_path, str(evil_scenario(tmp_path))))
    assert fresh.run("window.pwned") is None
    assert fresh.wrong() == []
    answer = saved(tmp_path, QUICKSTART, capsys)
    (tmp_path / "answer.json").write_text(json.dumps(hostile(answer)))
    fresh.open(written(tmp_path, str(tmp_path / "answer.json")))
    assert fresh.run("window.pwned") is None
    assert fresh.wrong() == []
    assert "<script>" in fresh.run("document.body.textContent")
