// Views of the cluster: health of its nodes, the tree of queues, and history.

import { get } from "./api";
import { button, bytes, el, fit, table, themed } from "./dom";
import { jobColour } from "./loads";
import type { Cluster, ClusterNode, ClusterRow, History, NodePicture, Partition, Picture, View } from "./types";

type Fail = (error: unknown) => void;

function bar(percent: number | null): HTMLElement {
  if (percent === null) return el("span", { class: "dim" }, "not known");
  return el("span", { class: "bar" }, el("meter", { min: "0", max: "100", value: String(percent) }), ` ${percent} %`);
}

export class Nodes implements View {
  readonly element = el("section", { "aria-label": "Nodes" });
  private readonly summary = el("p", { role: "status" });
  private readonly list = el("div", { class: "list" });
  private readonly limits = el("div");
  private cluster: Cluster | null = null;
  private last: Picture | null = null;
  private readonly timer = window.setInterval(() => void this.load(), 2000);

  constructor(private readonly fail: Fail) {
    this.element.append(this.summary, this.list, this.limits);
    void this.load();
  }

  picture(picture: Picture): void {
    // Words need not change as often as blocks.
    if (this.last && picture.at_ms - this.last.at_ms < 450) return;
    this.last = picture;
    this.draw();
  }

  close(): void {
    window.clearInterval(this.timer);
  }

  private async load(): Promise<void> {
    try {
      this.cluster = await get<Cluster>("/api/cluster");
      this.draw();
    } catch (error) {
      this.fail(error);
    }
  }

  private row(node: ClusterNode, now: NodePicture | undefined): (Node | string)[] {
    const state = !node.up ? ["bad", "down"] : now && !now.fresh ? ["starting", "slow"] : ["good", "up"];
    const slots = el("span", {}, ...node.slots.map((jobs) => slot(jobs)));
    return [String(node.node), node.name, el("span", { class: `state ${state[0]}` }, state[1] ?? ""), `${node.taken} of ${node.processors}`,
      bar(now?.busy ?? null), bar(now?.memory ?? null), now ? `${bytes(now.network)}/s` : "", now ? String(now.switches) : "",
      now ? `${(now.switching / 100).toFixed(2)} %` : "", slots];
  }

  private draw(): void {
    if (!this.cluster) return;
    const { nodes, policy, gang, slice_ns, cycle } = this.cluster;
    const up = nodes.filter((node) => node.up).length;
    const sharing = gang ? `${policy}, slices of ${slice_ns / 1e6} ms, ${cycle} in turn` : "shared by the operating systems";
    this.summary.textContent = `${up} of ${nodes.length} nodes up; ${this.last?.jobs.length ?? 0} jobs run, ${this.last?.queued ?? 0} wait; ${sharing}`;
    const now = new Map(this.last?.nodes.map((node) => [node.node, node]));
    this.list.replaceChildren(table(["Node", "Name", "State", "Processors", "Busy", "Memory", "Network", "Switches/s", "Switching", "Timetable"],
      nodes.map((node) => this.row(node, now.get(node.node))), "Nodes"));
    const lacking = nodes.filter((node) => node.limits.length > 0);
    this.limits.replaceChildren(...(lacking.length ? [el("h3", {}, "What machines lack")] : []),
      ...lacking.map((node) => el("details", {}, el("summary", {}, `node ${node.node} ${node.name}`), el("ul", {}, ...node.limits.map((text) => el("li", {}, text))))));
  }
}

/** The jobs of a slot, each with its colour. */
function slot(jobs: number[]): HTMLElement {
  if (jobs.length === 0) return el("span", { class: "slot dim" }, "·");
  const links = jobs.flatMap((job, index) => {
    const link = el("a", { href: `#/job/${job}`, class: "slot" }, String(job));
    link.style.borderColor = jobColour(job);
    return index > 0 ? ["+", link] : [link];
  });
  return el("span", {}, ...links, " ");
}

export class Tree implements View {
  readonly element = el("section", { "aria-label": "Queues" });
  private readonly timer = window.setInterval(() => void this.load(), 1000);

  constructor(private readonly fail: Fail) {
    void this.load();
  }

