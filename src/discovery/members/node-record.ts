import { parseEndpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { NODE_ENDPOINT_MAX_CHARACTERS, NODE_ID_MAX_BYTES, ZONE_MAX_CHARACTERS } from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { NodeInfo } from '../../types.js';

const HOST_MAX_CHARACTERS = 255;

/** Decodes the record of a node; throws `ProtocolError` if it is invalid. */
export function decodeNode(value: unknown): NodeInfo {
  const info = NodeInfo.fromDict(asMap(value));
  checkNodeId(info.nodeId);
  for (const host of [info.controlHost, info.rdmaHost, info.tcpHost, info.metricsHost]) {
    if (host.length > HOST_MAX_CHARACTERS) throw new ProtocolError('discovery: host name too long');
  }
  if (info.controlHost === '' || info.controlPort === 0) throw new ProtocolError('discovery: no control address');
  if (info.masterAddr !== '') checkMasterAddr(info.masterAddr);
  if (info.zone !== undefined && (info.zone.length > ZONE_MAX_CHARACTERS || hasControls(info.zone))) {
    throw new ProtocolError('discovery: zone');
  }
  return info;
}

/** The value as a map; throws `ProtocolError` if it is none. */
export function asMap(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new ProtocolError('discovery: not a map');
}

/** The value as a node id; throws `ProtocolError` if it is none. */
export function checkNodeId(value: unknown): string {
  const isId = typeof value === 'string' && value !== '' && bytesOf(value) <= NODE_ID_MAX_BYTES;
  if (isId && !hasControls(value)) return value;
  throw new ProtocolError('discovery: node_id');
}

/** Upper bound of the text's length in UTF-8; exact near the limit. */
function bytesOf(text: string): number {
  const maxBytes = 3 * text.length;
  return maxBytes <= NODE_ID_MAX_BYTES ? maxBytes : Buffer.byteLength(text);
}

/**
 * Whether the text has control characters (`\p{Cc}`). A loop, because every heartbeat and every member of a list is
 * checked.
 */
function hasControls(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x20 || (unit >= 0x7f && unit < 0xa0)) return true;
  }
  return false;
}

function checkMasterAddr(addr: string): void {
  const endpoint = addr.length <= NODE_ENDPOINT_MAX_CHARACTERS ? parseEndpoint(addr) : undefined;
  if (endpoint === undefined || endpoint.port === 0) throw new ProtocolError(`discovery: master_addr ${shown(addr)}`);
}
