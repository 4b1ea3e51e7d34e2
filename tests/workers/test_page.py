"""The page in a headless Chromium: what is seen and read aloud, the keyboard, both themes, the token, losing the plane.

Set LLMGW_SCREENSHOTS to a folder to look at it.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from aiohttp.test_utils import TestServer
from playwright.async_api import Page, async_playwright

from llmgw.ids import NodeId
from tests.cli.fleets import WorldFleet
from tests.workers.fleets import rolling, troubled
from workers import serving
from workers.meters import Meters

CHROMIUM = next(filter(None, (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)"),
]
Scheme = Literal["light", "dark"]
ARGUMENTS = ["--no-sandbox", "--disable-background-networking"]


@asynccontextmanager
async def opened(fleet: WorldFleet, *tokens: str, width: int = 1280, scheme: Scheme = "light") -> AsyncIterator[Page]:
    """A browser at the page; whatever it logs as an error fails the test, as does asking anybody else."""
    complaints: list[str] = []
    async with (
        TestServer(serving.application(fleet, Meters("main"), tokens)) as server,
        async_playwright() as p,
    ):
        browser = await p.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = await browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(str(server.make_url("/"))) else complaints.append(asked.url),
        )
        await page.goto(str(server.make_url("/")))
        yield page
        await browser.close()
    assert [text for text in complaints if not text.startswith("data:")] == []


async def shot(page: Page, name: str) -> None:
    if folder := os.environ.get("LLMGW_SCREENSHOTS"):
        await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


async def test_the_fleet_is_there_as_people_picture_it() -> None:
    async with opened(rolling()) as page:
        await page.get_by_role("heading", name="Nodes", exact=True).wait_for()
        await page.locator(".node").first.wait_for()
        assert await page.locator(".node").count() == 3
        assert await page.locator(".node .cell").count() == 12
        assert await page.locator(".node .cell.soon").count() > 0
        assert await page.get_by_role("row").count() == 1 + 3
        assert await page.title() == "f: converging"
        await shot(page, "rolling")


async def test_a_node_says_in_words_what_its_cells_show() -> None:
    async with opened(rolling()) as page:
        label = await page.locator(".node").last.get_attribute("aria-label")
        assert label is not None
        assert label.startswith("c, healthy; cordoned; ")
        assert " held by " in label


async def test_cells_of_one_model_look_alike_and_those_of_two_do_not() -> None:
    async with opened(rolling()) as page:
        await page.locator(".node .cell").first.wait_for()
        looks = await page.locator(".node .cell[title*='(ready)']").evaluate_all(
            "cells => cells.map(c => [c.title.match(/: (\\S+)-\\w+ /)[1], getComputedStyle(c).backgroundColor])"
        )
        by_model = {(model, colour) for model, colour in looks}
        assert len(by_model) == len({m for m, _ in by_model}) == len({c for _, c in by_model}) > 1


async def test_trouble_comes_first_and_names_are_never_markup() -> None:
    async with opened(troubled()) as page:
        alarms = page.get_by_role("region", name="Look at this first")
        await alarms.wait_for()
        assert "silent: gpu-rack3-01" in await alarms.inner_text()
        assert await page.get_by_role("button", name="[bold]odd[/bold]").count() == 1
        assert "no node has 2 free h100" in await page.locator("#waiting").inner_text()
        assert await page.locator(".cell.broken").count() == 3
        await shot(page, "troubled")


async def test_what_is_drained_and_which_version_serves_is_told() -> None:
    async with opened(troubled()) as page:
        await page.locator(".node").first.wait_for()
        drains = await page.locator("#drains").inner_text()
        assert "1 replica left (llama-2); what finds no place elsewhere is stopped in 8 min" in drains
        assert (
            "the version before the edit serves meanwhile, with 1 endpoint"
            in await page.locator("#waiting").inner_text()
        )
        label = await page.locator("[data-key='node/gpu-rack2-11']").get_attribute("aria-label")
        assert label is not None
        assert label.startswith("gpu-rack2-11, healthy; draining; 0 of 3 devices free")


async def test_free_devices_are_those_that_may_be_used() -> None:
    async with opened(rolling()) as page:
        await page.locator(".node").first.wait_for()
        numbers = await page.locator("#numbers").inner_text()
        assert "0 of 12\ndevices free, 2 on closed nodes" in numbers
    async with opened(troubled()) as page:
        await page.locator(".node").first.wait_for()
        assert await page.locator("#drains").is_visible()


async def test_everything_can_be_done_with_the_keyboard() -> None:
    async with opened(rolling()) as page:
        first, second = page.locator(".node").nth(0), page.locator(".node").nth(1)
        await first.focus()
        await page.keyboard.press("ArrowRight")
        assert await second.evaluate("node => node === document.activeElement")
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="node/b")
        await dialog.get_by_text("b is healthy.").wait_for()
        await shot(page, "explained")
        await page.keyboard.press("Escape")
        assert not await dialog.is_visible()
        assert await second.evaluate("node => node === document.activeElement")


async def test_focus_stays_when_the_picture_changes() -> None:
    fleet = rolling()
    async with opened(fleet) as page:
        await page.locator("[data-key='node/b']").focus()
        fleet.world = replace(fleet.world, wishes=replace(fleet.world.wishes, cordoned={NodeId("b"): 1.0}))
        await page.locator("[data-key='node/b'][aria-label*='cordoned']").wait_for()
        assert await page.locator("[data-key='node/b']").evaluate("node => node === document.activeElement")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_both_themes_can_be_read(scheme: Scheme) -> None:
    async with opened(troubled(), scheme=scheme) as page:
        await page.locator(".node").first.wait_for()
        ratios = await page.evaluate(CONTRASTS)
        assert {text: ratio for text, ratio in ratios if ratio < 4.5} == {}
        await shot(page, scheme)


CONTRASTS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map((c) => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!colour.startsWith("rgba(0, 0, 0, 0")) return rgb(colour);
    }
    return [255, 255, 255];
  };
  const tells = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const texts = [...document.querySelectorAll("#all *")].filter(tells);
  return texts.filter((e) => e.checkVisibility()).map((element) => {
    const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    return [element.textContent, (a + .05) / (b + .05)];
  });
}"""


