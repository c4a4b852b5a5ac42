// One job: its state, load, output, counters; stopping and killing.

import { get, post } from "./api";
import { button, duration, el, fit, table, themed } from "./dom";
import { stateOf } from "./jobs";
import { loadColour, parseLoads, UNKNOWN } from "./loads";
import type { History, Job, JobRow, Me, Output, Picture, RankCounters, View } from "./types";

/** Characters of output that the page keeps. */
const MOST_OUTPUT = 200_000;
/** Counters that are shown first. */
const COUNTERS = ["sent", "delivered", "unread", "resends", "unacked_packets", "waits_blocked", "waits_spun"];

export class JobPage implements View {
  readonly element: HTMLElement;
  private readonly facts = el("div", { class: "facts" });
  private readonly tools = el("div", { class: "tools" });
  private readonly output = el("pre", { class: "output", tabindex: "0", "aria-label": "Output" });
  private readonly waits = el("div", { hidden: "" });
  private readonly counters = el("div", { class: "list" });
  private readonly past = el("canvas", { class: "past", role: "img", "aria-label": "Load of each rank over the last ten minutes" });
  private next: number | null = null;
  private job: Job | null = null;
  private turns = 0;
  private readonly timer = window.setInterval(() => void this.load(), 1000);
  private loading = false;

  constructor(private readonly id: number, private readonly me: Me, private readonly fail: (error: unknown) => void) {
    this.element = el("section", { "aria-label": `Job ${id}` }, el("h2", {}, `Job ${id}`), this.facts, this.tools, this.waits,
      el("h3", {}, "Load, the last ten minutes"), this.past, el("h3", {}, "Output"), this.output, el("h3", {}, "Ranks"), this.counters);
    void this.load();
  }

  picture(_: Picture): void {}

  close(): void {
    window.clearInterval(this.timer);
  }

  key(key: string): boolean {
    if (key !== "x" || !this.me.act) return false;
    void this.act("Kill", "kill");
    return true;
  }

  private async act(word: string, path: string): Promise<void> {
    if (!window.confirm(`${word} job ${this.id}?`)) return;
    try {
      await post(`/api/jobs/${this.id}/${path}`);
      await this.load();
    } catch (error) {
      this.fail(error);
    }
  }

  private async load(): Promise<void> {
    if (this.loading || (this.job?.state === "ended" && this.turns > 3)) return;
    this.loading = true;
    try {
      this.job = await get<Job>(`/api/jobs/${this.id}`);
      this.drawFacts(this.job);
      await this.loadWaits(this.job);
      await this.loadOutput();
      if (this.turns % 2 === 0) await this.loadRanks();
      this.turns += 1;
    } catch (error) {
      window.clearInterval(this.timer);
      this.fail(error);
    } finally {
      this.loading = false;
    }
  }

  /** A stopped job says who waits for whom. */
  private async loadWaits(job: Job): Promise<void> {
    const stopped = job.state === "stopped";
    this.waits.hidden = !stopped;
    if (!stopped) return;
    const { report } = await get<{ report: string | null }>(`/api/jobs/${this.id}/waits`).catch((error: Error) => ({ report: error.message }));
    this.waits.replaceChildren(el("h3", {}, "Its ranks wait for each other"), el("pre", { class: "output" }, report ?? ""));
  }

  private async loadOutput(): Promise<void> {
    const from = this.next === null ? "" : `?from=${this.next}`;
    let part: Output;
    try {
      part = await get<Output>(`/api/jobs/${this.id}/output${from}`);
    } catch (error) {
      // Others may see that there is the job, and not what it writes.
      this.output.textContent = (error as Error).message;
      return;
    }
    if (this.next === null && part.begin > 0) this.output.append(el("span", { class: "dim" }, "… earlier output: kumi logs\n"));
    this.next = part.next;
    const low = this.output.scrollHeight - this.output.scrollTop - this.output.clientHeight < 30;
    for (const piece of part.pieces) {
      this.output.append(piece.error ? el("span", { class: "error" }, piece.text) : piece.text);
    }
    while ((this.output.textContent?.length ?? 0) > MOST_OUTPUT && this.output.firstChild) this.output.firstChild.remove();
    if (low && part.pieces.length > 0) this.output.scrollTop = this.output.scrollHeight;
  }

  private async loadRanks(): Promise<void> {
    const past = await get<History<JobRow>>(`/api/history?span=600&job=${this.id}`).catch(() => null);
    if (past) this.drawPast(past);
    const ranks = await get<RankCounters[]>(`/api/jobs/${this.id}/ranks`);
    const shown = COUNTERS.filter((name) => ranks.some((rank) => name in rank.counters));
    const rows = ranks.slice(0, 500).map((rank) => [String(rank.rank), String(rank.node), rank.idle ? "waits" : "runs",
      ...shown.map((name) => String(rank.counters[name] ?? ""))]);
    this.counters.replaceChildren(rows.length ? table(["Rank", "Node", "", ...shown], rows, "Counters of ranks") : el("p", { class: "dim" }, "No rank runs."));
  }

  private drawFacts(job: Job): void {
    const time = job.started_ms === null ? "not started" : duration((job.ended_ms ?? Date.now()) - job.started_ms);
    const pairs: [string, Node | string][] = [["Name", job.name], ["User", job.user || String(job.uid)], ["State", stateOf(job)],
      ["Ranks", `${job.ranks} on ${job.nodes.length} nodes`], ["Time", time], ["Priority", String(job.priority)],
      ["Command", el("code", {}, job.command.join(" "))], ["Folder", job.folder]];
    if (job.waits_for) pairs.push(["Waits because", job.waits_for]);
    if (job.outcome && job.success === false) pairs.push(["Ended", job.outcome]);
    this.facts.replaceChildren(el("dl", {}, ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
    const over = job.state === "ended" || job.state === "ending";
    if (!this.me.act || over) this.tools.replaceChildren(this.me.act ? "" : el("span", { class: "dim" }, "This session only looks."));
    else if (!this.tools.querySelector("button")) {
      this.tools.replaceChildren(button("Interrupt", () => void this.act("Interrupt", "signal/2")),
        button("Stop", () => void this.act("Stop", "signal/19")), button("Continue", () => void this.act("Continue", "signal/18")),
        button("Kill (x)", () => void this.act("Kill", "kill"), { class: "danger" }));
    }
  }

  /** A row for each rank, a column for each second, coloured by load. */
  private drawPast({ seconds, rows }: History<JobRow>): void {
    const count = Math.max(1, ...rows.map((row) => row.loads.length / 2));
    const tall = Math.max(2, Math.min(14, 240 / count));
    const drawing = fit(this.past, Math.ceil(count * tall));
    if (!drawing) return;
    const [context, width] = drawing;
    context.fillStyle = themed("--cell");
    context.fillRect(0, 0, width, count * tall);
    const last = Math.floor(Date.now() / 1000);
    const step = width / (600 / seconds);
    for (const row of rows) {
      const x = width - ((last - row.at_s) / seconds) * step;
      parseLoads(row.loads).forEach((load, rank) => {
        if (load === UNKNOWN) return;
        context.fillStyle = loadColour(load);
        context.fillRect(x - step, rank * tall, step + 0.5, Math.max(tall - 1, 1));
      });
    }
  }
}
