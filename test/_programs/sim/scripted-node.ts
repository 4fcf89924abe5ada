// A store that does what it is told, call by call: in a simulated world, or, when this file is run, in a process of its
// own.
import type { StorageConfig } from '../../../src/config.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { content } from '../../_support/support.js';

export const PAGE_BYTES = 4096;
const CALL_MAX_PAGES = 64;

/** `named` keys have one content, that of the call's seed; the content of other keys follows from the key. */
export interface ScriptCall {
  readonly kind: 'set' | 'get' | 'exists' | 'delete' | 'clear';
  readonly isNamed: boolean;
  readonly keys: readonly number[];
  readonly seed: number;
}

/** State of a node at the end. */
export interface NodeState {
  readonly hits: Readonly<Record<'local' | 'remote' | 'disk', number>>;
  readonly misses: number;
  readonly evictions: number;
  readonly members: number;
  /** Keys of its pages in its pool and on its disk. */
  readonly holdings: readonly string[];
  /** The node that the directory names for each requested key. */
  readonly directory: readonly (string | null)[];
}

/**
 * The answer to `call` is the result for each key; the answer to `ask` is the state, with the directory's answers for
 * these keys.
 */
export type ScriptMessage = { readonly call: ScriptCall } | { readonly ask: readonly ScriptCall[] };

export class ScriptedNode {
  readonly #store: MeshCacheStore;
  readonly #region = HostRegion.allocate(CALL_MAX_PAGES * PAGE_BYTES);

  constructor(store: MeshCacheStore) {
    this.#store = store;
  }

  async open(): Promise<void> {
    await this.#store.registerMemPoolHost({
      region: this.#region,
      getPageBufferMeta: (indices) => ({
        ptrs: Array.from(indices, (index) => this.#addr(Number(index))),
        sizes: Array.from(indices, () => PAGE_BYTES),
      }),
    });
  }

  async answer(message: ScriptMessage): Promise<unknown> {
    return 'call' in message ? this.#call(message.call) : this.#state(message.ask);
  }

  async close(): Promise<void> {
    await this.#store.close();
    this.#region.free();
  }

  async #call(call: ScriptCall): Promise<readonly unknown[]> {
    const store = this.#store;
    const keys = namesOf(call);
    const slots = keys.map((_, i) => i);
    const ptrs = slots.map((i) => this.#addr(i));
    const sizes = keys.map(() => PAGE_BYTES);
    if (call.kind === 'clear') {
      await store.clear();
      return [];
    }
    if (call.kind === 'delete') return store.delete(keys);
    if (call.kind === 'exists') return Promise.all(keys.map((key) => store.exists(key)));
    if (call.kind === 'set') {
      for (const [i, key] of call.keys.entries()) this.#page(i).set(contentOf(call, key));
      return call.isNamed ? store.batchSet(keys, ptrs, sizes) : store.batchSetV1(keys, slots);
    }
    const isRead = await (call.isNamed ? store.batchGet(keys, ptrs, sizes) : store.batchGetV1(keys, slots));
    // The first bytes of each page that was read, in which the contents differ.
    return isRead.map((ok, i) => ok && Buffer.from(this.#page(i).subarray(0, 8)).toString('hex'));
  }

  async #state(asked: readonly ScriptCall[]): Promise<NodeState> {
    const { hits, misses, evictions, members } = this.#store.stats();
    const keys = asked.flatMap((call) => this.#store.keyEncoder.encodeKeys([...namesOf(call)], 'kv'));
    const locations = await this.#store.runtime.directory.get(keys);
    return {
      hits,
      misses,
      evictions,
      members,
      holdings: Array.from(this.#store.holdings(), ([key]) => key).sort(),
      directory: locations.map((location) => location?.nodeId ?? null),
    };
  }

  #addr(i: number): bigint {
    return this.#region.addr + BigInt(i * PAGE_BYTES);
  }

  #page(i: number): Uint8Array {
    return this.#region.bytes(i * PAGE_BYTES, PAGE_BYTES);
  }
}

function namesOf({ keys, isNamed }: ScriptCall): string[] {
  return keys.map((key) => `${isNamed ? 'named' : 'computed'} ${key}`);
}

function contentOf({ isNamed, seed }: ScriptCall, key: number): Uint8Array {
  return content(isNamed ? seed * 1000 + key : key, PAGE_BYTES);
}

if (process.send !== undefined && process.argv[2] === 'scripted') {
  let node: ScriptedNode | undefined;
  process.on('message', async ({ start, message }: { start?: StorageConfig; message?: ScriptMessage }) => {
    if (start !== undefined) {
      node = new ScriptedNode(await MeshCacheStore.create(start));
      await node.open();
      process.send?.({ answer: null });
    } else if (message !== undefined) {
      process.send?.({ answer: await node?.answer(message) });
    }
  });
  process.once('disconnect', () => process.exit());
}
