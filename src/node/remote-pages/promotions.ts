import type { Endpoint } from '../../base/environment/network.js';
import { MeshCacheError, ProtocolError } from '../../base/errors.js';
import { isNodeId, LocationColumns } from '../../directory/messages/location-columns.js';
import {
  asFields,
  type Fields,
  keyFields,
  locationFields,
  readFlags,
  readKeys,
  readLocations,
} from '../../directory/messages/wire.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { PromoteOutcome, Promoter } from '../../store/disk/promoter.js';
import type { DataLocation } from '../../types.js';

/** The calls by which nodes ask owners for pages on their disks; PROMOTE.md beside this file describes their fields. */
const PromoteMethod = { promote: 'disk.promote', release: 'disk.release' } as const;

/** Outcomes in the answer, one byte a key. */
const ABSENT = 0;
const PROMOTED = 1;
const LATER = 2;

export interface PromotionsOptions {
  readonly rpc: RpcClient;
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  /** This node's id, by which owners tell readers apart. */
  readonly nodeId: string;
}

/** Asks other nodes to bring pages from their disks into their pools, and answers the same request of others. */
export class Promotions {
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly #nodeId: string;

  constructor({ rpc, endpointOf, nodeId }: PromotionsOptions) {
    this.#rpc = rpc;
    this.#endpointOf = endpointOf;
    this.#nodeId = nodeId;
  }

  /** Answers other nodes with what `promoter` does. A malformed request is refused as a whole. */
  handle(server: RpcServer, promoter: Pick<Promoter, 'promote' | 'release'>): void {
    server.handle(PromoteMethod.promote, async (params) => {
      const fields = asFields(params);
      // The keys are copied out of the message, because the promoter keeps them.
      return answerOf(await promoter.promote(readReader(fields), readKeys(fields, true)));
    });
    server.handle(PromoteMethod.release, (params) => {
      const fields = asFields(params);
      promoter.release(readReader(fields), readKeys(fields, false));
      return {};
    });
  }

  /**
   * Asks an owner to bring pages into its pool: one outcome a key; all `absent` when the owner cannot be reached, fails
   * or gives an invalid answer. Never rejects. The keys must fit in one directory request, by count and by bytes.
   */
  async ask(nodeId: string, keys: readonly string[]): Promise<PromoteOutcome[]> {
    try {
      const answer = await this.#call(nodeId, PromoteMethod.promote, keys);
      return outcomesOf(asFields(answer), nodeId, keys.length);
    } catch {
      return keys.map(() => 'absent');
    }
  }

  /**
   * Tells an owner that pages which it has promoted have been read. Best effort: the owner's lease of them ends by
   * itself, too.
   */
  release(nodeId: string, keys: readonly string[]): void {
    this.#call(nodeId, PromoteMethod.release, keys).catch(() => {});
  }

  async #call(nodeId: string, method: string, keys: readonly string[]): Promise<unknown> {
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint === undefined)
      throw new MeshCacheError('ERR_UNREACHABLE', `${method}: node ${nodeId} is not a member of the cluster`);
    return this.#rpc.call(endpoint, method, { reader: this.#nodeId, ...keyFields(keys) });
  }
}

function readReader({ reader }: Fields): string {
  if (isNodeId(reader)) return reader;
  throw new ProtocolError('reader: not a node id');
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

/** Decodes an owner's answer. Throws {@link ProtocolError}. */
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
    throw new ProtocolError('promote: the location is not in the memory of the node that was asked');
  });
}
