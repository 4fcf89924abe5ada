import type { HttpClient, HttpListener, HttpPost } from '../../base/environment/http-client.js';
import type { SimProcess } from './sim-process.js';

/** Milliseconds until a request is answered. */
const ANSWER_MS = 1;
/** Number of changes that are kept for watches to begin with; earlier ones are compacted. */
const HISTORY_MAX_COUNT = 1_000;

/** `up`: it answers; `down`: its port refuses connections; `silent`: it does not answer. */
export type EtcdState = 'up' | 'down' | 'silent';

/** A key's value, and the lease with which the key ends. */
export interface EtcdEntry {
  readonly value: string;
  readonly lease: string;
}

/** A lease, with the virtual time at which it ends. */
export interface EtcdLease {
  readonly ttlS: number;
  endMs: number;
}

interface Change {
  readonly name: string;
  readonly revision: number;
  /** Undefined: the key was removed. */
  readonly entry: EtcdEntry | undefined;
}

interface Watcher {
  readonly process: SimProcess;
  readonly from: string;
  readonly to: string;
  readonly listener: HttpListener;
}

/** The data that an etcd has on its disk. */
export interface EtcdSnapshot {
  readonly entries: ReadonlyMap<string, EtcdEntry>;
  readonly leases: ReadonlyMap<string, EtcdLease>;
  readonly revision: number;
}

interface Params {
  readonly key?: string;
  readonly range_end?: string;
  readonly TTL?: number;
  readonly ID?: string;
  readonly compare?: readonly { readonly key: string }[];
  readonly success?: readonly { readonly request_put: { key: string; value: string; lease: string } }[];
  readonly create_request?: { readonly key: string; readonly range_end: string; readonly start_revision?: string };
}

/**
 * The etcd of a world, which answers at every HTTP address: keys, leases and watches, as the production code uses them
 * over the JSON interface. Counts its requests.
 */
export class SimEtcd {
  /** Requests so far, by method; `event`: changes sent to watchers. */
  readonly counts = new Map<string, number>();
  readonly #world: { readonly nowMs: number; at(atMs: number, fn: () => void): void };
  #state: EtcdState = 'up';
  #entries = new Map<string, EtcdEntry>();
  #leases = new Map<string, EtcdLease>();
  #watchers = new Set<Watcher>();
  #revision = 1;
  #history: Change[] = [];
  #lastLease = 1000;

  constructor(world: { readonly nowMs: number; at(atMs: number, fn: () => void): void }) {
    this.#world = world;
  }

  get state(): EtcdState {
    return this.#state;
  }

  /** Number of current keys. */
  get keysCount(): number {
    return this.#entries.size;
  }

