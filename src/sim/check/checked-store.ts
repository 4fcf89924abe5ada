import { ClosedError, DiskError } from '../../base/errors.js';
import { KeyEncoder } from '../../core/index.js';
import { HostRegion } from '../../memory/host-region.js';
import type { MeshCacheStore } from '../../node/meshcache-store.js';
import type { WriteOptions } from '../../store/call/call-options.js';
import { MAIN_POOL } from '../../store/namespace/hybrid.js';
import { wholeNamespace } from '../../store/namespace/node-namespace.js';
import type { StoreNamespace } from '../../store/namespace/store-namespace.js';
import type { CallKind } from './call-watch.js';
import type { Checker } from './checker.js';
import { PAGE_MIN_BYTES } from './page-bytes.js';
import type { ProcessId, Statement } from './statements.js';

/** A computed page that a program has pinned. */
interface PinnedPage {
  /** Name of the key in the `Checker`. */
  readonly name: string;
  /** Earliest end of the pin, in virtual milliseconds. */
  untilMs: number;
}

/** The memory through which a {@link CheckedStore} moves pages. */
export interface CheckedStoreOptions {
  /** Most pages in all calls in progress together. */
  readonly slots: number;
  /** Bytes of a slot, which bounds the length of a page. */
  readonly slotBytes: number;
  /** Length of every computed page. */
  readonly pageBytes: number;
  /** Number of pieces of a computed page, such as 2 for K and V. */
  readonly components?: number;
}

/** A named page to be set. */
export interface PageToSet {
  readonly key: string;
  readonly bytes: number;
}

/** A page to be pinned. */
export interface PageToPin {
  readonly name: string;
  /** Whether the content of its key never changes. */
  readonly isComputed: boolean;
}

/** Receives the content that a read has delivered. */
export type OnContent = (name: string, content: number) => void;

/** Separates the namespace from the name in keys of the `Checker`; keys of the store's own namespace have none. */
const SCOPE_SEPARATOR = '/';

/** Options of a call that sets pages. */
export type SetTerms = WriteOptions;

/**
 * Records and checks the calls of one store: pages that are set identify themselves, and pages that are read are
 * compared with those that were set. A call ends as a miss if the store is closed meanwhile.
 */
export class CheckedStore {
  readonly id: ProcessId;
  readonly store: MeshCacheStore;
  readonly #checker: Checker;
  readonly #options: CheckedStoreOptions;
  readonly #region: HostRegion;
  readonly #freeSlots: number[];
  /** Calls that wait for slots, in the order of their arrival. */
  readonly #waiting: (() => void)[] = [];
  readonly #namespaces = new Map<string, StoreNamespace>();
  readonly #encoders = new Map<string, KeyEncoder>();
  readonly #pins: PinnedPages;
  #isClosing = false;

  constructor(store: MeshCacheStore, id: ProcessId, checker: Checker, options: CheckedStoreOptions) {
    this.store = store;
    this.id = id;
    this.#checker = checker;
    this.#options = options;
    this.#pins = new PinnedPages(store, id, checker);
    this.#region = HostRegion.wrap(new SharedArrayBuffer(options.slots * options.slotBytes));
    this.#freeSlots = Array.from({ length: options.slots }, (_, i) => options.slots - 1 - i);
  }

  /** Opens a scope, before its first call. '' is the store's own namespace; other scopes are tags. */
  async open(scope: string): Promise<void> {
    const namespace = scope === '' ? this.store : this.store.namespace({ tag: scope });
    this.#namespaces.set(scope, namespace);
    await namespace.registerMemPoolHost({
      region: this.#region,
      getPageBufferMeta: (indices) => this.#pageMeta(indices),
    });
  }

