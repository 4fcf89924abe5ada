import { PAGE_MIN_BYTES } from '../check/page-bytes.js';
import type { Shape } from '../scenario/scenario.js';
import type { MixedWorkload } from '../scenario/workload.js';

/** How an entry is set: always in one way, or in both. */
export type KeyKind = 'own' | 'named' | 'computed' | 'both';

/** A key of the mixed workload. */
export interface MixedKey {
  readonly kind: KeyKind;
  readonly name: string;
  /** Tag of the namespace; '' is the store's own. */
  readonly scope: string;
  /** Length of every content; undefined: each content has its own length. */
  readonly bytes: number | undefined;
}

/** One named entry of this many has another length with each content. */
const CHANGING_ONE_IN = 4;

/** All keys of one mixed workload. */
export class MixedKeys {
  readonly #keys = new Map<string, MixedKey>();
  readonly #workload: MixedWorkload;
  readonly #shape: Shape;

  constructor(workload: MixedWorkload, shape: Shape) {
    this.#workload = workload;
    this.#shape = shape;
  }

  /** Number of keys of a kind; for own keys, of each node. */
  count(kind: KeyKind): number {
    const { ownKeys, namedKeys, computedKeys, mixedKeys } = this.#workload;
    return { own: ownKeys, named: namedKeys, computed: computedKeys, both: mixedKeys }[kind];
  }

  /** The key with an index; `node` matters for own keys only. */
  key(kind: KeyKind, index: number, { node, scope }: { readonly node: number; readonly scope: string }): MixedKey {
    const name = kind === 'own' ? `own-${node}-${index}` : `${kind}-${index}`;
    const id = `${scope}/${name}`;
    let key = this.#keys.get(id);
    if (key === undefined) {
      key = { kind, name, scope, bytes: this.#fixedBytes(kind, index, node) };
      this.#keys.set(id, key);
    }
    return key;
  }

  /** A length for one content of a key that has no length of its own. */
  lengthOf(chance: number): number {
    const { pageBytes } = this.#shape;
    return PAGE_MIN_BYTES + (chance % (pageBytes - PAGE_MIN_BYTES + 1));
  }

  #fixedBytes(kind: KeyKind, index: number, node: number): number | undefined {
    const { pageBytes } = this.#shape;
    if (kind === 'computed' || kind === 'both') return pageBytes;
    if (index % CHANGING_ONE_IN === 1) return undefined;
    if (index % 2 === 0) return pageBytes;
    return this.lengthOf(Math.imul(index * 64 + node + 1, 0x9e3779b1) >>> 0);
  }
}
