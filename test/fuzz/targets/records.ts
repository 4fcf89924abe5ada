import { isDeepStrictEqual } from 'node:util';
import { parseEndpoint } from '../../../src/base/environment/network.js';
import { ProtocolError } from '../../../src/base/errors.js';
import { decodeNode } from '../../../src/discovery/messages/member-table.js';
import { MessageCodec } from '../../../src/rpc/message.js';
import { DataLocation, NodeInfo } from '../../../src/types.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { receivedValue, valueInput } from '../values.js';

type Dict = Readonly<Record<string, unknown>>;

const codec = new MessageCodec();
const HOST_MAX_CHARACTERS = 255;

export const nodeRecords: Fuzzer = {
  name: 'node-records',
  what: 'NodeInfo.fromDict, and what discovery takes of it',
  form: 'value',
  seeds: () => [
    valueInput({ node_id: 'n', control_host: 'h', control_port: 1 }),
    valueInput({
      node_id: 'node-1',
      control_host: '10.0.0.1',
      control_port: 31990,
      rdma_host: '10.1.0.1',
      rdma_port: 4791,
      tcp_host: '::1',
      tcp_port: 2,
      protocols: ['rdma', 'tcp'],
      metrics_host: '0.0.0.0',
      metrics_port: 31997,
      incarnation: 1_700_000_000_000,
      is_listed: true,
      master_addr: '[::1]:31990',
      disk_hung: true,
    }),
  ],
  run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const member = unlessRefused([ProtocolError], () => decodeNode(received.value))?.value;
    for (const host of [member?.controlHost, member?.rdmaHost, member?.tcpHost, member?.metricsHost])
      check((host ?? '').length <= HOST_MAX_CHARACTERS, 'a host name that is spread to all members');
    const master = member?.masterAddr ?? '';
    check(master === '' || (parseEndpoint(master)?.port ?? 0) > 0, 'a master that nobody can connect to');
    const info = unlessRefused([ProtocolError], () => NodeInfo.fromDict(received.value as Dict))?.value;
    if (info === undefined) return;
    for (const port of [info.controlPort, info.rdmaPort, info.tcpPort, info.metricsPort]) {
      check(Number.isInteger(port) && port >= 0 && port <= 65_535, `port ${port}`);
    }
    check(Number.isSafeInteger(info.incarnation) && info.incarnation >= 0, `incarnation ${info.incarnation}`);
    check(
      info.protocols.every((name) => name === 'rdma' || name === 'tcp'),
      'a protocol that there is not',
    );
    check(new Set(info.protocols).size === info.protocols.length, 'a protocol twice');
    const again = NodeInfo.fromDict(throughMessage(info.toDict()));
    check(isDeepStrictEqual(again, info), 'another record out of its own dictionary');
  },
};

export const locations: Fuzzer = {
  name: 'locations',
  what: 'DataLocation.fromDict',
  form: 'value',
  seeds: () => [
    valueInput({ node_id: 'n', rdma_endpoint: 'h:1', remote_addr: '4096', rkey: 1, length: 2 }),
    valueInput({
      node_id: 'node-1',
      rdma_endpoint: '10.1.0.1:4791',
      remote_addr: { $bigint: '18446744073709551615' },
      rkey: 2 ** 32 - 1,
      length: 1 << 20,
      checksum: 7,
      incarnation: 1_700_000_000_000,
      generation: 9,
      tier: 'disk',
    }),
  ],
  run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const location = unlessRefused([ProtocolError], () => DataLocation.fromDict(received.value as Dict))?.value;
    if (location === undefined) return;
    const { remoteAddr, rkey, checksum, length, incarnation, generation, tier } = location;
    check(typeof remoteAddr === 'bigint' && remoteAddr >= 0n && remoteAddr < 2n ** 64n, `address ${remoteAddr}`);
    check(rkey >>> 0 === rkey && checksum >>> 0 === checksum, 'rkey or checksum');
    for (const whole of [length, incarnation, generation]) check(Number.isSafeInteger(whole) && whole >= 0, `${whole}`);
    check(tier === 'memory' || tier === 'disk', 'tier');
    const again = DataLocation.fromDict(throughMessage(location.toDict()));
    check(isDeepStrictEqual(again, location), 'another location out of its own dictionary');
  },
};

function throughMessage(dict: Dict): Dict {
  return codec.decode(codec.encode(dict)) as Dict;
}
