import { isExpired } from '../../base/expiry.js';
import { KEY_PREFIX_BYTES } from '../../base/limits.js';
import { KeyEncoder } from '../../core/index.js';
import { wholeNamespace } from '../../store/namespace/whole-namespace.js';
import { type PageToSet, scoped } from '../check/checked-store.js';
import type { SimNode } from './sim-node.js';

/** A page that some nodes have. */
export interface Survivor extends PageToSet {
  readonly scope: string;
  /** Names of the nodes and tiers that hold it, for messages. */
  readonly holders: string[];
}

/** Lists the pages in the pools and on the disks of nodes, by keys as the workload names them. */
export class Survivors {
  readonly #scopes: readonly string[];
  readonly #isStated: (name: string) => boolean;
  #scopeByPrefix: ReadonlyMap<string, string> | undefined;

  /**
   * `scopes` are tags of namespaces; '' is the stores' own. Pages that the checker does not know are left out: programs
   * may set pages past it.
   */
  constructor(scopes: readonly string[], isStated: (name: string) => boolean) {
    this.#scopes = scopes;
    this.#isStated = isStated;
  }

  /**
   * Pages by scope, key and length: a key may have pages of several lengths. Pages that are expired by the clock of any of the nodes are left
   * out: nodes whose clocks differ see a page end at different times, and those that are ahead do not find it any more.
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
