import type { Clock } from '../../base/environment/clock.js';
import type { RandomSource } from '../../base/environment/random.js';
import type { PagePriority } from '../../core/index.js';
import type { CheckedStore } from '../check/checked-store.js';
import { PAGE_MIN_BYTES } from '../check/page-bytes.js';
import type { Scenario } from '../scenario/scenario.js';
import type { MixedWorkload } from '../scenario/workload.js';
import { below, forkedRandom } from '../world/kernel/seeds.js';

/** How a key is set: as a named entry (`own` ones by one node only), as a computed page, or in both ways. */
type KeyKind = (typeof KINDS)[number];
const KINDS = ['own', 'named', 'computed', 'both'] as const;

/** A key of the mixed workload. */
interface MixedKey {
  readonly kind: KeyKind;
  readonly name: string;
  /** Tag of the namespace; '' is the store's own. */
  readonly scope: string;
  /** Length of every content; undefined: each content has its own length. */
  readonly bytes: number | undefined;
}

/** One of this many named entries changes its length with each content. */
const CHANGING_ONE_IN = 4;

/** All keys of one mixed workload. */
export class MixedKeys {
  readonly workload: MixedWorkload;
  readonly scenario: Scenario;
  /** Kinds that have keys. */
  readonly kinds: readonly KeyKind[];
  /** Tags of the namespaces; '' is the store's own. */
  readonly scopes: readonly string[];
  readonly #keys = new Map<string, MixedKey>();

  constructor(workload: MixedWorkload, scenario: Scenario) {
    this.workload = workload;
    this.scenario = scenario;
    this.kinds = KINDS.filter((kind) => this.count(kind) > 0);
    this.scopes = ['', ...workload.namespaces];
  }

  /** Number of keys of a kind; for own keys, of each node. */
  count(kind: KeyKind): number {
    const { ownKeys, namedKeys, computedKeys, mixedKeys } = this.workload;
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

  /** A length for one content of a key without a fixed length. */
  lengthOf(chance: number): number {
    const { pageBytes } = this.scenario.shape;
    return PAGE_MIN_BYTES + (chance % (pageBytes - PAGE_MIN_BYTES + 1));
  }

  #fixedBytes(kind: KeyKind, index: number, node: number): number | undefined {
    const { pageBytes } = this.scenario.shape;
    if (kind === 'computed' || kind === 'both') return pageBytes;
    if (index % CHANGING_ONE_IN === 1) return undefined;
    if (index % 2 === 0) return pageBytes;
    return this.lengthOf(Math.imul(index * 64 + node + 1, 0x9e3779b1) >>> 0);
  }
}

/** Most pages of one call that pins or unpins. */
const PINNED_MAX_COUNT = 6;
const PIN_MAX_MS = 15_000;

/** The program on a node that makes the calls. */
interface MixedCaller {
  readonly clock: Clock;
  /** Number of the node's start, from 1; each start draws other random numbers. */
  readonly start: number;
}

/** A loop on one node that pins and unpins random pages. */
class PinCalls {
  readonly #keys: MixedKeys;
  readonly #store: CheckedStore;
  readonly #clock: Clock;
  readonly #random: RandomSource;

  constructor(keys: MixedKeys, store: CheckedStore, { clock, start }: MixedCaller) {
    this.#keys = keys;
    this.#store = store;
    this.#clock = clock;
    // Pins draw their own random numbers, so that the other calls are the same without pins.
    this.#random = forkedRandom(keys.scenario.seed, 'pins', store.id.node, start);
  }