async def test_the_button_changes_the_theme_and_it_stays() -> None:
    async with opened(troubled(), scheme="light") as page:
        ground = "getComputedStyle(document.body).backgroundColor"
        before = await page.evaluate(ground)
        await page.get_by_role("button", name="Dark or light").click()
        dark = await page.evaluate(ground)
        assert dark != before
        await page.reload()
        assert await page.evaluate(ground) == dark


async def test_a_token_is_asked_for_and_kept_for_this_tab_alone() -> None:
    async with opened(troubled(), "secret") as page:
        field = page.get_by_label("This fleet is shown to whoever has one of its bearer tokens.")
        await field.fill("wrong")
        await page.keyboard.press("Enter")
        await page.get_by_text("No such token.").wait_for()
        assert not await page.locator("#all").is_visible()
        await shot(page, "token")
        await field.fill("secret")
        await page.keyboard.press("Enter")
        await page.locator(".node").first.wait_for()
        await page.reload()
        await page.locator(".node").first.wait_for()
        assert await page.evaluate("Object.keys(localStorage)") == []


async def test_losing_the_plane_is_said_and_what_was_seen_stays() -> None:
    fleet = rolling()
    async with opened(fleet) as page:
        await page.locator(".node").first.wait_for()

        async def silent(*_: object, **__: object) -> object:
            raise TimeoutError

        fleet.query = silent  # type: ignore[method-assign]
        await page.get_by_text("the fleet does not answer").wait_for()
        assert await page.locator(".node").count() == 3


async def test_it_fits_a_narrow_window() -> None:
    async with opened(troubled(), width=380) as page:
        await page.locator(".node").first.wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 380
        await shot(page, "narrow")
