"""The chat page in a real browser: tools/check_page.py MORAINE MODEL [CHROMIUM]

Starts `moraine serve`, opens its page in Chromium without a window, and does what a person does: sends, reads, hovers, retries,
edits, stops, changes settings, all by keyboard where there is a key. Any message on the page's console, any request to
another host, and anything that is missing ends it with exit code 1.
"""

import re
import subprocess
import sys

from playwright.sync_api import expect, sync_playwright

moraine, model = sys.argv[1], sys.argv[2]
chromium = sys.argv[3] if len(sys.argv) > 3 else "/usr/bin/chromium"
server = subprocess.Popen([moraine, "serve", "--model", model, "--port", "0", "--chat-template", "plain"],
                          stdout=subprocess.PIPE, text=True)
url = re.search(r"listening on (\S+)", server.stdout.readline()).group(1)
messages, strangers = [], []


def seen(what):
    print("page:", what, flush=True)


try:
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(color_scheme="dark")
        page = context.new_page()
        page.on("console", lambda m: messages.append(m.text))
        page.on("pageerror", lambda e: messages.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith((url, "data:")) else strangers.append(r.url))
        page.goto(url + "/")
        expect(page.locator("#model")).not_to_have_text("…")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.emulate_media(color_scheme="light")
        assert dark != page.evaluate("getComputedStyle(document.body).backgroundColor"), "one colour for light and dark"
        seen("light and dark")

        page.keyboard.press("Alt+s")
        expect(page.locator("#settings")).to_be_visible()
        page.fill("#max_tokens", "24")
        page.fill("#seed", "7")
        page.fill("#temperature", "0.5")
        page.keyboard.press("Alt+s")
        expect(page.locator("#settings")).to_be_hidden()
        seen("settings")

        box = page.locator("#input")
        box.fill("It is a truth universally acknowledged")
        box.press("Enter")
        answer = page.locator(".turn.assistant .body").last
        facts = page.locator(".turn.assistant .facts").last
        expect(facts).to_contain_text(re.compile("stop|length"), timeout=60000)
        expect(facts).to_contain_text("first token")
        first = answer.text_content()
        assert first.strip(), "the answer is empty"
        seen("an answer: " + repr(first[:60]))

        tokens = page.locator(".turn.assistant .token")
        if tokens.count():
            tokens.first.hover()
            expect(page.locator("#tip")).to_be_visible()
            assert page.locator("#tip tr").count() > 1, "no other tokens beside the chosen one"
            seen("probabilities on hover")

        page.get_by_role("button", name="retry").last.click()
        expect(page.locator(".turn.assistant .facts").last).to_contain_text(re.compile("stop|length"), timeout=60000)
        assert page.locator(".turn.assistant .body").last.text_content() == first, "one seed, two answers"
        seen("retry with a seed gives the same answer")

        page.get_by_role("button", name="edit").first.click()
        expect(box).to_have_value("It is a truth universally acknowledged")
        assert page.locator(".turn").count() == 0
        # An answer that does not come, however fast the machine is: what Escape stops.
        held = []
        page.route("**/v1/chat/completions", lambda route: held.append(route))
        box.fill("Tell me all")
        box.press("Enter")
        expect(page.locator("#stop-button")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#stop-button")).to_be_hidden()
        expect(page.locator(".turn.assistant .facts").last).to_contain_text("stopped")
        assert len(held) == 1
        page.unroute("**/v1/chat/completions")
        seen("edit, stop")

        page.keyboard.press("Alt+n")
        assert page.locator(".turn").count() == 0
        page.keyboard.press("Alt+s")
        page.select_option("#mode", "text")
        page.fill("#max_tokens", "8")
        page.keyboard.press("Alt+s")
        box.fill("My dear Mr. Darcy,")
        box.press("Enter")
        expect(page.locator(".turn .facts").last).to_contain_text(re.compile("stop|length"), timeout=60000)
        assert page.locator(".turn .body").last.text_content().startswith("My dear Mr. Darcy,")
        seen("a text that goes on")

        page.reload()
        page.keyboard.press("Alt+s")
        expect(page.locator("#max_tokens")).to_have_value("8")
        seen("settings are kept")
        browser.close()
    assert not messages, messages
    assert not strangers, strangers
    print("page: all as it should be")
finally:
    server.terminate()
    server.wait(60)
