import { DISTANCES } from '../../net/distance.js';
import type { World } from '../world/world.js';
import type { SimNode } from './sim-node.js';

/** Activity of a cluster from the end of the previous sample to `atMs`. */
export interface Sample {
  readonly atMs: number;
  /** Pages read from the own pool; `remote`, `disk` and `object` are the other sources. */
  readonly local: number;
  readonly remote: number;
  readonly disk: number;
  readonly object: number;
  readonly misses: number;
  /** Pages of requests that were looked up; `found` counts those read before the first miss. */
  readonly asked: number;
  readonly found: number;
  readonly evictions: number;
  /** Bytes sent by all hosts on all planes but the data plane. */
  readonly controlBytes: number;
  readonly dataBytes: number;
  /** Nodes that are up at `atMs`. */
  readonly up: number;
  /** Ordered pairs of these nodes of which the first knows the second; at most `up` squared. */
  readonly knowing: number;
  /** Pages in all pools. */
  readonly poolPages: number;
  readonly diskPages: number;
  /** Timers of all processes. */
  readonly timers: number;
  readonly connections: number;
}

interface Totals {
  local: number;
  remote: number;
  disk: number;
  object: number;
  misses: number;
  evictions: number;
}

const FAR_METRICS = {
  pages: 'meshcache_remote_read_pages_total',
  keys: 'meshcache_directory_asked_keys_total',
} as const;

const NOTHING: Totals = { local: 0, remote: 0, disk: 0, object: 0, misses: 0, evictions: 0 };

/** Samples a cluster at intervals, and keeps the counts of stores that have ended. */
export class Series {
  readonly samples: Sample[] = [];
  readonly #world: World;
  readonly #nodes: readonly SimNode[];
  readonly #requests: { readonly asked: number; readonly found: number };
  /** Last counts of each process. */
  readonly #counted = new Map<number, Totals>();
  /** Last counts of each process, by metric; each in the order of DISTANCES. */
  readonly #far = { pages: new Map<number, number[]>(), keys: new Map<number, number[]>() };
  #last = { ...NOTHING, asked: 0, found: 0, controlBytes: 0, dataBytes: 0 };

  constructor(world: World, nodes: readonly SimNode[], requests: { readonly asked: number; readonly found: number }) {
    this.#world = world;
    this.#nodes = nodes;
    this.#requests = requests;
  }

  /** Sums over all processes since the beginning. */
  totals(): Totals {
    const sum = { ...NOTHING };
    for (const { store, process } of this.#nodes) {
      if (store === undefined || process === undefined) continue;
      const { hits, misses, evictions } = store.stats();
      this.#counted.set(process.id, { ...hits, misses, evictions });
      for (const what of ['pages', 'keys'] as const) {
        const counts = DISTANCES.map((distance) => process.metrics.value(FAR_METRICS[what], { distance }));
        this.#far[what].set(process.id, counts);
      }
    }
    for (const each of this.#counted.values()) {
      for (const name of Object.keys(sum) as (keyof Totals)[]) sum[name] += each[name];
    }
    return sum;
  }

  /**
   * Pages read from other nodes, and keys looked up at directory owners, by distance; sums over all processes since the
   * beginning.
   */
  distances() {
    const sum = (counted: ReadonlyMap<number, readonly number[]>) => {
      const [host, zone, other] = DISTANCES.map((_, i) => {
        return [...counted.values()].reduce((total, counts) => total + (counts[i] as number), 0);
      }) as [number, number, number];
      return { host, zone, other };
    };
    return { pages: sum(this.#far.pages), keys: sum(this.#far.keys) };
  }

  sample(): void {
    const { asked, found } = this.#requests;
    const now = { ...this.totals(), asked, found, ...this.#traffic() };
    const before = this.#last;
    this.#last = now;
    const up = this.#nodes.filter(({ isUp }) => isUp);
    const stats = up.flatMap(({ store }) => (store === undefined ? [] : [store.stats()]));
    const counts = up.flatMap(({ process }) => (process === undefined ? [] : [process.counts]));
    const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
    this.samples.push({
      atMs: this.#world.nowMs,
      local: now.local - before.local,
      remote: now.remote - before.remote,
      disk: now.disk - before.disk,
      object: now.object - before.object,
      misses: now.misses - before.misses,
      asked: now.asked - before.asked,
      found: now.found - before.found,
      evictions: now.evictions - before.evictions,
      controlBytes: now.controlBytes - before.controlBytes,
      dataBytes: now.dataBytes - before.dataBytes,
      up: up.length,
      knowing: sum(up.map(({ store }) => up.filter(({ name }) => store?.runtime.members().has(name)).length)),
      poolPages: sum(stats.map(({ poolEntries }) => poolEntries)),
      diskPages: sum(stats.map(({ disk }) => disk?.entries ?? 0)),
      timers: sum(counts.map(({ timers }) => timers)),
      connections: sum(counts.map(({ connections }) => connections)),
    });
  }

  #traffic(): { controlBytes: number; dataBytes: number } {
    let [controlBytes, dataBytes] = [0, 0];
    for (const { network } of this.#world.hosts.values()) {
      for (const [plane, { sentBytes }] of network.traffic) {
        if (plane === 'data') dataBytes += sentBytes;
        else controlBytes += sentBytes;
      }
    }
    return { controlBytes, dataBytes };
  }
}
