// The list of jobs, in pages, newest first.

import { get } from "./api";
import { button, duration, el, table } from "./dom";
import { meanLoad, parseLoads } from "./loads";
import type { Job, Picture, View } from "./types";

const PAGE = 100;

interface Page {
  jobs: Job[];
  more: boolean;
}

function elapsed(job: Job): string {
  return job.started_ms === null ? "" : duration((job.ended_ms ?? Date.now()) - job.started_ms);
}

/** The state in a word, with a class that colours it. */
export function stateOf(job: Job): HTMLElement {
  const good = job.success === null ? job.state : job.success ? "good" : "bad";
  return el("span", { class: `state ${good}` }, job.state === "ended" ? (job.outcome ?? "ended") : job.state);
}

export class Jobs implements View {
  readonly element: HTMLElement;
  private readonly list = el("div", { class: "list" });
  private readonly text = el("input", { type: "search", placeholder: "Filter (/)", "aria-label": "Filter by name or user", maxlength: "200" });
  private readonly all = el("input", { type: "checkbox", id: "all" });
  private readonly note = el("p", { class: "dim", role: "status" });
  private befores: (number | null)[] = [null];
  private page: Page = { jobs: [], more: false };
  private selected = 0;
  private loads = new Map<number, number | null>();
  private readonly timer = window.setInterval(() => void this.load(), 2000);
  private loading = false;

  constructor(private readonly fail: (error: unknown) => void) {
    this.element = el("section", { "aria-label": "Jobs" },
      el("div", { class: "tools" }, this.text, this.all, el("label", { for: "all" }, "also those that are over"),
        button("Newer", () => this.turn(-1)), button("Older", () => this.turn(1)), this.note), this.list);
    this.text.addEventListener("input", () => this.first());
    this.all.addEventListener("change", () => this.first());
    void this.load();
  }

  picture(picture: Picture): void {
    this.loads = new Map(picture.jobs.map((job) => [job.job, meanLoad(parseLoads(job.loads))]));
  }

  close(): void {
    window.clearInterval(this.timer);
  }

  key(key: string): boolean {
    if (key === "/") this.text.focus();
    else if (key === "j" || key === "ArrowDown") this.select(1);
    else if (key === "k" || key === "ArrowUp") this.select(-1);
    else if (key === "n") this.turn(1);
    else if (key === "p") this.turn(-1);
    else if (key === "Enter") this.open();
    else return false;
    return true;
  }

  private open(): void {
    const job = this.page.jobs[this.selected];
    if (job) location.hash = `#/job/${job.job}`;
  }

  private select(by: number): void {
    this.selected = Math.min(Math.max(this.selected + by, 0), Math.max(this.page.jobs.length - 1, 0));
    this.draw();
    this.list.querySelector("tr.selected")?.scrollIntoView({ block: "nearest" });
  }

  private first(): void {
    this.befores = [null];
    this.selected = 0;
    void this.load();
  }

  private turn(by: number): void {
    const last = this.page.jobs.at(-1);
    if (by > 0 && this.page.more && last) this.befores.push(last.job);
    else if (by < 0 && this.befores.length > 1) this.befores.pop();
    else return;
    this.selected = 0;
    void this.load();
  }

  private async load(): Promise<void> {
    if (this.loading) return;
    this.loading = true;
    const query = new URLSearchParams({ limit: String(PAGE), all: String(this.all.checked), text: this.text.value });
    const before = this.befores.at(-1);
    if (before != null) query.set("before", String(before));
    try {
      this.page = await get<Page>(`/api/jobs?${query}`);
      this.draw();
    } catch (error) {
      this.fail(error);
    } finally {
      this.loading = false;
    }
    const current = this.befores.at(-1) ?? null;
    // What was typed meanwhile is looked for at once.
    if (query.get("text") !== this.text.value || query.get("all") !== String(this.all.checked)
      || query.get("before") !== (current === null ? null : String(current))) await this.load();
  }

  private draw(): void {
    const rows = this.page.jobs.map((job) => {
      const load = this.loads.get(job.job);
      return [el("a", { href: `#/job/${job.job}` }, String(job.job)), job.name, job.user || String(job.uid), String(job.ranks),
        stateOf(job), elapsed(job), load == null ? "" : `${load.toFixed(0)} %`, job.waits_for ?? ""];
    });
    const made = table(["Job", "Name", "User", "Ranks", "State", "Time", "Load", "Waits because"], rows, "Jobs");
    made.querySelectorAll("tbody tr")[this.selected]?.classList.add("selected");
    this.list.replaceChildren(made);
    const page = this.befores.length > 1 ? `page ${this.befores.length}` : "";
    this.note.textContent = this.page.jobs.length === 0 ? "No job is like this." : `${page}${this.page.more ? " there are more" : ""}`.trim();
  }
}
