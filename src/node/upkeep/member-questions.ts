import { ProtocolError } from '../../base/errors.js';
import { JOINING_IN_FLIGHT_MAX_COUNT, LOGGED_IDS_MAX_COUNT } from '../../base/limits.js';
import { isNodeId } from '../../directory/messages/location-columns.js';
import type { RpcClient } from '../../rpc/client.js';
import type { NodeInfo } from '../../types.js';

/** An incarnation of a node that asks the members about itself. */
export interface AskingStart {
  readonly nodeId: string;
  readonly incarnation: number;
}

/** Parses the asking node from the params of a question. Throws `ProtocolError`. */
export function startIn(params: unknown, method: string): AskingStart {
  const { node_id: nodeId, incarnation } = (params ?? {}) as Readonly<Record<string, unknown>>;
  if (isNodeId(nodeId) && Number.isSafeInteger(incarnation)) return { nodeId, incarnation: incarnation as number };
  throw new ProtocolError(`${method}: needs a node_id and an incarnation`);
}

/** A yes-or-no question of a node to members about itself; the answer is in one field. */
export interface MemberQuestion {
  readonly method: string;
  /** The field of the answer. */
  readonly field: string;
  readonly rpc: Pick<RpcClient, 'call'>;
}

/** Asks one member; false if it does not answer. Never rejects. */
export async function askMember(
  { method, field, rpc }: MemberQuestion,
  node: NodeInfo,
  { nodeId, incarnation }: Partial<AskingStart>,
  options?: Parameters<RpcClient['call']>[3],
): Promise<boolean> {
  const endpoint = { host: node.controlHost, port: node.controlPort };
  try {
    const answer = await rpc.call(endpoint, method, { node_id: nodeId, incarnation }, options);
    return (answer as Readonly<Record<string, unknown>> | null)?.[field] === true;
  } catch {
    return false;
  }
}

/**
 * Asks the members that `next` returns until it returns none, JOINING_IN_FLIGHT_MAX_COUNT at a time; returns those for
 * which `ask` is true.
 */
export async function askEach(
  next: () => NodeInfo | undefined,
  ask: (node: NodeInfo) => Promise<boolean>,
): Promise<NodeInfo[]> {
  const agreed: NodeInfo[] = [];
  const askNext = async (): Promise<void> => {
    for (let node = next(); node !== undefined; node = next()) if (await ask(node)) agreed.push(node);
  };
  await Promise.all(Array.from({ length: JOINING_IN_FLIGHT_MAX_COUNT }, askNext));
  return agreed;
}

/** Log fields: the number of members, and the ids of the first ones. */
export function shownMembers(nodeIds: readonly string[]): { readonly nodes: number; readonly first: string } {
  return { nodes: nodeIds.length, first: nodeIds.slice(0, LOGGED_IDS_MAX_COUNT).join(', ') };
}
