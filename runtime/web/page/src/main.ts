// The page: which view is shown, the stream of pictures, keys and the theme.

import { get, post, Refused } from "./api";
import { Nodes, Past, Tree } from "./cluster";
import { button, el } from "./dom";
import { Gantt } from "./gantt";
import { Grid } from "./grid";
import { JobPage } from "./job";
import { Jobs } from "./jobs";
import type { Me, Picture, View } from "./types";

const VIEWS: [string, string, (fail: (error: unknown) => void) => View][] = [
  ["grid", "Ranks", () => new Grid()], ["slices", "Slices", () => new Gantt()], ["jobs", "Jobs", (fail) => new Jobs(fail)],
  ["nodes", "Nodes", (fail) => new Nodes(fail)], ["queues", "Queues", (fail) => new Tree(fail)], ["history", "History", (fail) => new Past(fail)]];

const HELP: [string, string][] = [["1 to 6", "show a view"], ["d", "ranks flat or as blocks"], ["h, +, -", "slices: hold, longer, shorter"],
  ["/", "filter the jobs"], ["j, k, Enter", "choose a job, open it"], ["n, p", "next, previous page of jobs"], ["x", "kill the job that is open"],
  ["t", "dark or light"], ["?", "this help"], ["Esc", "close, go back"]];

class Page {
  private readonly main = el("main", { id: "main", tabindex: "-1" });
  private readonly links: HTMLAnchorElement[];
  private readonly status = el("span", { class: "dim", id: "status", role: "status" });
  private readonly trouble = el("p", { class: "trouble", role: "alert", hidden: "" });
  private readonly help: HTMLDialogElement;
  private view: View | null = null;
  private stream: EventSource | null = null;
  private slices = false;
  private last: Picture | null = null;
  private times: number[] = [];

  constructor(private readonly me: Me) {
    this.links = VIEWS.map(([path, name], index) => el("a", { href: `#/${path}`, accesskey: String(index + 1) }, name));
    const rows = HELP.map(([key, text]) => [el("kbd", {}, key), text]);
    this.help = el("dialog", { "aria-label": "Keys" }, el("dl", {}, ...rows.flatMap(([key, text]) => [el("dt", {}, key ?? ""), el("dd", {}, text ?? "")])),
      button("Close", () => this.help.close()));
    const right = el("span", { class: "right" }, this.status, button("Theme", () => this.theme(), { title: "dark or light (t)" }),
      button("?", () => this.help.showModal(), { title: "keys" }), button("Leave", () => void this.leave()));
    document.body.replaceChildren(el("header", {}, el("strong", {}, `Kumi ${me.cluster}`), el("nav", { "aria-label": "Views" }, ...this.links), right),
      this.trouble, this.main, this.help);
    window.addEventListener("hashchange", () => this.show());
    window.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("visibilitychange", () => this.listen());
    this.show();
  }

  private fail(error: unknown): void {
    const text = error instanceof Refused ? error.message : String(error);
    this.trouble.textContent = text;
    this.trouble.hidden = false;
    if (error instanceof Refused && error.status === 401) this.stream?.close();
  }

  private show(): void {
    const [, path = "", id = ""] = location.hash.split("/");
    this.view?.close?.();
    this.trouble.hidden = true;
    const fail = (error: unknown) => this.fail(error);
    const known = VIEWS.find(([name]) => name === path);
    this.view = path === "job" && /^\d+$/.test(id) ? new JobPage(Number(id), this.me, fail) : (known ?? VIEWS[0]!)[2](fail);
    const current = path === "job" ? "jobs" : (known ?? VIEWS[0]!)[0];
    VIEWS.forEach(([name], index) => {
      if (name === current) this.links[index]?.setAttribute("aria-current", "page");
      else this.links[index]?.removeAttribute("aria-current");
    });
    this.main.replaceChildren(this.view.element);
    if (this.last) this.view.picture?.(this.last);
    const slices = current === "slices";
    if (slices !== this.slices || !this.stream) {
      this.slices = slices;
      this.listen();
    }
  }

  /** Opens the stream of pictures; a page that nobody sees has none. */
  private listen(): void {
    this.stream?.close();
    this.stream = null;
    if (document.hidden) return;
    const stream = new EventSource(`/api/live${this.slices ? "?slices=true" : ""}`);
    stream.addEventListener("message", (event: MessageEvent<string>) => this.take(JSON.parse(event.data) as Picture));
    stream.addEventListener("error", () => void this.broken());
    this.stream = stream;
  }

  private take(picture: Picture): void {
    // The first picture of a stream may be an old one.
    if (picture.number === 0) return;
    this.last = picture;
    const now = performance.now();
    this.times = [...this.times.filter((time) => now - time < 3000), now];
    document.body.dataset.pictures = String(Number(document.body.dataset.pictures ?? 0) + 1);
    const rate = this.times.length / 3;
    const up = picture.nodes.filter((node) => node.up).length;
    this.status.textContent = `${up} nodes, ${picture.jobs.length} jobs, ${picture.queued} wait, ${rate.toFixed(0)}/s`;
    this.view?.picture?.(picture);
  }

  /** The browser tries again by itself, but not after a refusal: then the user must know why. */
  private async broken(): Promise<void> {
    this.status.textContent = "no pictures come";
    try {
      await get<Me>("/api/me");
    } catch (error) {
      this.fail(error);
      return;
    }
    if (this.stream?.readyState === EventSource.CLOSED) window.setTimeout(() => this.listen(), 1000);
  }

  private async leave(): Promise<void> {
    this.stream?.close();
    await post("/api/logout").catch(() => undefined);
    document.body.replaceChildren(el("main", {}, el("p", {}, "The session is over.")));
  }

  private theme(): void {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    if (this.last) this.view?.picture?.(this.last);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
    const target = event.target as HTMLElement;
    if (target instanceof HTMLInputElement && target.type === "search") {
      if (event.key === "Escape" || event.key === "Enter") target.blur();
      return;
    }
    if (event.key === "Enter" && target.matches("a, button")) return;
    const number = Number(event.key);
    if (number >= 1 && number <= VIEWS.length) location.hash = `#/${VIEWS[number - 1]![0]}`;
    else if (event.key === "t") this.theme();
    else if (event.key === "?") this.help.showModal();
    else if (event.key === "Escape" && location.hash.startsWith("#/job/")) location.hash = "#/jobs";
    else if (!this.view?.key?.(event.key)) return;
    event.preventDefault();
  }
}

async function start(): Promise<void> {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  try {
    new Page(await get<Me>("/api/me"));
  } catch (error) {
    document.body.replaceChildren(el("main", {}, el("h1", {}, "Kumi"), el("p", { role: "alert" }, (error as Error).message)));
  }
}

void start();