  close(): void {
    window.clearInterval(this.timer);
  }

  private async load(): Promise<void> {
    try {
      const cluster = await get<Cluster>("/api/cluster");
      const root = cluster.tree.filter((partition) => partition.parent === null);
      this.element.replaceChildren(cluster.tree.length === 0
        ? el("p", {}, `The policy ${cluster.policy} has no tree of queues, or no jobs take turns. The timetable is with the nodes.`)
        : el("ul", { class: "tree", role: "tree" }, ...root.map((partition) => this.branch(partition, cluster.tree))));
    } catch (error) {
      this.fail(error);
    }
  }

  private branch(partition: Partition, tree: Partition[]): HTMLElement {
    const below = tree.filter((one) => one.parent === partition.number);
    const label = el("span", { class: partition.front ? "partition front" : "partition" },
      `processors ${partition.first} to ${partition.first + partition.size - 1}`,
      partition.up < partition.size ? ` (${partition.up} up)` : "", " ", ...partition.queue.map(([job]) => slot([job])));
    return el("li", { role: "treeitem" }, label, below.length > 0 && el("ul", { role: "group" }, ...below.map((one) => this.branch(one, tree))));
  }
}

const SPANS: [string, number][] = [["10 minutes", 600], ["2 hours", 7200], ["24 hours", 86400]];

export class Past implements View {
  readonly element: HTMLElement;
  private readonly canvas = el("canvas", { class: "past", role: "img" });
  private readonly buttons: HTMLButtonElement[];
  private span = 0;
  private readonly timer = window.setInterval(() => void this.load(), 5000);

  constructor(private readonly fail: Fail) {
    this.buttons = SPANS.map(([name], index) => button(name, () => this.choose(index)));
    this.element = el("section", { "aria-label": "History" }, el("div", { class: "tools" }, ...this.buttons), this.canvas);
    this.choose(0);
  }

  close(): void {
    window.clearInterval(this.timer);
  }

  private choose(span: number): void {
    this.span = span;
    this.buttons.forEach((one, index) => one.setAttribute("aria-pressed", String(index === span)));
    void this.load();
  }

  private async load(): Promise<void> {
    const seconds = SPANS[this.span]?.[1] ?? 600;
    try {
      this.draw(await get<History<ClusterRow>>(`/api/history?span=${seconds}`), seconds);
    } catch (error) {
      this.fail(error);
    }
  }

  private draw({ seconds, rows }: History<ClusterRow>, span: number): void {
    const drawing = fit(this.canvas, 380);
    if (!drawing) return;
    const [context, width] = drawing;
    const now = Date.now() / 1000;
    const lines: [string, string, (row: ClusterRow) => number | null, string][] = [
      ["processors in use, %", "hsl(10 70% 52%)", (row) => row.busy, "%"], ["load of ranks, %", "hsl(140 55% 42%)", (row) => row.load, "%"],
      ["ranks", "hsl(220 70% 58%)", (row) => row.ranks, ""], ["time for switches, 1/100 %", "hsl(280 55% 58%)", (row) => row.switching, ""]];
    context.font = "12px system-ui, sans-serif";
    lines.forEach(([name, colour, value, unit], index) => {
      const [top, tall] = [index * 92 + 18, 66];
      const values = rows.map(value);
      const most = unit === "%" ? 100 : Math.max(1, ...values.map((one) => one ?? 0));
      context.fillStyle = themed("--cell");
      context.fillRect(0, top, width, tall);
      context.fillStyle = themed("--text");
      context.fillText(`${name} (at most ${Math.round(most)})`, 4, top - 5);
      context.fillStyle = colour;
      rows.forEach((row, at) => {
        const one = values[at];
        if (one == null) return;
        const x = width - ((now - row.at_s) / span) * width;
        context.fillRect(x, top + tall - (one / most) * tall, Math.max((width * seconds) / span, 1), (one / most) * tall + 0.5);
      });
    });
    this.canvas.setAttribute("aria-label", `${rows.length} rows of ${seconds} seconds`);
    this.canvas.dataset.rows = String(rows.length);
  }
}
