import { ProtocolError } from '../base/errors.js';
import { DIRECTORY_AVOIDED_MAX_COUNT } from '../base/limits.js';
import type { RpcServer } from '../rpc/server.js';
import { inlineFields, type PageBytesAt } from './messages/inline-pages.js';
import { isNodeId, isWholeNumber, LocationColumns } from './messages/location-columns.js';
import { NoteColumns } from './messages/note-columns.js';
import {
  asFields,
  DirectoryMethod,
  type Fields,
  locationFields,
  readKeys,
  readLocations,
  readWish,
} from './messages/wire.js';
import { DirectoryShard } from './shard/shard.js';

/** Options of a {@link DirectoryServer}. */
export interface DirectoryServerOptions {
  readonly shard?: DirectoryShard;
  /**
   * Resolves when the holders of pages under these keys that the shard has displaced so far have been told, or when the
   * wait for them has been long enough.
   */
  readonly displacedTold?: (keys: readonly string[]) => Promise<void>;
}

/** The pages of this node. */
export interface OwnPages {
  /** Locations of pages that the node may name without the owners of their keys; see `OwnLocations.findSure`. */
  sureLocationsOf(keys: readonly string[]): LocationColumns;
  readonly bytesAt: PageBytesAt;
}

/** Answers the directory's calls from one shard. A malformed request is refused as a whole, and counted. */
export class DirectoryServer {
  readonly #shard: DirectoryShard;
  readonly #displacedTold: (keys: readonly string[]) => Promise<void>;
  #own: OwnPages | undefined;

  /** Creates a server. Default shard: a new one that treats every node as live. */
  constructor({ shard = new DirectoryShard(), displacedTold = async () => {} }: DirectoryServerOptions = {}) {
    this.#shard = shard;
    this.#displacedTold = displacedTold;
  }

  /** Registers `directory.put`, `.get`, `.exists`, `.delete`, `.renounce`, `.discard` and `.note`. */
  attach(rpc: RpcServer): void {
    rpc.handle(DirectoryMethod.put, (params) => this.#put(asFields(params)));
    rpc.handle(DirectoryMethod.get, (params) => this.#get(asFields(params)));
    rpc.handle(DirectoryMethod.exists, (params) => this.#exists(asFields(params)));
    rpc.handle(DirectoryMethod.delete, (params) => this.#delete(asFields(params)));
    rpc.handle(DirectoryMethod.renounce, (params) => this.#renounce(asFields(params)));
    rpc.handle(DirectoryMethod.discard, (params) => this.#discard(asFields(params)));
    rpc.handle(DirectoryMethod.note, (params) => this.#note(asFields(params)));
  }

  /** Answers lookups for the node's own pages from these. */
  answerFrom(own: OwnPages): void {
    this.#own = own;
  }

  async #put(fields: Fields): Promise<unknown> {
    const keys = readKeys(fields, true);
    const locations = readLocations(fields, keys.length);
    const taken = this.#shard.put(keys, locations, readWish(fields));
    await this.#displacedTold(keys);
    return { taken, newest_version: this.#shard.newestVersion };
  }

  #get(fields: Fields): unknown {
    const asker = fields.asker ?? '';
    if (typeof asker !== 'string') throw new ProtocolError('asker: not text');
    const keys = readKeys(fields, false);
    const found = fields.own === true ? this.#ownLocations(keys) : this.#shard.get(keys, asker, readAvoided(fields));
    return { ...locationFields(found), ...this.#inlineFields(keys, found, fields) };
  }

  /** Pages of this node that are sent with their locations. */
  #inlineFields(keys: readonly string[], found: LocationColumns, { room }: Fields): Fields {
    if (room === undefined || this.#own === undefined) return {};
    if (!isWholeNumber(room)) throw new ProtocolError('room: not a whole number up to 2^53');
    const { bytesAt } = this.#own;
    return inlineFields(keys, found, { room, bytesAt });
  }

  #ownLocations(keys: readonly string[]): LocationColumns {
    return this.#own?.sureLocationsOf(keys) ?? new LocationColumns(keys.length);
  }

  #exists(fields: Fields): unknown {
    return { found: this.#shard.exists(readKeys(fields, false)) };
  }

  #delete(fields: Fields): unknown {
    const said = readStatements(fields);
    this.#shard.delete(readKeys(fields, false), said);
    return {};
  }

  #discard(fields: Fields): unknown {
    const keys = readKeys(fields, false);
    this.#shard.discard(keys, readLocations(fields, keys.length));
    return {};
  }

  #note(fields: Fields): unknown {
    this.#shard.takeNotes(NoteColumns.decode(fields));
    return {};
  }

  #renounce(fields: Fields): unknown {
    const { nodeId, incarnation, generation } = readStatements(fields);
    this.#shard.renounce(nodeId, incarnation, generation);
    return {};
  }
}

/** Reads the nodes from which the asker could not read. Most requests leave the field out. */
function readAvoided({ avoided = [] }: Fields): readonly string[] {
  const isList = Array.isArray(avoided) && avoided.length <= DIRECTORY_AVOIDED_MAX_COUNT;
  if (isList && avoided.every(isNodeId)) return avoided;
  throw new ProtocolError(`avoided: not a list of at most ${DIRECTORY_AVOIDED_MAX_COUNT} node ids`);
}

/** Reads which statements a message is about: node, incarnation and generation. */
function readStatements({ node_id: nodeId, incarnation, generation }: Fields) {
  if (isNodeId(nodeId) && isWholeNumber(incarnation) && isWholeNumber(generation))
    return { nodeId, incarnation, generation };
  throw new ProtocolError('node_id, incarnation and generation are required');
}