  /**
   * Changes the state. Watches end when etcd goes down, and keys whose leases have ended are removed when it is back.
   */
  setState(state: EtcdState): void {
    this.#state = state;
    if (state === 'down') {
      for (const { process, listener } of this.#watchers) later(process, () => listener.onEnd(new Error('ECONNRESET')));
      this.#watchers.clear();
    }
    if (state === 'up') this.#expire();
  }

  /** Begins an outage; the returned function ends it. */
  fail(state: EtcdState): () => void {
    this.setState(state);
    return () => this.setState('up');
  }

  /** The data that it has on its disk now. */
  snapshot(): EtcdSnapshot {
    return { entries: new Map(this.#entries), leases: new Map(this.#leases), revision: this.#revision };
  }

  /** Ends all watches and starts with this content, by default with none. Leases last for their full time again. */
  restart({ entries, leases, revision }: EtcdSnapshot = { entries: new Map(), leases: new Map(), revision: 1 }): void {
    this.setState('down');
    this.#entries = new Map(entries);
    this.#leases = new Map();
    this.#revision = revision;
    this.#history = [];
    for (const [id, { ttlS }] of leases) this.#renew(id, ttlS);
    this.setState('up');
  }

  /** Ends all leases, and the keys with them. */
  dropLeases(): void {
    for (const lease of [...this.#leases.values()]) lease.endMs = this.#world.nowMs;
    this.#expire();
  }

  /** @internal Sends requests of a process. */
  seenBy(process: SimProcess): HttpClient['post'] {
    return (request, listener) => this.#post(process, request, listener);
  }

  #post(process: SimProcess, { path, body }: HttpPost, listener: HttpListener): () => void {
    const method = path.replace('/v3/', '');
    this.#count(method);
    let end = process.clock.after(ANSWER_MS, () => {
      if (this.#state === 'silent') return;
      if (this.#state === 'down') return listener.onEnd(new Error('connect ECONNREFUSED'));
      this.#expire();
      const params = JSON.parse(body) as Params;
      if (method === 'watch') {
        end = this.#watch(process, params, listener);
        return;
      }
      listener.onHead(200);
      listener.onData(Buffer.from(JSON.stringify(this.#answer(method, params))));
      listener.onEnd();
    });
    return () => end();
  }

  #answer(method: string, { key = '', range_end = '', TTL = 0, ID = '', compare, success }: Params): object {
    const header = { revision: String(this.#revision) };
    switch (method) {
      case 'kv/range': {
        const found = [...this.#entries].filter(([name]) => name >= plain(key) && name < plain(range_end)).sort();
        return { header, kvs: found.map(([name, { value, lease }]) => ({ key: encoded(name), value, lease })) };
      }
      case 'kv/txn': {
        const isFree = compare?.every((one) => !this.#entries.has(plain(one.key))) === true;
        for (const { request_put: put } of isFree ? (success ?? []) : []) this.#change(plain(put.key), put);
        return { header, ...(isFree ? { succeeded: true } : {}) };
      }
      case 'lease/grant': {
        const id = String(++this.#lastLease);
        this.#renew(id, TTL);
        return { header, ID: id, TTL: String(TTL) };
      }
      case 'lease/keepalive': {
        const lease = this.#leases.get(ID);
        if (lease !== undefined) this.#renew(ID, lease.ttlS);
        return { result: { header, ID, ...(lease === undefined ? {} : { TTL: String(lease.ttlS) }) } };
      }
      case 'lease/revoke':
        this.#end(ID);
        return { header };
      default:
        return { error: `unknown method ${method}`, code: 12 };
    }
  }

  #watch(process: SimProcess, { create_request: range }: Params, listener: HttpListener): () => void {
    const watcher = { process, listener, from: plain(range?.key ?? ''), to: plain(range?.range_end ?? '') };
    const from = Number(range?.start_revision ?? this.#revision + 1);
    listener.onHead(200);
    const missed = this.#history.filter(({ revision }) => revision >= from);
    if (from + missed.length <= this.#revision) {
      listener.onData(Buffer.from(`{"result":{"canceled":true,"compact_revision":"${this.#revision}"}}\n`));
      return () => {};
    }
    this.#watchers.add(watcher);
    listener.onData(Buffer.from('{"result":{"created":true}}\n'));
    for (const change of missed) this.#tell(watcher, change);
    return () => this.#watchers.delete(watcher);
  }

  #change(name: string, entry: EtcdEntry | undefined): void {
    if (entry === undefined) this.#entries.delete(name);
    else this.#entries.set(name, { value: entry.value, lease: entry.lease });
    const change = { name, revision: ++this.#revision, entry };
    this.#history.push(change);
    if (this.#history.length > HISTORY_MAX_COUNT) this.#history.shift();
    for (const watcher of this.#watchers) {
      if (!watcher.process.isAlive) this.#watchers.delete(watcher);
      else this.#tell(watcher, change);
    }
  }

  #tell(watcher: Watcher, { name, revision, entry }: Change): void {
    if (name < watcher.from || name >= watcher.to) return;
    this.#count('event');
    const kv = { key: encoded(name), mod_revision: String(revision), ...entry };
    const event = { ...(entry === undefined ? { type: 'DELETE' } : {}), kv };
    const line = Buffer.from(`${JSON.stringify({ result: { events: [event] } })}\n`);
    later(watcher.process, () => this.#watchers.has(watcher) && watcher.listener.onData(line));
  }

  #renew(id: string, ttlS: number): void {
    const endMs = this.#world.nowMs + ttlS * 1000;
    this.#leases.set(id, { ttlS, endMs });
    this.#world.at(endMs, () => {
      if (this.#state === 'up') this.#expire();
    });
  }

  #expire(): void {
    for (const [id, { endMs }] of [...this.#leases]) if (endMs <= this.#world.nowMs) this.#end(id);
  }

  #end(id: string): void {
    this.#leases.delete(id);
    for (const [name, { lease }] of [...this.#entries]) if (lease === id) this.#change(name, undefined);
  }

  #count(name: string): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }
}

function later(process: SimProcess, fn: () => void): void {
  if (process.isAlive) process.clock.after(ANSWER_MS, fn);
}

function plain(base64: string): string {
  return Buffer.from(base64, 'base64').toString();
}

function encoded(text: string): string {
  return Buffer.from(text).toString('base64');
}
