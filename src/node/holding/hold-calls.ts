import type { Endpoint } from '../../base/environment/network.js';
import { MeshCacheError, ProtocolError } from '../../base/errors.js';
import { HOLD_REQUEST_MAX_KEYS } from '../../base/limits.js';
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
import type { RpcCallOptions, RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import {
  ASKED_REASONS,
  type AskedPages,
  type HoldOutcome,
  type HoldRequest,
  type OtherHolders,
} from '../../store/ground/other-holders.js';
import type { HeldPages } from '../../store/holding/held-pages.js';
import { DataLocation } from '../../types.js';

/** The calls by which nodes hold pages for each other; PROTOCOL.md beside this file describes their fields. */
const HoldMethod = { hold: 'pages.hold', release: 'pages.release' } as const;

/** The outcomes, indexed by their numbers in an answer. */
const OUTCOMES = ['absent', 'held', 'later', 'outdated', 'too_large', 'busy'] as const;
const HELD = OUTCOMES.indexOf('held');

export interface HoldCallsOptions {
  readonly rpc: RpcClient;
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  /** This node's id, which identifies it as the asker. */
  readonly nodeId: string;
}

/** Asks other nodes to hold pages, and answers such requests from them. */
export class HoldCalls implements OtherHolders {
  readonly #options: HoldCallsOptions;

  constructor(options: HoldCallsOptions) {
    this.#options = options;
  }

  /** Answers other nodes by calling `held`. A malformed request is refused as a whole. */
  handle(server: RpcServer, held: Pick<HeldPages, 'hold' | 'release'>): void {
    server.handle(HoldMethod.hold, async (params) => {
      const request = readRequest(asFields(params));
      return answerOf(request, await held.hold(request));
    });
    server.handle(HoldMethod.release, (params) => {
      const fields = asFields(params);
      held.release(readAsker(fields), readKeys(fields, false));
      return {};
    });
  }

  async ask(nodeId: string, asked: AskedPages, options: RpcCallOptions = {}): Promise<HoldOutcome[] | undefined> {
    const { why, keys, pages } = asked;
    try {
      const located = why === 'promotion' ? {} : locationFields(LocationColumns.of(pages));
      const answer = await this.#call(HoldMethod.hold, nodeId, { why, ...keyFields(keys), ...located }, options);
      return outcomesOf(asFields(answer), nodeId, asked);
    } catch {
      return undefined;
    }
  }

  release(nodeId: string, keys: readonly string[]): void {
    this.#call(HoldMethod.release, nodeId, keyFields(keys)).catch(() => {});
  }

  async #call(method: string, nodeId: string, fields: Fields, options?: RpcCallOptions): Promise<unknown> {
    const { rpc, endpointOf, nodeId: asker } = this.#options;
    const endpoint = endpointOf(nodeId);
    if (endpoint === undefined)
      throw new MeshCacheError('ERR_UNREACHABLE', `${method}: node ${nodeId} is not a member of the cluster`);
    return rpc.call(endpoint, method, { asker, ...fields }, options);
  }
}

function readRequest(fields: Fields): HoldRequest {
  const why = ASKED_REASONS.find((reason) => reason === fields.why);
  if (why === undefined) throw new ProtocolError(`why: must be one of ${ASKED_REASONS.join(', ')}`);
  const asker = readAsker(fields);
  // The keys are copied out of the message, because they are kept.
  const keys = readKeys(fields, true);
  if (keys.length > HOLD_REQUEST_MAX_KEYS)
    throw new ProtocolError(
      `${HoldMethod.hold}: got ${keys.length} keys, at most ${HOLD_REQUEST_MAX_KEYS} are allowed`,
    );
  return { why, asker, keys, pages: why === 'promotion' ? [] : readPages(fields, asker, keys.length) };
}

function readAsker({ asker }: Fields): string {
  if (isNodeId(asker)) return asker;
  throw new ProtocolError('asker: not a node id');
}

/** The pages that the asking node has, one for each key. */
function readPages(fields: Fields, asker: string, count: number): DataLocation[] {
  const columns = readLocations(fields, count);
  return Array.from({ length: count }, (_, i) => {
    const page = columns.locationAt(i);
    if (page?.nodeId === asker && page.length > 0) return page;
    throw new ProtocolError('locations: each must be of a page that the asking node has');
  });
}

function answerOf({ why }: HoldRequest, outcomes: readonly HoldOutcome[]): Fields {
  const codes = Uint8Array.from(outcomes, (outcome) =>
    typeof outcome === 'string' ? OUTCOMES.indexOf(outcome) : HELD,
  );
  if (why !== 'promotion') return { outcomes: codes };
  const located = outcomes.filter((outcome) => outcome instanceof DataLocation);
  const stamp = { nodeId: '', incarnation: 0, generation: 0 };
  return { outcomes: codes, ...locationFields(LocationColumns.of(located, stamp)) };
}

/** Decodes the answer of a node. Throws {@link ProtocolError}. */
function outcomesOf(fields: Fields, nodeId: string, { why, keys }: AskedPages): HoldOutcome[] {
  const codes = readFlags(fields, 'outcomes', keys.length);
  const outcomes = Array.from(codes, (code): HoldOutcome => OUTCOMES[code] ?? 'absent');
  if (why !== 'promotion') return outcomes;
  const held = outcomes.filter((outcome) => outcome === 'held').length;
  const locations = readLocations(fields, held);
  let at = 0;
  return outcomes.map((outcome) => {
    if (outcome !== 'held') return outcome;
    const location = locations.locationAt(at++);
    if (location?.nodeId === nodeId && location.tier === 'memory') return location;
    throw new ProtocolError('locations: a page is not in the memory of the node that was asked');
  });
}
