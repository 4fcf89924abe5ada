import { isDeepStrictEqual } from 'node:util';
import { ProtocolError } from '../../../src/base/errors.js';
import { DIRECTORY_AVOIDED_MAX_COUNT } from '../../../src/base/limits.js';
import { partitionsOf } from '../../../src/core/ring/partitions.js';
import { LocationColumns } from '../../../src/directory/messages/location-columns.js';
import { NoteColumns } from '../../../src/directory/messages/note-columns.js';
import { Taken } from '../../../src/directory/messages/taken.js';
import {
  DirectoryMethod,
  keyFields,
  locationFields,
  readKeys,
  readLocations,
} from '../../../src/directory/messages/wire.js';
import { DirectoryServer } from '../../../src/directory/server.js';
import { digestOf } from '../../../src/directory/shard/removals.js';
import { DirectoryShard } from '../../../src/directory/shard/shard.js';
import type { DataLocation } from '../../../src/types.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { Handlers } from '../handlers.js';
import { hexFields, receivedValue, valueInput } from '../values.js';
import { checkLocations, locationOf } from './directory.js';

const CALLS_MAX_COUNT = 12;

/** A list of calls to one new shard: [method, params]; what it has is looked at before and after each. */
export const directoryServer: Fuzzer = {
  name: 'directory-server',
  what: 'a directory shard and its requests: refused whole, or what they say',
  form: 'value',
  seeds: () => {
    const keys = ['page-1', 'page-2', 'grün'];
    const columns = LocationColumns.of(
      keys.map((_, i) => locationOf(i)),
      { nodeId: 'n0', incarnation: 1, generation: 7 },
    );
    const wireKeys = hexFields(keyFields(keys));
    const put = { ...wireKeys, ...hexFields(locationFields(columns)) };
    const other = { ...put, nodes: (put.nodes as unknown[][]).map(([, ...rest]) => ['n5', ...rest]) };
    const dropped = { node_id: 'n0', incarnation: 1, generation: 100 };
    const wishes = { ...wireKeys, asker: 'n1', avoided: ['n0', 'n3'] };
    const notes = new NoteColumns();
    for (const [i, key] of keys.entries()) notes.add(digestOf(key), 1 + i, partitionsOf([key])[0] as number);
    const noted = hexFields(notes.fields());
    const calls = [
      [
        ['directory.put', put],
        ['directory.note', noted],
        ['directory.get', wishes],
        ['directory.put', other],
      ],
      [
        ['directory.put', put],
        ['directory.get', { ...wireKeys, asker: 'n1' }],
        ['directory.get', wishes],
        ['directory.exists', wireKeys],
      ],
      [
        ['directory.put', put],
        ['directory.delete', { ...wireKeys, ...dropped }],
        ['directory.put', put],
      ],
      [
        ['directory.put', put],
        ['directory.put', other],
        ['directory.get', wishes],
        ['directory.renounce', dropped],
        ['directory.get', wishes],
        ['directory.put', put],
        ['directory.renounce', { ...dropped, node_id: 'n5', generation: 1 }],
      ],
      [
        ['directory.put', put],
        ['directory.put', { ...other, unless_held: true }],
        ['directory.discard', put],
        ['directory.put', { ...other, unless_held: true }],
        ['directory.get', wishes],
      ],
      [
        ['directory.put', put],
        ['directory.put', other],
        ['directory.delete', { ...wireKeys, ...dropped }],
        ['directory.put', other],
      ],
    ];
    return calls.map((list) => valueInput(list as never));
  },
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined || !Array.isArray(received.value)) return;
    const watched = new WatchedShard();
    for (const step of received.value.slice(0, CALLS_MAX_COUNT)) {
      if (Array.isArray(step)) await watched.call(step[0], step[1]);
    }
  },
};

type Content = ReadonlyMap<string, readonly DataLocation[]>;
type Params = Readonly<Record<string, unknown>>;

/** Which statements a call is about. */
interface Dropped {
  readonly node_id: string;
  readonly incarnation: number;
  readonly generation: number;
}

class WatchedShard {
  readonly #shard = new DirectoryShard();
  readonly #handlers = new Handlers();
  readonly #renounced: Dropped[] = [];