  /** Pins and unpins until `isWorking` returns false, then resolves. */
  async loop(isWorking: () => boolean): Promise<void> {
    while (isWorking()) {
      const pauseMs = 1 + this.#below(2 * this.#keys.workload.pinEveryMs);
      await new Promise<void>((resolve) => this.#clock.after(pauseMs, resolve));
      this.#store.checkPins();
      if (isWorking()) await this.#step();
      this.#store.checkPins();
    }
  }

  async #step(): Promise<void> {
    const { scopes } = this.#keys;
    const scope = scopes[this.#below(scopes.length)] as string;
    const keys = this.#chosen(1 + this.#below(PINNED_MAX_COUNT), scope);
    if (keys.length === 0) return;
    if (this.#below(4) === 0) await this.#store.unpin(keys, scope);
    else await this.#store.pin(keys, { forMs: 1 + this.#below(PIN_MAX_MS), scope });
  }

  /** Random keys, more often computed ones, whose content stays the same. */
  #chosen(count: number, scope: string): { readonly name: string; readonly isComputed: boolean }[] {
    const keys = this.#keys;
    const chosen = new Map<string, boolean>();
    for (let i = 0; i < count && keys.kinds.length > 0; i++) {
      const isComputed = keys.count('computed') > 0 && this.#below(2) === 0;
      const kind = isComputed ? 'computed' : (keys.kinds[this.#below(keys.kinds.length)] as KeyKind);
      const node = 1 + this.#below(keys.scenario.nodes);
      const { name } = keys.key(kind, this.#below(keys.count(kind)), { node, scope });
      chosen.set(name, kind === 'computed');
    }
    return [...chosen].map(([name, isComputed]) => ({ name, isComputed }));
  }

  #below(count: number): number {
    return below(this.#random, count);
  }
}

/** Number of hot keys of each kind, which are the first ones. */
const HOT_KEYS_COUNT = 3;
const DELETED_MAX_COUNT = 3;
const LOOKED_UP_MAX_COUNT = 60;
/** One of this many sets has an expiry. */
const EXPIRING_ONE_IN = 8;
/** Longest expiry in milliseconds; shorter than the time in which pages must be found after the last fault. */
const EXPIRES_WITHIN_MS = 6_000;
/** The priorities of sets; every element is equally likely. */
const PRIORITIES: readonly (PagePriority | undefined)[] = [undefined, undefined, undefined, 'normal', 'low', 'high'];

/** Loops of random calls on one node: sets, reads, lookups, deletes, clears. */
export class MixedCalls {
  readonly #keys: MixedKeys;
  readonly #store: CheckedStore;
  readonly #clock: Clock;
  readonly #random: RandomSource;
  /** Draws which sets have an expiry, and how long it is. */
  readonly #expiryRandom: RandomSource;
  /** Draws the priorities of sets. */
  readonly #priorityRandom: RandomSource;
  /** Pins pages in addition to these calls; undefined if the workload has no pins. */
  readonly #pins: PinCalls | undefined;
  #loops: Promise<void>[] = [];
  #isWorking = false;

  constructor(keys: MixedKeys, store: CheckedStore, caller: MixedCaller) {
    const { seed } = keys.scenario;
    const { node } = store.id;
    this.#keys = keys;
    this.#store = store;
    this.#clock = caller.clock;
    this.#random = forkedRandom(seed, 'calls', node, caller.start);
    this.#expiryRandom = forkedRandom(seed, 'expiries', node, caller.start);
    this.#priorityRandom = forkedRandom(seed, 'priorities', node, caller.start);
    this.#pins = keys.workload.pinEveryMs === 0 ? undefined : new PinCalls(keys, store, caller);
  }

  start(): void {
    if (this.#isWorking) return;
    this.#isWorking = true;
    this.#loops = Array.from({ length: this.#keys.workload.callers }, () => this.#loop());
    if (this.#pins !== undefined) this.#loops.push(this.#pins.loop(() => this.#isWorking));
  }

  /** Stops the calls. Resolves when none is in progress. */
  async rest(): Promise<void> {
    this.#isWorking = false;
    await Promise.all(this.#loops.splice(0));
  }

  async #loop(): Promise<void> {
    const { pauseMaxMs } = this.#keys.workload;
    while (this.#isWorking) {
      await this.#step();
      await new Promise<void>((resolve) => this.#clock.after(1 + this.#below(pauseMaxMs), resolve));
    }
  }

  async #step(): Promise<void> {
    const { deleteOneIn, clearOneIn, setShare } = this.#keys.workload;
    const { scopes } = this.#keys;
    const scope = scopes[this.#below(scopes.length)] as string;
    if (clearOneIn > 0 && this.#below(clearOneIn) === 0) return this.#clear();
    if (deleteOneIn > 0 && this.#below(deleteOneIn) === 0) return this.#delete(scope);
    const dice = this.#below(1000) / 1000;
    if (dice < setShare) return this.#set(scope);
    // The remaining calls read batches, read copies or look up, in these proportions.
    const rest = (dice - setShare) / (1 - setShare);
    if (rest < 0.7) return this.#read(scope);
    if (rest < 0.85) return this.#readCopy(scope);
    return this.#lookUp(scope);
  }

  async #set(scope: string): Promise<void> {
    const keys = this.#keys;
    const isComputed = this.#below(2) === 0;
    const kinds = isComputed ? ['computed', 'both'] : ['own', 'named', 'both'];
    const chosen = this.#distinct(1 + this.#below(keys.workload.batchMaxPages), scope, kinds, this.#store.id.node);
    if (chosen.length === 0) return;
    const terms = { expiresInMs: this.#expiry(), priority: this.#priority() };
    if (isComputed) {
      await this.#store.setComputed(
        chosen.map(({ name }) => name),
        scope,
        terms,
      );
      return;
    }
    const pages = chosen.map(({ name, bytes }) => {
      return { key: name, bytes: bytes ?? keys.lengthOf(this.#random.u32()) };
    });
    await this.#store.setNamed(pages, scope, terms);
  }

  #priority(): PagePriority | undefined {
    return PRIORITIES[below(this.#priorityRandom, PRIORITIES.length)];
  }

  /** Milliseconds after which the pages of a set expire; undefined: they do not. */
  #expiry(): number | undefined {
    if (below(this.#expiryRandom, EXPIRING_ONE_IN) > 0) return undefined;
    return 1 + below(this.#expiryRandom, EXPIRES_WITHIN_MS);
  }

  async #read(scope: string): Promise<void> {
    const count = 1 + this.#below(this.#keys.workload.batchMaxPages);
    if (this.#below(2) === 0) {
      const chosen = this.#distinct(count, scope, ['computed', 'both']);
      if (chosen.length > 0)
        await this.#store.getComputed(
          chosen.map(({ name }) => name),
          scope,
        );
      return;
    }
    const chosen = this.#distinct(count, scope, ['own', 'named', 'both']);
    const pages = chosen.flatMap(({ name, bytes }) => (bytes === undefined ? [] : [{ key: name, bytes }]));
    if (pages.length > 0) await this.#store.getNamed(pages, scope);
  }

  async #readCopy(scope: string): Promise<void> {
    const [key] = this.#distinct(1, scope, this.#keys.kinds);
    if (key !== undefined) await this.#store.getCopy(key.name, scope);
  }

  async #lookUp(scope: string): Promise<void> {
    const keys = this.#distinct(1 + this.#below(LOOKED_UP_MAX_COUNT), scope, this.#keys.kinds);
    const names = keys.map(({ name }) => name);
    if (names.length > 0) await this.#store.exists(names, scope);
  }

  async #delete(scope: string): Promise<void> {
    const keys = this.#distinct(1 + this.#below(DELETED_MAX_COUNT), scope, this.#keys.kinds);
    const names = keys.map(({ name }) => name);
    if (names.length > 0) await this.#store.delete(names, scope);
  }

  async #clear(): Promise<void> {
    // The scope '' clears all namespaces, any other scope only its own.
    const { scopes } = this.#keys;
    await this.#store.clear(scopes[this.#below(scopes.length)]);
  }

  /** At most `count` distinct keys of these kinds; own keys are those of `owner`, or of any node without it. */
  #distinct(count: number, scope: string, kinds: readonly string[], owner?: number): MixedKey[] {
    const able = this.#keys.kinds.filter((kind) => kinds.includes(kind));
    if (able.length === 0) return [];
    const keys = new Set<MixedKey>();
    for (let i = 0; i < count; i++) {
      const kind = able[this.#below(able.length)] as KeyKind;
      const node = owner ?? 1 + this.#below(this.#keys.scenario.nodes);
      keys.add(this.#keys.key(kind, this.#indexOf(kind), { node, scope }));
    }
    return [...keys];
  }

  #indexOf(kind: KeyKind): number {
    const count = this.#keys.count(kind);
    const isHot = this.#below(1000) < this.#keys.workload.hotShare * 1000;
    return this.#below(isHot ? Math.min(HOT_KEYS_COUNT, count) : count);
  }

  #below(count: number): number {
    return below(this.#random, count);
  }
}
