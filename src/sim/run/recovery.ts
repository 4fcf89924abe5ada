import { isExpired } from '../../base/expiry.js';
import {
  KEY_PREFIX_BYTES,
  READ_CONNECT_TIMEOUT_MS,
  READ_RETRY_MAX_MS,
  READ_STALL_TIMEOUT_MS,
} from '../../base/limits.js';
import { KeyEncoder } from '../../core/index.js';
import { wholeNamespace } from '../../store/namespace/node-namespace.js';
import { type PageToSet, scoped } from '../check/checked-store.js';
import { ORDER_BOUND_MS } from '../check/read-order.js';
import { type SimCluster, searchingMs } from './sim-cluster.js';
import type { SimNode } from './sim-node.js';

/** A page that at least one node has. */
interface Survivor extends PageToSet {
  readonly scope: string;
  /** Names of the nodes and tiers that hold it, for messages. */
  readonly holders: string[];
}

/** How long a cluster took to recover after the last fault. */
export interface RecoveryTimes {
  /** Milliseconds until every node knew all others; null: not in time. */
  readonly membersMs: number | null;
  /**
   * Milliseconds until every page of any node was found from every node or, if there are very many pages, from some
   * nodes; null: not in time.
   */
  readonly foundMs: number | null;
  /** Number of different pages of the nodes when the search began. */
  readonly pages: number;
}

/** Milliseconds between two attempts to find missing pages. */
const PAUSE_MS = 100;
const BATCH_PAGES = 64;
/** Most reads (pages times nodes) in each of the two passes. */
const READS_MAX_COUNT = 65_536;
/**
 * Shortest time for which nodes look for pages, however long the calls of the workload took to end after the last
 * fault. Only a read can discover that a connection has died silently, and then the peer is not asked for a while.
 */
const SEARCH_MIN_MS = READ_CONNECT_TIMEOUT_MS + READ_STALL_TIMEOUT_MS + READ_RETRY_MAX_MS + PAUSE_MS;
/** Milliseconds added to ORDER_BOUND_MS. */
const MARGIN_MS = 500;
const SHOWN_COUNT = 10;

/** Checks that every page of the nodes is found from every node, and that in the end all nodes read the same. */
export class Recovery {
  readonly #cluster: SimCluster;
  readonly #survivors: Survivors;

  constructor(cluster: SimCluster) {
    this.#cluster = cluster;
    this.#survivors = new Survivors(cluster.scopes, (name) => cluster.checker.statements.has(name));
  }

  /**
   * Must be called when the workload rests after the last fault, which ended at `healedMs`. Lost pages are violations.
   */
  async run(healedMs: number): Promise<RecoveryTimes> {
    const { world, scenario } = this.#cluster;
    let untilMs = healedMs + scenario.settleMs;
    const leftMs = () => untilMs - world.nowMs;
    let membersMs: number | null = null;
    while (!this.#allKnowAll() && leftMs() > 0) await this.#sleep(PAUSE_MS);
    if (this.#allKnowAll()) membersMs = world.nowMs - healedMs;
    const first = this.#survivors.of(this.#up());
    let there = first;
    untilMs = Math.max(untilMs, world.nowMs + SEARCH_MIN_MS) + searchingMs(scenario, first.size);
    const up = this.#up();
    const missing = new Map(
      up.map((node, index) => [node, shareOf(first.keys(), first.size, { index, nodes: up.length })]),
    );
    // All nodes search at once, because each may have to wait for timeouts, such as those of dead connections.
    const finding = Array.from(missing, async ([node, ids]) => {
      for (;;) {
        await this.#find(node, ids, there);
        if (ids.size === 0) return;
        there = this.#survivors.of(this.#up());
        for (const id of ids) if (!there.has(id)) ids.delete(id);
        if (ids.size === 0 || leftMs() <= 0) return;
        await this.#sleep(PAUSE_MS);
      }
    });
    await Promise.all(finding);
    const foundMs = world.nowMs - healedMs;
    this.#judge(missing, there, membersMs);
    const isFound = [...missing.values()].every((ids) => ids.size === 0);
    return { membersMs, foundMs: isFound ? foundMs : null, pages: first.size };
  }

  /** Lets every node read everything again after ORDER_BOUND_MS. Different contents of a named entry are violations. */
  async readAgain(): Promise<void> {
    const { checker } = this.#cluster;
    await this.#sleep(ORDER_BOUND_MS + MARGIN_MS);
    const contents = new Map<string, Set<number>>();
    const there = this.#survivors.of(this.#up());
    const up = this.#up();
    for (const [index, node] of up.entries()) {
      await this.#find(node, shareOf(there.keys(), there.size, { index, nodes: up.length }), there, (name, content) => {
        const known = contents.get(name);
        if (known === undefined) contents.set(name, new Set([content]));
        else known.add(content);
      });
    }
    for (const [name, different] of contents) {
      const { sets } = checker.statements.of(name);
      // Any content of a computed page is correct.
      if (different.size < 2 || [...sets.values()].some(({ kind }) => kind === 'computed')) continue;
      const detail = `${name}: nodes read the contents ${[...different].join(', ')}`;
      checker.violated('disagree', 0, { rule: '', detail });
    }
  }

