import type { Endpoint } from '../../base/environment/network.js';
import { MeshCacheError, ProtocolError } from '../../base/errors.js';
import { isNodeId, LocationColumns } from '../../directory/location-columns.js';
import {
  asFields,
  type Fields,
  keyFields,
  locationFields,
  readFlags,
  readKeys,
  readLocations,
} from '../../directory/wire.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { PromoteOutcome, Promoter } from '../../store/promoter.js';
import type { DataLocation } from '../../types.js';

/** Messages by which nodes ask owners for pages of their disks; PROMOTE.md beside this file has them field by field. */
const PromoteMethod = { promote: 'disk.promote', release: 'disk.release' } as const;

/** One byte a key in the answer. */
const ABSENT = 0;
const PROMOTED = 1;
const LATER = 2;

export interface PromotionsOptions {
  readonly rpc: RpcClient;
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  /** The own node: owners tell readers apart by it. */
  readonly nodeId: string;
}

/** Asks other nodes to bring pages from their disks into their pools, and answers when they ask. */
export class Promotions {
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly #nodeId: string;

  constructor({ rpc, endpointOf, nodeId }: PromotionsOptions) {
    this.#rpc = rpc;
    this.#endpointOf = endpointOf;
    this.#nodeId = nodeId;
  }

  /** Answers other nodes out of `promoter` from now on. Requests that are not well-formed are refused whole. */
  handle(server: RpcServer, promoter: Pick<Promoter, 'promote' | 'release'>): void {
    server.handle(PromoteMethod.promote, async (params) => {
      const fields = asFields(params);
      // Copies: the promoter keeps them.
      return answerOf(await promoter.promote(readReader(fields), readKeys(fields, true)));
    });
    server.handle(PromoteMethod.release, (params) => {
      const fields = asFields(params);
      promoter.release(readReader(fields), readKeys(fields, false));
      return {};
    });
  }

  /**
   * One outcome a key; all `absent` when the owner cannot be reached, fails or answers what cannot be right. Never rejects.
   * At most as many keys, and bytes of keys, as fit in a directory request.
   */
  async ask(nodeId: string, keys: readonly string[]): Promise<PromoteOutcome[]> {
    try {
      const answer = await this.#call(nodeId, PromoteMethod.promote, keys);
      return outcomesOf(asFields(answer), nodeId, keys.length);
    } catch {
      return keys.map(() => 'absent');
    }
  }

  /** Tells an owner that pages which it has promoted are read. Best effort: it takes back what it lends anyway. */
  release(nodeId: string, keys: readonly string[]): void {
    this.#call(nodeId, PromoteMethod.release, keys).catch(() => {});
  }

  async #call(nodeId: string, method: string, keys: readonly string[]): Promise<unknown> {
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint === undefined) throw new MeshCacheError('ERR_UNREACHABLE', `${method}: no node ${nodeId}`);
    return this.#rpc.call(endpoint, method, { reader: this.#nodeId, ...keyFields(keys) });
  }
}

function readReader({ reader }: Fields): string {
  if (isNodeId(reader)) return reader;
  throw new ProtocolError('reader: no node id');
}

function answerOf(outcomes: readonly PromoteOutcome[]): Record<string, unknown> {
  const promoted: DataLocation[] = [];
  const flags = Uint8Array.from(outcomes, (outcome) => {
    if (outcome === 'absent') return ABSENT;
    if (outcome === 'later') return LATER;
    promoted.push(outcome);
    return PROMOTED;
  });
  const stamp = { nodeId: '', incarnation: 0, generation: 0 };
  return { outcomes: flags, ...locationFields(LocationColumns.of(promoted, stamp)) };
}

/** Throws {@link ProtocolError}. */
function outcomesOf(fields: Fields, nodeId: string, count: number): PromoteOutcome[] {
  const flags = readFlags(fields, 'outcomes', count);
  const locations = readLocations(
    fields,
    flags.reduce((sum, flag) => sum + Number(flag === PROMOTED), 0),
  );
  let at = 0;
  return Array.from(flags, (flag) => {
    if (flag === LATER) return 'later';
    if (flag !== PROMOTED) return 'absent';
    const location = locations.locationAt(at++);
    if (location?.nodeId === nodeId && location.tier === 'memory') return location;
    throw new ProtocolError('promote: not a page in the memory of who was asked');
  });
}
