import { inspect, isDeepStrictEqual } from 'node:util';
import { formatEndpoint, parseEndpoint } from '../../../src/base/environment/network.js';
import { ConfigError } from '../../../src/base/errors.js';
import { formatSize, parseSize } from '../../../src/base/sizes.js';
import { CONFIG_KEYS, DISK_WRITE_MODES, EVICTION_POLICIES, MeshCacheConfig } from '../../../src/config.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { checkSecrecy } from '../secrecy.js';
import { inputValue, valueInput } from '../values.js';

const SECRET = 'fuzz-secret-0123456789';

export const configuration: Fuzzer = {
  name: 'configuration',
  what: 'configuration mappings: every key, any value',
  form: 'value',
  tokens: CONFIG_KEYS.map((key) => Buffer.from(`"${key}"`)),
  seeds: () => [
    valueInput({ discovery_addr: 'h:1' }),
    ...CONFIG_KEYS.map((key) => valueInput({ discovery_addr: 'h:1', [key]: '1' })),
    valueInput({
      discoveryAddr: 'a:1, [::1]:2',
      globalSegmentSize: '1.5 GB',
      vnodes: '8',
      diskEnabled: 'true',
      diskPath: '/d',
      diskSize: '2mb',
    }),
    valueInput({
      discovery_addr: 'h:1',
      heartbeat_interval: 0.5,
      member_ttl: '3.5',
      device_names: ['a', 'b'],
      protocol: ' TCP ',
    }),
    valueInput({ discovery_addr: 'h:1', metrics_token: SECRET, eviction_policy: 'S3FIFO', reuse_quarantine_ms: 0 }),
    valueInput({ discovery_addr: 'h:1', cluster_secret: SECRET, namespace: ' n ', dtype: '', layout: 'x' }),
  ],
  run(input) {
    const found = inputValue(input, { odd: true });
    if (found === undefined) return;
    let config: MeshCacheConfig;
    try {
      config = MeshCacheConfig.fromExtraConfig(found.value as Record<string, unknown>);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      checkSecrecy(found.value, [error.message]);
      return;
    }
    checkConfig(config);
    checkSecrecy(found.value, [JSON.stringify(config), inspect(config)]);
    const mapping = Object.fromEntries(Object.entries(config).filter(([, value]) => value !== undefined));
    check(
      isDeepStrictEqual({ ...MeshCacheConfig.fromExtraConfig(mapping) }, { ...config }),
      'another configuration out of its own values',
    );
  },
};

function checkConfig(config: MeshCacheConfig): void {
  check(Object.isFrozen(config), 'not frozen');
  check(
    config.discoveryEndpoints().every(({ host, port }) => host !== '' && port >= 1 && port <= 65_535),
    'discovery_addr',
  );
  check(['rdma', 'tcp'].includes(config.protocol), `protocol ${String(config.protocol)}`);
  check(EVICTION_POLICIES.includes(config.evictionPolicy), 'eviction_policy');
  check(DISK_WRITE_MODES.includes(config.diskWrite), 'disk_write');
  for (const name of ['diskEnabled', 'metricsEnabled', 'metricsDashboard', 'verifyReads', 'promoteHotReads'] as const) {
    check(typeof config[name] === 'boolean', () => `${name} is a ${typeof config[name]}`);
  }
  for (const name of ['controlPort', 'rdmaPort', 'tcpPort', 'metricsPort'] as const)
    checkWhole(name, config[name], 0, 65_535);
  checkWhole('vnodes', config.vnodes, 1, 4096);
  checkWhole('directoryReplicas', config.directoryReplicas, 1, 16);
  checkWhole('maxMasters', config.maxMasters, 1, 16);
  checkWhole('ibPort', config.ibPort, 1, 255);
  checkWhole('gidIndex', config.gidIndex ?? 0, 0, 255);
  checkWhole('globalSegmentSize', config.globalSegmentSize, 1, 2 ** 53 - 1);
  checkWhole('diskSize', config.diskSize, 1, 2 ** 53 - 1);
  check(
    config.heartbeatInterval > 0 && config.memberTtl >= 2 * config.heartbeatInterval,
    'member_ttl below two heartbeats',
  );
  check(config.reuseQuarantineMs >= 0, 'reuse_quarantine_ms');
  check(!config.diskEnabled || typeof config.diskPath === 'string', 'a disk tier without a path');
  for (const name of ['namespace', 'dtype', 'layout', 'metricsHost'] as const)
    check(typeof config[name] === 'string', name);
  check(
    config.deviceNames.every((name) => typeof name === 'string' && name !== ''),
    'device_names',
  );
}

function checkWhole(name: string, value: number, min: number, max: number): void {
  check(Number.isSafeInteger(value) && value >= min && value <= max, `${name} is ${value}`);
}

/** Text as a user writes it. */
export const sizes: Fuzzer = {
  name: 'sizes',
  what: 'sizes and endpoints as text',
  form: 'bytes',
  inputMaxBytes: 200,
  tokens: ['kb', 'MB', ' gb', 'tb', '.5', '9007199254740993', '[::1]:80', ':65535', ':65536', '\u00a0', '٣'].map(
    (text) => Buffer.from(text),
  ),
  seeds: () =>
    ['4gb', '1.5 GB', '65536', '0', '10.0.0.1:31990', '[fe80::1%eth0]:1', 'host:0'].map((text) => Buffer.from(text)),
  run(input) {
    const text = input.toString();
    const bytes = parseSize(text);
    if (bytes !== undefined) {
      check(Number.isSafeInteger(bytes) && bytes >= 0, `${text} is ${bytes}`);
      check(parseSize(String(bytes)) === bytes && parseSize(bytes) === bytes, `${bytes} is another size`);
      check(/^\d/.test(formatSize(bytes)), `shown as ${formatSize(bytes)}`);
    }
    const endpoint = parseEndpoint(text);
    if (endpoint === undefined) return;
    check(endpoint.host !== '' && endpoint.port >= 0 && endpoint.port <= 65_535, 'an endpoint that is none');
    check(
      isDeepStrictEqual(parseEndpoint(formatEndpoint(endpoint)), endpoint),
      () => `${text} is another endpoint once it is shown`,
    );
  },
};