  #judge(
    missing: ReadonlyMap<SimNode, ReadonlySet<string>>,
    there: ReadonlyMap<string, Survivor>,
    membersMs: number | null,
  ): void {
    const { checker, scenario } = this.#cluster;
    if (membersMs === null) {
      const known = this.#up().map(
        ({ name, store }) => `${name}: ${[...(store?.runtime.members().keys() ?? [])].sort().join(' ')}`,
      );
      const detail = `${scenario.settleMs} ms after the last fault, nodes do not know each other: ${known.join('; ')}`;
      checker.violated('lost', 0, { rule: 'members', detail });
    }
    for (const [{ number }, ids] of missing) {
      if (ids.size === 0) continue;
      const shown = [...ids].slice(0, SHOWN_COUNT).map((id) => `${id} of ${there.get(id)?.holders.join(' and ')}`);
      const detail = `${ids.size} pages that are there were not found within ${scenario.settleMs} ms: ${shown.join(', ')}`;
      checker.violated('lost', number, { rule: 'pages', detail });
    }
  }

  /** Removes from `ids` the pages that the node finds. */
  async #find(
    node: SimNode,
    ids: Set<string>,
    there: ReadonlyMap<string, Survivor>,
    onContent?: (name: string, content: number) => void,
  ): Promise<void> {
    await node.run(async ({ checked }) => {
      for (const scope of this.#cluster.scopes) {
        const left = [...ids].flatMap((id) => {
          const survivor = there.get(id);
          return survivor?.scope === scope ? [{ id, ...survivor }] : [];
        });
        for (const batch of batchesOf(left, BATCH_PAGES)) {
          const read = await checked.getNamed(batch, scope, onContent);
          batch.forEach(({ id }, i) => {
            if (read[i] === true) ids.delete(id);
          });
        }
      }
    });
  }

  #allKnowAll(): boolean {
    const up = this.#up();
    return up.every(({ store }) => up.every(({ name }) => store?.runtime.members().has(name) === true));
  }

  #up(): SimNode[] {
    return this.#cluster.nodes.filter(({ isUp }) => isUp);
  }

  #sleep(ms: number): Promise<void> {
    const { world } = this.#cluster;
    return new Promise((resolve) => world.at(world.nowMs + ms, resolve));
  }
}

/** Batches of at most `count` pages with distinct keys. Pages of one key with other lengths are in other batches. */
function* batchesOf<T extends Survivor>(pages: readonly T[], count: number): Generator<T[], void> {
  let at = 0;
  let waiting: T[] = [];
  while (waiting.length > 0 || at < pages.length) {
    const taken = new Map<string, T>();
    const candidates = waiting;
    waiting = [];
    for (let i = 0; i < candidates.length || (at < pages.length && taken.size < count); i++) {
      const page = candidates[i] ?? (pages[at++] as T);
      if (taken.size >= count || taken.has(page.key)) waiting.push(page);
      else taken.set(page.key, page);
    }
    yield [...taken.values()];
  }
}

/**
 * The pages that the node at `index` looks for: all, unless that would be too many reads. In that case each page is
 * looked for by as many nodes as READS_MAX_COUNT allows, at least one.
 */
function shareOf(
  ids: Iterable<string>,
  pages: number,
  { index, nodes }: { index: number; nodes: number },
): Set<string> {
  const step = Math.min(nodes, Math.max(1, Math.ceil((pages * nodes) / READS_MAX_COUNT)));
  return new Set([...ids].filter((_, i) => (i + index) % step === 0));
}

/** Lists the pages in the pools and on the disks of nodes, by the keys that the workload uses. */
class Survivors {
  readonly #scopes: readonly string[];
  readonly #isStated: (name: string) => boolean;
  #scopeByPrefix: ReadonlyMap<string, string> | undefined;

  /**
   * `scopes`: tags of namespaces; '' is the stores' own. Pages that the checker does not know are left out, because
   * programs may set pages without it.
   */
  constructor(scopes: readonly string[], isStated: (name: string) => boolean) {
    this.#scopes = scopes;
    this.#isStated = isStated;
  }

  /**
   * Pages by scope, key and length, because a key may have pages of several lengths. Pages that have expired by the
   * clock of any node are left out: nodes whose clocks differ see a page end at different times, and those that are
   * ahead no longer find it.
   */
  of(nodes: readonly SimNode[]): Map<string, Survivor> {
    const found = new Map<string, Survivor>();
    const present = Math.max(0, ...nodes.map(({ store }) => store?.runtime.versions.now() ?? 0));
    for (const node of nodes) {
      const { store } = node;
      if (store === undefined) continue;
      this.#scopeByPrefix ??= this.#prefixes(store.keyEncoder);
      for (const [objectKey, { length, tier, version, expires }] of store.holdings()) {
        if (isExpired(expires, present)) continue;
        const scope = this.#scopeByPrefix.get(objectKey.slice(0, KEY_PREFIX_BYTES));
        if (scope === undefined) continue;
        const key = objectKey.slice(KEY_PREFIX_BYTES);
        if (!this.#isStated(scoped(scope, key))) continue;
        const id = `${scope}/${key} ${length}`;
        const holder = `${node.name} (${tier}, version ${version})`;
        const known = found.get(id);
        if (known === undefined) found.set(id, { scope, key, bytes: length, holders: [holder] });
        else known.holders.push(holder);
      }
    }
    return found;
  }

  #prefixes(own: KeyEncoder): Map<string, string> {
    const prefixOf = (encoder: KeyEncoder) => (encoder.encodeKeys(['-'])[0] as string).slice(0, KEY_PREFIX_BYTES);
    return new Map(
      this.#scopes.map((scope) => {
        return [prefixOf(scope === '' ? own : new KeyEncoder(wholeNamespace({ tag: scope }))), scope];
      }),
    );
  }
}
