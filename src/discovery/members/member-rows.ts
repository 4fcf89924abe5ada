/**
 * Members as rows, the compact form for lists of thousands. It is sent only to nodes that ask with `rows`.
 *
 *     row  [node_id, control_host, control_port, incarnation, protocols, tcp_port, tcp_host, rdma_port, rdma_host, metrics_port,
 *           metrics_host, is_listed, master_addr, zone, fingerprint, storage_pool_bytes, disk_hung]
 *
 * `protocols` are bits, 1 for tcp and 2 for rdma. A host that is the control host is null, and a `master_addr` on it
 * its port. `storage_pool_bytes` is 0 for a node that is no storage node. Values at the end that are those of a record
 * without them are left out; a reader ignores what it does not know behind them.
 */

import { formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import type { DataProtocol, NodeInfo } from '../../types.js';
import { decodeNode } from './node-record.js';

const PROTOCOL_BITS: readonly (readonly [DataProtocol, number])[] = [
  ['rdma', 2],
  ['tcp', 1],
];
/** Default values of the columns after the incarnation. */
const LEFT_OUT = [1, 0, null, 0, '', 0, '', false, '', undefined, '', 0, false] as const;
const COLUMNS_MIN_COUNT = 4;

export function encodeRow(info: NodeInfo): unknown[] {
  const { controlHost } = info;
  const host = (name: string): string | null => (name === controlHost ? null : name);
  const master = parseEndpoint(info.masterAddr);
  const isOwnMaster = master?.host === controlHost && formatEndpoint(master) === info.masterAddr;
  const protocols = PROTOCOL_BITS.reduce((bits, [name, bit]) => bits | (info.protocols.includes(name) ? bit : 0), 0);
  const row: unknown[] = [info.nodeId, controlHost, info.controlPort, info.incarnation, protocols];
  row.push(
    info.tcpPort,
    host(info.tcpHost),
    info.rdmaPort,
    host(info.rdmaHost),
    info.metricsPort,
    host(info.metricsHost),
  );
  row.push(info.isListed, isOwnMaster ? master.port : info.masterAddr, info.zone, String(info.fingerprint ?? ''));
  row.push(info.role === 'storage' ? info.poolBytes : 0, info.isDiskHung);
  while (row.length > COLUMNS_MIN_COUNT && row.at(-1) === LEFT_OUT[row.length - 1 - COLUMNS_MIN_COUNT]) row.pop();
  return row;
}

/** Decodes a row; throws `ProtocolError` if it is invalid. */
export function decodeRow(value: unknown): NodeInfo {
  if (!Array.isArray(value)) throw new ProtocolError('discovery: a member is no row');
  const [nodeId, controlHost, controlPort, incarnation, ...rest] = value as unknown[];
  const [
    bits,
    tcpPort,
    tcpHost,
    rdmaPort,
    rdmaHost,
    metricsPort,
    metricsHost,
    isListed,
    master,
    zone,
    print,
    storageBytes,
    isDiskHung,
  ] = LEFT_OUT.map((leftOut, i) => (rest[i] === undefined ? leftOut : rest[i]));
  if (typeof bits !== 'number') throw new ProtocolError('discovery: protocols of a row');
  const host = (name: unknown): unknown => (name === null ? controlHost : name);
  return decodeNode({
    node_id: nodeId,
    control_host: controlHost,
    control_port: controlPort,
    incarnation,
    protocols: PROTOCOL_BITS.filter(([, bit]) => (bits & bit) !== 0).map(([name]) => name),
    tcp_port: tcpPort,
    tcp_host: host(tcpHost),
    rdma_port: rdmaPort,
    rdma_host: host(rdmaHost),
    metrics_port: metricsPort,
    metrics_host: host(metricsHost),
    is_listed: isListed,
    master_addr: typeof master === 'number' ? formatEndpoint({ host: String(controlHost), port: master }) : master,
    zone,
    fingerprint: print,
    ...(storageBytes === 0 ? {} : { role: 'storage', pool_bytes: storageBytes }),
    disk_hung: isDiskHung,
  });
}
