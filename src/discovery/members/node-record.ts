import { parseEndpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { NODE_ENDPOINT_MAX_CHARACTERS, NODE_ID_MAX_BYTES } from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { NodeInfo } from '../../types.js';

const HOST_MAX_CHARACTERS = 255;

/** Throws `ProtocolError` for a record that no member can have. */
export function decodeNode(value: unknown): NodeInfo {
  const info = NodeInfo.fromDict(asMap(value));
  checkNodeId(info.nodeId);
  for (const host of [info.controlHost, info.rdmaHost, info.tcpHost, info.metricsHost]) {
    if (host.length > HOST_MAX_CHARACTERS) throw new ProtocolError('discovery: host name too long');
  }
  if (info.controlHost === '' || info.controlPort === 0) throw new ProtocolError('discovery: no control address');
  if (info.masterAddr !== '') checkMasterAddr(info.masterAddr);
  return info;
}

/** Throws `ProtocolError` for anything else. */
export function asMap(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new ProtocolError('discovery: not a map');
}

/** Throws `ProtocolError` for what is no node's id. */
export function checkNodeId(value: unknown): string {
  const isId = typeof value === 'string' && value !== '' && bytesOf(value) <= NODE_ID_MAX_BYTES;
  if (isId && !hasControls(value)) return value;
  throw new ProtocolError('discovery: node_id');
}

/** At least the bytes of its UTF-8; exactly where that matters. */
function bytesOf(text: string): number {
  const maxBytes = 3 * text.length;
  return maxBytes <= NODE_ID_MAX_BYTES ? maxBytes : Buffer.byteLength(text);
}

/** As `\p{Cc}` finds them; every heartbeat and every member of a list has an id that is looked at. */
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
