// What the server sends: see runtime/web/src/picture.rs and views.rs.

export interface Slice {
  at_us: number;
  jobs: number[];
}

export interface NodePicture {
  node: number;
  up: boolean;
  fresh: boolean;
  busy: number | null;
  memory: number | null;
  network: number;
  switches: number;
  switching: number;
  slices?: Slice[];
}

export interface JobPicture {
  job: number;
  name: string;
  idle: boolean;
  parts: [number, number, number][];
  loads: string;
}

export interface Picture {
  number: number;
  at_ms: number;
  cluster_us: number;
  queued: number;
  nodes: NodePicture[];
  jobs: JobPicture[];
}

export interface Job {
  job: number;
  name: string;
  user: string;
  uid: number;
  state: string;
  outcome: string | null;
  success: boolean | null;
  waits_for: string | null;
  ranks: number;
  nodes: number[];
  submitted_ms: number;
  started_ms: number | null;
  ended_ms: number | null;
  command: string[];
  folder: string;
  priority: number;
}

export interface Cluster {
  name: string;
  policy: string;
  gang: boolean;
  slice_set_ns: number | null;
  slice_ns: number;
  cycle: number;
  since_ms: number;
  nodes: ClusterNode[];
  tree: Partition[];
}

export interface ClusterNode {
  node: number;
  name: string;
  up: boolean;
  processors: number;
  taken: number;
  memory: number;
  reserved: number;
  limits: string[];
  jobs: number[];
  slots: number[][];
}

export interface Partition {
  number: number;
  parent: number | null;
  first: number;
  size: number;
  up: number;
  front: boolean;
  queue: [number, number][];
}

export interface Me {
  cluster: string;
  user: string;
  uid: number;
  act: boolean;
}

export interface Output {
  pieces: { rank: number; error: boolean; text: string }[];
  begin: number;
  next: number;
}

export interface RankCounters {
  rank: number;
  node: number;
  idle: boolean;
  counters: Record<string, number>;
}

export interface ClusterRow {
  at_s: number;
  busy: number | null;
  memory: number | null;
  load: number | null;
  jobs: number;
  ranks: number;
  switching: number;
  network_kib: number;
}

export interface JobRow {
  at_s: number;
  ranks: number;
  ranks_per_load: number;
  loads: string;
}

export interface History<T> {
  seconds: number;
  rows: T[];
}

/** A part of the page that is shown alone. */
export interface View {
  readonly element: HTMLElement;
  /** A new picture has come. */
  picture?(picture: Picture): void;
  /** It is shown no longer. */
  close?(): void;
  /** A key that nobody else wanted; says whether it meant something. */
  key?(key: string): boolean;
}