  /** Sets named pages in one call; true for each page that is set. */
  async setNamed(pages: readonly PageToSet[], scope = '', options: SetTerms = {}): Promise<boolean[]> {
    const namespace = this.#namespaceOf(scope);
    const { expiresInMs } = options;
    const keys = pages.map(({ key }) => key);
    return this.#withSlots(pages.length, (slots) =>
      this.#stated({ kind: 'named', scope, pages, expiresInMs }, (statements) => {
        this.#fillAll(slots, pages, scope, statements);
        const sizes = pages.map(({ bytes }) => bytes);
        return pages.length === 1
          ? namespace
              .set(keys[0] as string, this.#address(slots[0] as number), sizes[0] as number, options)
              .then((set) => [set])
          : namespace.batchSet(
              keys,
              slots.map((slot) => this.#address(slot)),
              sizes,
              options,
            );
      }),
    );
  }

  /** Sets computed pages in one call; true for each page that is set. */
  async setComputed(keys: readonly string[], scope = '', options: SetTerms = {}): Promise<boolean[]> {
    const { expiresInMs } = options;
    const namespace = this.#namespaceOf(scope);
    const { pageBytes: bytes } = this.#options;
    const pages = keys.map((key) => ({ key, bytes }));
    return this.#withSlots(keys.length, (slots) =>
      this.#stated({ kind: 'computed', scope, pages, expiresInMs }, (statements) => {
        this.#fillAll(slots, pages, scope, statements);
        return namespace.batchSetV1([...keys], slots, options);
      }),
    );
  }

  /**
   * Reads named pages of known lengths. `onContent` receives each page's content, by the key's name in the `Checker`.
   */
  async getNamed(pages: readonly PageToSet[], scope = '', onContent?: OnContent): Promise<boolean[]> {
    const namespace = this.#namespaceOf(scope);
    const sizes = pages.map(({ bytes }) => bytes);
    const keys = pages.map(({ key }) => key);
    return this.#withSlots(pages.length, (slots) =>
      this.#read(keys, { slots, sizes, scope, onContent }, () =>
        namespace.batchGet(
          keys,
          slots.map((slot) => this.#address(slot)),
          sizes,
        ),
      ),
    );
  }

  /** Reads computed pages. */
  async getComputed(keys: readonly string[], scope = ''): Promise<boolean[]> {
    const namespace = this.#namespaceOf(scope);
    const sizes = keys.map(() => this.#options.pageBytes);
    return this.#withSlots(keys.length, (slots) =>
      this.#read(keys, { slots, sizes, scope }, () => namespace.batchGetV1([...keys], slots)),
    );
  }

  /** Reads a page of unknown length. Resolves with its content, or undefined for a miss. */
  async getCopy(key: string, scope = ''): Promise<number | undefined> {
    const begin = { ...this.id, beginMs: this.#checker.nowMs(), present: this.#present() };
    const page = await this.#call('get', null, () => this.#namespaceOf(scope).get(key));
    return page === null ? undefined : this.#checker.read(scoped(scope, key), page, begin);
  }

  /** The number of keys that exist before the first that does not. */
  async exists(keys: readonly string[], scope = ''): Promise<number> {
    const found = await this.#call('exists', 0, () => this.#namespaceOf(scope).batchExists([...keys]));
    if (!(found >= 0 && found <= keys.length)) {
      const detail = `batchExists of ${keys.length} keys gives ${found}`;
      this.#checker.violated('answer', this.id.node, { rule: 'exists', detail });
    }
    return found;
  }

  /** Deletes pages everywhere; true for each page that is gone from all nodes. */
  async delete(keys: readonly string[], scope = ''): Promise<boolean[]> {
    const pages = keys.map((key) => ({ key, bytes: 0 }));
    return this.#stated({ kind: 'delete', scope, pages }, () => this.#namespaceOf(scope).delete(keys));
  }

  /** Clears one namespace; '' clears all pages of the node. */
  async clear(scope = ''): Promise<void> {
    const { statements } = this.#checker;
    const begin = { ...this.id, atMs: this.#checker.nowMs(), version: this.#version() };
    const statement = statements.beginClear({ ...begin, scope: scope === '' ? '' : scoped(scope, '') });
    const isTrue = await this.#call('clear', false, async () => {
      await this.#namespaceOf(scope).clear();
      return true;
    });
    statements.end(statement, undefined, {
      atMs: this.#checker.nowMs(),
      version: this.#version(),
      members: this.#members(),
      isTrue,
    });
  }

  /**
   * Pins pages for `forMs`; true for each page that is pinned. {@link checkPins} checks that computed ones stay in the
   * pool until then.
   */
  async pin(
    keys: readonly PageToPin[],
    { forMs, scope = '' }: { readonly forMs: number; readonly scope?: string },
  ): Promise<boolean[]> {
    const names = keys.map(({ name }) => name);
    const untilMs = this.#checker.nowMs() + forMs;
    const none = keys.map(() => false);
    const results = await this.#call('pin', none, () => this.#namespaceOf(scope).pin(names, { forMs }));
    keys.forEach(({ name, isComputed }, i) => {
      if (!isComputed || results[i] !== true || this.#isClosing) return;
      this.#pins.pinned(this.#objectKey(scope, name), scoped(scope, name), untilMs);
    });
    return results;
  }

  /** Ends the pins of pages. */
  async unpin(keys: readonly PageToPin[], scope = ''): Promise<boolean[]> {
    const names = keys.map(({ name }) => name);
    for (const name of names) this.#pins.unpinning(this.#objectKey(scope, name));
    return this.#call(
      'pin',
      names.map(() => false),
      () => this.#namespaceOf(scope).unpin(names),
    );
  }

  /** Checks that pinned pages are in the pool. */
  checkPins(): void {
    if (!this.#isClosing) this.#pins.check();
  }

  /** Notes that the store is being closed, so that calls may fail. */
  closing(): void {
    this.#isClosing = true;
  }

  /** Frees the memory. No call may be in progress. */
  free(): void {
    this.#region.free();
  }

  async #stated(
    what: {
      readonly kind: 'named' | 'computed' | 'delete';
      readonly scope: string;
      readonly pages: readonly PageToSet[];
      readonly expiresInMs?: number | undefined;
    },
    call: (statements: readonly Statement[]) => Promise<boolean[]>,
  ): Promise<boolean[]> {
    const { kind, scope, pages, expiresInMs = Number.POSITIVE_INFINITY } = what;
    const { statements } = this.#checker;
    const begin = { ...this.id, kind, expiresInMs, atMs: this.#checker.nowMs(), version: this.#version() };
    const names = pages.map(({ key }) => scoped(scope, key));
    const begun = pages.map(({ bytes }, i) => statements.begin({ ...begin, key: names[i] as string, length: bytes }));
    const failed: (boolean | undefined)[] = pages.map(() => undefined);
    const results = await this.#call(kind === 'delete' ? 'delete' : 'set', failed, () => call(begun));
    if (results.length !== pages.length) {
      const detail = `${kind} of ${pages.length} keys gives ${results.length} results`;
      this.#checker.violated('answer', this.id.node, { rule: kind, detail });
    }
    const expiredBy = Number.isFinite(expiresInMs) ? this.#versionIn(expiresInMs) : expiresInMs;
    const end = { atMs: this.#checker.nowMs(), version: this.#version(), members: this.#members(), expiredBy };
    begun.forEach((each, i) => {
      statements.end(each, names[i], { ...end, isTrue: results[i] });
    });
    return results.map((result) => result === true);
  }

  async #read(
    keys: readonly string[],
    into: {
      readonly slots: readonly number[];
      readonly sizes: readonly number[];
      readonly scope: string;
      readonly onContent?: OnContent | undefined;
    },
    call: () => Promise<boolean[]>,
  ): Promise<boolean[]> {
    const { slots, sizes, scope, onContent } = into;
    const none = keys.map(() => false);
    // Slots are wiped, so that a read that delivers nothing cannot pass with an earlier page.
    for (const slot of slots) this.#bytes(slot, PAGE_MIN_BYTES).fill(0);
    const begin = { ...this.id, beginMs: this.#checker.nowMs(), present: this.#present() };
    const read = await this.#call('get', none, call);
    if (read.length !== keys.length) {
      const detail = `a read of ${keys.length} keys gives ${read.length} results`;
      this.#checker.violated('answer', this.id.node, { rule: 'get', detail });
    }
    keys.forEach((key, i) => {
      if (read[i] !== true) return;
      const page = this.#bytes(slots[i] as number, sizes[i] as number);
      const content = this.#checker.read(scoped(scope, key), page, begin);
      if (content !== undefined) onContent?.(scoped(scope, key), content);
    });
    return read;
  }

  /** Whether an error is a valid answer: the store is being closed, or the disk fails and cannot record a clear. */
  #isAnswer(kind: CallKind, error: unknown): boolean {
    if (error instanceof ClosedError) return this.#isClosing;
    if (kind !== 'clear' || !(error instanceof DiskError)) return false;
    // An error with a cause comes from the disk, which may work again by now.
    return error.cause !== undefined || (this.store.stats().disk?.failure ?? null) !== null;
  }

  async #call<T>(kind: CallKind, otherwise: T, call: () => Promise<T>): Promise<T> {
    const end = this.#checker.watch.begin(kind, this.id);
    try {
      return await call();
    } catch (error) {
      if (!this.#isAnswer(kind, error)) {
        const { name, stack } = error as Error;
        this.#checker.violated('threw', this.id.node, { rule: `${kind}: ${name}`, detail: String(stack ?? error) });
      }
      return otherwise;
    } finally {
      end();
    }
  }

  #version(): number {
    // A stopped node issues no versions.
    if (this.#isClosing) return Number.POSITIVE_INFINITY;
    return this.store.runtime.versions.next();
  }

  /** The present of the node's hybrid clock; 0 once the node stops. */
  #present(): number {
    return this.#isClosing ? 0 : this.store.runtime.versions.now();
  }

  /** A version that the clock of the node reaches within `ms` milliseconds. */
  #versionIn(ms: number): number {
    return this.#isClosing ? Number.POSITIVE_INFINITY : this.store.runtime.versions.in(ms);
  }

  #members(): number {
    return this.#isClosing ? 1 : this.store.runtime.members().size;
  }

  #objectKey(scope: string, name: string): string {
    if (scope === '') return this.store.keyEncoder.encodeKeys([name], MAIN_POOL)[0] as string;
    let encoder = this.#encoders.get(scope);
    if (encoder === undefined) {
      encoder = new KeyEncoder(wholeNamespace({ tag: scope }));
      this.#encoders.set(scope, encoder);
    }
    return encoder.encodeKeys([name], MAIN_POOL)[0] as string;
  }

  #namespaceOf(scope: string): StoreNamespace {
    const namespace = this.#namespaces.get(scope);
    if (namespace === undefined) throw new Error(`the scope ${scope} was not opened`);
    return namespace;
  }

  async #withSlots<T>(count: number, work: (slots: number[]) => Promise<T>): Promise<T> {
    if (count > this.#options.slots)
      throw new Error(`${count} pages in one call, there are ${this.#options.slots} slots`);
    while (count > this.#freeSlots.length) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    const slots = this.#freeSlots.splice(this.#freeSlots.length - count, count);
    try {
      return await work(slots);
    } finally {
      this.#freeSlots.push(...slots);
      for (const resume of this.#waiting.splice(0)) resume();
    }
  }

  #fillAll(slots: readonly number[], pages: readonly PageToSet[], scope: string, of: readonly Statement[]): void {
    pages.forEach(({ key, bytes }, i) => {
      const { number } = this.#checker.statements.of(scoped(scope, key));
      this.#checker.bytes.fill(this.#bytes(slots[i] as number, bytes), number, of[i]?.content ?? -1);
    });
  }

  #bytes(slot: number, length: number): Uint8Array {
    return this.#region.bytes(slot * this.#options.slotBytes, length);
  }

  #address(slot: number): bigint {
    return this.#region.addr + BigInt(slot * this.#options.slotBytes);
  }

  #pageMeta(indices: ArrayLike<number | bigint>): { ptrs: bigint[]; sizes: number[] } {
    const { pageBytes, components = 1 } = this.#options;
    const pieceBytes = pageBytes / components;
    const ptrs: bigint[] = [];
    for (let i = 0; i < indices.length; i++) {
      const address = this.#address(Number(indices[i]));
      for (let piece = 0; piece < components; piece++) ptrs.push(address + BigInt(piece * pieceBytes));
    }
    return { ptrs, sizes: ptrs.map(() => pieceBytes) };
  }
}