  constructor() {
    new DirectoryServer({ shard: this.#shard }).attach(this.#handlers.asServer());
  }

  async call(method: unknown, params: unknown): Promise<void> {
    const [before, statsBefore] = [this.#content(), this.#shard.stats()];
    const answer = await this.#handlers.call(method, params);
    this.#shard.verify();
    const after = this.#content();
    const isAsking = method === DirectoryMethod.get || method === DirectoryMethod.exists;
    if (answer === undefined || isAsking) {
      check(isDeepStrictEqual(after, before), 'changed by what was refused, or asked');
      check(isDeepStrictEqual(this.#shard.stats(), statsBefore), 'counted what was refused');
    }
    if (answer === undefined) return;
    const fields = params as Params;
    const keys = unlessRefused([ProtocolError], () => readKeys(fields, false))?.value ?? [];
    if (method === DirectoryMethod.get) checkFound(keys, fields, { answer: answer.value, content: before });
    if (method === DirectoryMethod.exists) checkFlags(keys, (answer.value as { found: Uint8Array }).found, before);
    if (method === DirectoryMethod.put) {
      const { taken } = answer.value as { taken: Uint8Array };
      check(
        taken.length === keys.length && keys.every((key, i) => !isThere(taken[i]) || after.has(key)),
        'taken or held, and gone',
      );
    }
    if (method === DirectoryMethod.delete) {
      checkDropped(before, after, (key, location) => {
        if (!keys.includes(key)) return 'stays';
        return isOf(location, fields as never) ? 'goes' : 'stays';
      });
    }
    if (method === DirectoryMethod.discard) {
      const stale = readLocations(fields, keys.length);
      checkDropped(before, after, (key, location) => {
        const isStale = keys.some((other, i) => {
          const { nodeId, incarnation, generation } = stale.locationAt(i) ?? {};
          return other === key && isOf(location, { node_id: nodeId, incarnation, generation } as Dropped);
        });
        return isStale ? 'goes' : 'stays';
      });
    }
    if (method === DirectoryMethod.renounce) this.#checkRenounced(before, fields as never);
  }

  #checkRenounced(before: Content, dropped: Dropped): void {
    for (const _ of this.#shard.voidLocations.dropRenounced(1));
    const isNews = this.#renounced.every(
      ({ node_id, incarnation, generation }) =>
        node_id !== dropped.node_id || incarnation !== dropped.incarnation || generation < dropped.generation,
    );
    this.#renounced.push(dropped);
    const after = this.#content();
    checkDropped(before, after, (_, location) =>
      this.#renounced.some((renounced) => isOf(location, renounced)) ? 'may go' : 'stays',
    );
    check(!isNews || ![...after.values()].flat().some((location) => isOf(location, dropped)), 'a void statement stays');
  }

  /** Everything, by asking: each time without the nodes that are known. */
  #content(): Content {
    const content = new Map<string, DataLocation[]>();
    for (const key of [...this.#shard.keys()]) {
      const found: DataLocation[] = [];
      for (;;) {
        const seen = found.map(({ nodeId }) => nodeId);
        const columns = this.#shard.get([key], '', seen);
        checkLocations(columns);
        const location = columns.locationAt(0);
        if (location === null || seen.includes(location.nodeId)) break;
        found.push(location);
      }
      check(found.length >= 1, 'a key without locations');
      content.set(
        key,
        found.toSorted((a, b) => (a.nodeId < b.nodeId ? -1 : 1)),
      );
    }
    return content;
  }
}

/** Who is avoided is named only when all others are, too; then who asks, when there is nobody else at all. */
function checkFound(
  keys: readonly string[],
  { asker = '', avoided = [] }: Params,
  { answer, content }: { answer: unknown; content: Content },
): void {
  const { locations, nodes } = answer as Params;
  const found = LocationColumns.decode(locations, nodes);
  check(found.count === keys.length, 'another number of locations than of keys');
  checkLocations(found);
  const isAvoided = (nodeId: string): boolean => (avoided as string[]).includes(nodeId);
  check((avoided as string[]).length <= DIRECTORY_AVOIDED_MAX_COUNT, 'too many avoided');
  for (const [i, key] of keys.entries()) {
    const known = content.get(key) ?? [];
    const location = found.locationAt(i);
    check((location === null) === (known.length === 0), 'not found, and there; or the other way round');
    if (location === null) continue;
    check(
      known.some((other) => isDeepStrictEqual(other, location)),
      'a location that nobody has stated',
    );
    const others = known.filter(({ nodeId }) => nodeId !== asker);
    const wanted = others.filter(({ nodeId }) => !isAvoided(nodeId));
    if (location.nodeId === asker) check(others.length === 0, 'the own page, and others have it');
    else if (isAvoided(location.nodeId)) check(wanted.length === 0, 'an avoided node, and others have it');
    else
      check(location.tier === 'memory' || wanted.every(({ tier }) => tier === 'disk'), 'on disk, and others in memory');
  }
}

function checkFlags(keys: readonly string[], flags: Uint8Array, content: Content): void {
  check(flags.length === keys.length, 'another number of flags than of keys');
  for (const [i, key] of keys.entries()) check(flags[i] === Number(content.has(key)), 'exists, and is not found');
}

/** Nothing has gone that `fate` says stays, and nothing is left that goes. */
function checkDropped(
  before: Content,
  after: Content,
  fate: (key: string, location: DataLocation) => 'stays' | 'may go' | 'goes',
): void {
  for (const [key, locations] of before) {
    const left = after.get(key) ?? [];
    for (const location of locations) {
      const isLeft = left.some((other) => isDeepStrictEqual(other, location));
      check(isLeft || fate(key, location) !== 'stays', 'another statement has gone');
      check(!isLeft || fate(key, location) !== 'goes', 'a deleted statement stays');
    }
  }
}

function isThere(taken: number | undefined): boolean {
  return taken === Taken.taken || taken === Taken.held;
}

function isOf({ nodeId, incarnation, generation }: DataLocation, dropped: Dropped): boolean {
  return nodeId === dropped.node_id && incarnation === dropped.incarnation && generation <= dropped.generation;
}
