// Drives the page in a headless Chromium: `node browser.mjs CHROMIUM URL JOB [PICTURES]`. Exits with 0 if all is as it should
// be. JOB is the name of a running job with output; it is killed at the end. Screenshots go to the folder PICTURES.
import assert from "node:assert/strict";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [executablePath, url, job, pictures] = process.argv.slice(2);
const PATIENCE = 60_000;

// As root Chromium has no sandbox of its own.
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"], timeout: PATIENCE });
const context = await browser.newContext({ viewport: { width: 1000, height: 420 }, colorScheme: "light" });
context.setDefaultTimeout(PATIENCE);
const page = await context.newPage();
const wrong = [];
page.on("console", (message) => message.type() === "error" && wrong.push(`${message.location().url}: ${message.text()}`));
page.on("pageerror", (error) => wrong.push(String(error)));
page.on("request", (request) => new URL(request.url()).origin !== new URL(url).origin && wrong.push(`asked ${request.url()}`));

async function shot(name) {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`) });
}

/** Colours of a canvas that at least so many pixels have. */
function colours(selector) {
  return page.$eval(selector, (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Map();
    for (let at = 0; at < data.length; at += 4) {
      if (data[at + 3] === 0) continue;
      const colour = `${data[at]},${data[at + 1]},${data[at + 2]}`;
      seen.set(colour, (seen.get(colour) ?? 0) + 1);
    }
    return [...seen].filter(([, count]) => count > 50).length;
  });
}

async function waitFor(what, condition) {
  const begin = Date.now();
  while (!(await condition())) {
    assert.ok(Date.now() - begin < PATIENCE, `${what} did not come; errors: ${wrong.join("; ")}`);
    await page.waitForTimeout(50);
  }
}

try {
  await page.goto(url);
  await waitFor("pictures", () => page.evaluate(() => Number(document.body.dataset.pictures ?? 0) >= 10));
  assert.ok(!page.url().includes("ticket"), "the ticket stays in the address");

  // Ranks, flat and as blocks.
  await waitFor("the job in the grid", async () => (await page.getAttribute("canvas.grid", "aria-label")).includes(job));
  await waitFor("loads", async () => (await colours("canvas.grid")) >= 2);
  await shot("ranks-flat");
  const flat = await page.$eval("canvas.grid", (canvas) => canvas.height);
  await page.keyboard.press("d");
  assert.notEqual(await page.$eval("canvas.grid", (canvas) => canvas.height), flat, "blocks are drawn in another way");
  // A block has three faces in three shades.
  await waitFor("blocks", async () => (await colours("canvas.grid")) >= 4);
  await page.hover("canvas.grid");
  await shot("ranks-blocks");

  // Slices.
  await page.keyboard.press("2");
  await waitFor("slices", () => page.evaluate(() => Number(document.querySelector("canvas.gantt")?.dataset.slices ?? 0) >= 4));
  await shot("slices");

  // The list of jobs, by keyboard.
  await page.keyboard.press("3");
  await page.waitForSelector(`td:text-is("${job}")`);
  await page.keyboard.press("/");
  await page.keyboard.type("no job is called so");
  await page.waitForSelector('text="No job is like this."');
  await page.keyboard.press("Control+A");
  await page.keyboard.type(job);
  await page.waitForSelector(`tr.selected td:text-is("${job}")`);
  await page.keyboard.press("Enter");
  await shot("jobs");
  await page.keyboard.press("Enter");
  await page.waitForSelector('h2:has-text("Job ")');
  await waitFor("output", async () => ((await page.textContent("pre.output")) ?? "").length > 0);
  await page.waitForSelector('table[aria-label="Counters of ranks"] tbody tr');
  await shot("job");

  // Nodes, queues, history.
  await page.keyboard.press("4");
  await page.waitForSelector('table[aria-label="Nodes"] tbody tr:nth-child(2)');
  await shot("nodes");
  await page.keyboard.press("5");
  await page.waitForSelector('[role="tree"] [role="treeitem"]');
  await page.keyboard.press("6");
  await waitFor("history", () => page.evaluate(() => Number(document.querySelector("canvas.past")?.dataset.rows ?? 0) >= 2));

  // Help, the theme, a telephone.
  await page.keyboard.press("?");
  assert.ok(await page.isVisible('dialog:has-text("dark or light")'));
  await page.keyboard.press("Escape");
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.keyboard.press("t");
  assert.notEqual(await back(), light, "dark is not light");
  await page.keyboard.press("1");
  await page.waitForSelector("canvas.grid");
  await shot("ranks-dark");
  await page.setViewportSize({ width: 375, height: 720 });
  for (const key of ["1", "2", "3", "4"]) {
    await page.keyboard.press(key);
    await page.waitForTimeout(300);
    const [wide, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    assert.ok(wide <= seen, `view ${key} is ${wide} wide on a screen of ${seen}`);
  }
  await page.setViewportSize({ width: 1000, height: 420 });

  // A wrong job is told; then the job is killed, after the question.
  await page.goto(`${new URL(url).origin}/#/job/999999`);
  await page.waitForSelector('[role="alert"]:has-text("there is no job 999999")');
  await page.keyboard.press("3");
  await page.click(`tr:has(td:text-is("${job}")) a`);
  await page.waitForSelector("button.danger");
  page.on("dialog", (dialog) => void dialog.accept());
  await page.keyboard.press("x");
  await page.waitForSelector('dd:has-text("killed")');

  await page.click('button:has-text("Leave")');
  await page.waitForSelector('text="The session is over."');
  await page.goto(url);
  assert.ok((await page.textContent("body")).includes("ticket"), "a ticket serves once");
  // The browser notes the two refusals that this test asked for.
  const unasked = wrong.filter((text) => !/(jobs\/999999|\/login\?ticket=\w+): .*(404|403)/.test(text));
  assert.deepEqual(unasked, [], "errors in the console, or requests to others");
  console.log("1 passed, 0 failed");
} finally {
  await browser.close();
}