/** The name of a key in the `Checker`. */
export function scoped(scope: string, key: string): string {
  return scope === '' ? key : `${scope}${SCOPE_SEPARATOR}${key}`;
}

/**
 * The pages that the program of one store has pinned. Each must be in the store's pool until its pin ends, unless it
 * was removed.
 */
class PinnedPages {
  readonly #store: MeshCacheStore;
  readonly #id: ProcessId;
  readonly #checker: Checker;
  /** By object key. */
  readonly #pages = new Map<string, PinnedPage>();

  constructor(store: MeshCacheStore, id: ProcessId, checker: Checker) {
    this.#store = store;
    this.#id = id;
    this.#checker = checker;
  }

  /** Notes a page that is pinned at least until `untilMs`. */
  pinned(objectKey: string, name: string, untilMs: number): void {
    const known = this.#pages.get(objectKey);
    if (known === undefined) this.#pages.set(objectKey, { name, untilMs });
    else known.untilMs = Math.max(known.untilMs, untilMs);
  }

  /** Notes that a pin may end from now on. */
  unpinning(objectKey: string): void {
    this.#pages.delete(objectKey);
  }

  /** Reports each pinned page that is missing from the pool although no one has removed it. */
  check(): void {
    const nowMs = this.#checker.nowMs();
    for (const [key, { name, untilMs }] of this.#pages) {
      if (untilMs <= nowMs || this.#checker.statements.mayBeRemoved(name)) this.#pages.delete(key);
    }
    if (this.#pages.size === 0) return;
    const missing = new Map(this.#pages);
    for (const [key, { tier }] of this.#store.holdings()) if (tier === 'memory') missing.delete(key);
    for (const [key, { name, untilMs }] of missing) {
      this.#pages.delete(key);
      const detail = `${name}: pinned until ${untilMs.toFixed(3)} ms, and not in the pool at ${nowMs.toFixed(3)} ms`;
      this.#checker.violated('pin', this.#id.node, { rule: '', detail, key: name });
    }
  }
}
