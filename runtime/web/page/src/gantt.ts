// Slices of each node over the last moments. A node that shares its processors with nobody switches nothing: its jobs of now
// stand in all of its row.

import { button, el, fit, themed } from "./dom";
import { jobColour } from "./loads";
import type { Picture, Slice, View } from "./types";

/** Microseconds that can be shown. */
const SPANS = [100_000, 300_000, 1_000_000, 3_000_000];
const ROW = 26;

export class Gantt implements View {
  readonly element: HTMLElement;
  private readonly canvas = el("canvas", { class: "gantt", role: "img" });
  private readonly rows = new Map<number, Slice[]>();
  private readonly name = el("span", { class: "dim" });
  private span = 1;
  private held: Picture | null = null;
  private last: Picture | null = null;
  private readonly holdButton = button("Hold (h)", () => this.hold());

  constructor() {
    const tools = el("div", { class: "tools" }, this.holdButton,
      button("Longer (+)", () => this.zoom(1)), button("Shorter (-)", () => this.zoom(-1)), this.name);
    this.element = el("section", { "aria-label": "Slices of each node" }, tools, this.canvas);
    this.zoom(0);
  }

  picture(picture: Picture): void {
    this.last = picture;
    const now = picture.cluster_us;
    for (const node of picture.nodes) {
      const row = this.rows.get(node.node) ?? [];
      // Pictures overlap, so that a lost one leaves no gap.
      for (const slice of node.slices ?? []) if (slice.at_us > (row.at(-1)?.at_us ?? 0)) row.push(slice);
      const oldest = now - (SPANS.at(-1) ?? 0) - 1_000_000;
      while (row.length > 1 && (row[1]?.at_us ?? 0) < oldest) row.shift();
      this.rows.set(node.node, row);
    }
    if (!this.held) this.draw();
  }

  key(key: string): boolean {
    if (key === "h") this.hold();
    else if (key === "+") this.zoom(1);
    else if (key === "-") this.zoom(-1);
    else return false;
    return true;
  }

  private hold(): void {
    this.held = this.held ? null : this.last;
    this.holdButton.setAttribute("aria-pressed", String(this.held !== null));
    this.draw();
  }

  private zoom(by: number): void {
    this.span = Math.min(Math.max(this.span + by, 0), SPANS.length - 1);
    this.name.textContent = `the last ${(SPANS[this.span] ?? 0) / 1000} ms`;
    this.draw();
  }

  /** The jobs that have ranks on a node now. */
  private present(picture: Picture, node: number): number[] {
    return picture.jobs.filter((job) => !job.idle && job.parts.some(([on]) => on === node)).map((job) => job.job);
  }

  private draw(): void {
    const picture = this.held ?? this.last;
    if (!picture) return;
    const nodes = picture.nodes.filter((node) => node.up);
    const drawing = fit(this.canvas, nodes.length * ROW + 30);
    if (!drawing) return;
    const [context, width] = drawing;
    const label = 72;
    const span = SPANS[this.span] ?? 1_000_000;
    const end = picture.cluster_us;
    const place = (at: number) => label + ((at - (end - span)) / span) * (width - label - 8);
    context.font = "12px system-ui, sans-serif";
    let slices = 0;
    nodes.forEach((node, index) => {
      const y = 4 + index * ROW;
      context.fillStyle = themed("--text");
      context.fillText(`node ${node.node}`, 6, y + 16);
      context.fillStyle = themed("--cell");
      context.fillRect(label, y, width - label - 8, ROW - 6);
      const begun = (this.rows.get(node.node) ?? []).filter((one) => one.at_us <= end);
      const recent = begun.length > 0 && (begun.at(-1)?.at_us ?? 0) > end - 1_500_000;
      const row = recent ? begun : [{ at_us: end - span, jobs: this.present(picture, node.node) }];
      row.forEach((begin, at) => {
        const [from, to] = [Math.max(place(begin.at_us), label), place(Math.min(row[at + 1]?.at_us ?? end, end))];
        if (to <= label) return;
        slices += 1;
        begin.jobs.forEach((job, lane) => {
          const tall = (ROW - 6) / begin.jobs.length;
          context.fillStyle = jobColour(job);
          context.fillRect(from, y + lane * tall, Math.max(to - from - 0.5, 0.5), tall);
          if (to - from > 24 && tall > 12) {
            context.fillStyle = "#fff";
            context.fillText(String(job), from + 4, y + lane * tall + 15);
          }
        });
      });
    });
    context.fillStyle = themed("--dim");
    const y = nodes.length * ROW + 18;
    context.fillText(`-${span / 1000} ms`, label, y);
    context.textAlign = "right";
    context.fillText("now", width - 8, y);
    context.textAlign = "start";
    this.canvas.setAttribute("aria-label", `${slices} slices on ${nodes.length} nodes`);
    this.canvas.dataset.slices = String(slices);
  }
}
