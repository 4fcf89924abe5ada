import { inspect } from 'node:util';
import test from 'ava';
import { ConfigError } from '../src/base/errors.js';
import { MeshCacheConfig } from '../src/config.js';

const ADDR = '127.0.0.1:31990';

test('config: defaults are those of the contract', (t) => {
  const config = new MeshCacheConfig({ discoveryAddr: ADDR });
  t.like(config, {
    protocol: 'rdma',
    globalSegmentSize: 4 * 2 ** 30,
    vnodes: 160,
    directoryReplicas: 2,
    maxMasters: 3,
    controlPort: 0,
    rdmaPort: 0,
    tcpPort: 0,
    tcpThreads: undefined,
    spinUs: 300,
    dscp: undefined,
    heartbeatInterval: 2,
    memberTtl: 6,
    diskEnabled: false,
    diskSize: 100 * 2 ** 30,
    diskWrite: 'wait',
    metricsEnabled: true,
    metricsHost: '127.0.0.1',
    metricsPort: 31997,
    metricsDashboard: true,
    verifyReads: true,
    reuseQuarantineMs: 1000,
    evictionPolicy: 'lru',
    promoteHotReads: false,
    clusterSecret: undefined,
    clientSocket: undefined,
    clientSocketMode: '0600',
    clientSocketGroup: undefined,
  });
});

test('config: a mapping may use snake_case or camelCase, text for numbers and booleans, and the framework’s keys', (t) => {
  const config = MeshCacheConfig.fromExtraConfig({
    discovery_addr: ' 10.0.0.1:31990 , [::1]:5 ',
    globalSegmentSize: '1.5 GB',
    vnodes: '32',
    verify_reads: 'False',
    promote_hot_reads: '1',
    heartbeat_interval: '0.5',
    backend_name: 'dynamic',
    module_path: 'x',
    class_name: 'y',
    interface_v1: 1,
    allocator: null,
  });
  t.is(config.globalSegmentSize, 1.5 * 2 ** 30);
  t.is(config.vnodes, 32);
  t.false(config.verifyReads);
  t.true(config.promoteHotReads);
  t.is(config.heartbeatInterval, 0.5);
  t.deepEqual(config.discoveryEndpoints(), [
    { host: '10.0.0.1', port: 31990 },
    { host: '::1', port: 5 },
  ]);
});

for (const [size, bytes] of [
  ['65536', 65536],
  [1 << 20, 1 << 20],
  ['128kb', 128 << 10],
  ['3MB', 3 << 20],
  ['0.25Gb', 2 ** 28],
  ['1tb', 2 ** 40],
] as const) {
  test(`config: size ${size} is ${bytes} bytes`, (t) => {
    t.is(new MeshCacheConfig({ discoveryAddr: ADDR, globalSegmentSize: size }).globalSegmentSize, bytes);
  });
}

for (const [given, mode] of [
  ['0660', '0660'],
  ['660', '0660'],
  [660, '0660'],
  [' 0777 ', '0777'],
] as const) {
  test(`config: client_socket_mode ${JSON.stringify(given)} is ${mode}`, (t) => {
    const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, client_socket_mode: given });
    t.is(config.clientSocketMode, mode);
  });
}

test('config: a client socket has a path that the kernel takes with .fds behind it, and a group by name or number', (t) => {
  const longest = `/run/${'x'.repeat(95)}`;
  const config = MeshCacheConfig.fromExtraConfig({
    discovery_addr: ADDR,
    client_socket: ` ${longest} `,
    clientSocketGroup: 1001,
  });
  t.is(config.clientSocket, longest);
  t.is(config.clientSocketGroup, '1001');
  // In UTF-8 it is longer than in characters.
  const client_socket = `/run/${'ü'.repeat(60)}`;
  t.throws(() => MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, client_socket }), {
    instanceOf: ConfigError,
    message: /"client_socket": got .*, allowed is the path of a Unix socket, of at most 100 bytes/,
  });
});

const REFUSED: readonly [Record<string, unknown>, RegExp][] = [
  [{}, /"discovery_addr" is required/],
  [{ discovery_addr: ADDR, client_socket: `/run/${'x'.repeat(96)}` }, /"client_socket": got .*, allowed is the path/],
  [{ discovery_addr: ADDR, client_socket: '' }, /"client_socket": got "", allowed is the path/],
  [{ discovery_addr: ADDR, client_socket: '/run/a\0b' }, /"client_socket"/],
  [{ discovery_addr: ADDR, client_socket_group: 'a b' }, /"client_socket_group": got "a b", allowed is the name/],
  // 384 and 432 are what YAML makes of 0600 and 0660.
  ...['0o660', '66', '06600', '0680', '0060', '', true, -660, 384, 432, 438].map(
    (mode): [Record<string, unknown>, RegExp] => [
      { discovery_addr: ADDR, client_socket_mode: mode },
      /"client_socket_mode": got .*, allowed is permission bits in octal digits, .*"0660"/,
    ],
  ),
  [{ discovery_addr: 'nowhere' }, /"discovery_addr": got "nowhere", allowed is host:port/],
  [{ discovery_addr: 'h:0' }, /"discovery_addr"/],
  [{ discovery_addr: 'h:65536' }, /"discovery_addr"/],
  [{ discovery_addr: 'a:1,,b:2' }, /"discovery_addr"/],
  [{ discovery_addr: 7 }, /"discovery_addr": got 7/],
  [{ discovery_addr: ADDR, global_segment_size: '4 zb' }, /"global_segment_size": got "4 zb".*for example "4gb"/],
  [{ discovery_addr: ADDR, global_segment_size: -1 }, /"global_segment_size": got -1/],
  [{ discovery_addr: ADDR, global_segment_size: 1.5 }, /"global_segment_size"/],
  [{ discovery_addr: ADDR, global_segment_size: '' }, /"global_segment_size"/],
  [{ discovery_addr: ADDR, global_segment_size: '63b' }, /"global_segment_size": got "63b", allowed is 64 B/],
  [{ discovery_addr: ADDR, vnodes: 0 }, /"vnodes": got 0, allowed is a whole number of 1 to 4096/],
  [{ discovery_addr: ADDR, vnodes: '12.5' }, /"vnodes"/],
  [{ discovery_addr: ADDR, vnodes: Number.NaN }, /"vnodes"/],
  [{ discovery_addr: ADDR, verify_reads: 'maybe' }, /"verify_reads": got "maybe", allowed is true or false/],
  [{ discovery_addr: ADDR, eviction_policy: 'fifo' }, /"eviction_policy": got "fifo", allowed is lru, s3fifo or yield/],
  [{ discovery_addr: ADDR, protocol: 'udp' }, /"protocol": got "udp", allowed is rdma or tcp/],
  [
    { discovery_addr: ADDR, member_ttl: 3, heartbeat_interval: 2 },
    /"member_ttl": got 3 s, allowed is at least twice heartbeat_interval/,
  ],
  [{ discovery_addr: ADDR, disk_enabled: true }, /"disk_path" is required/],
  [{ discovery_addr: ADDR, disk_enabled: true, disk_path: ' ' }, /"disk_path": got " ", allowed is a directory/],
  [{ discovery_addr: ADDR, disk_size: 2 ** 20 - 1 }, /"disk_size": got 1048575, allowed is 1 MiB to 1024 TiB/],
  [{ discovery_addr: ADDR, disk_size: '2000tb' }, /"disk_size": got "2000tb"/],
  [{ discovery_addr: ADDR, discoveryAddr: ADDR }, /"discovery_addr" is given twice/],
  [
    { discovery_addr: ADDR, discovry_adr: ADDR },
    /unknown configuration key "discovry_adr"; did you mean "discovery_addr"/,
  ],
  [{ discovery_addr: ADDR, verifyRead: true }, /unknown configuration key "verifyRead"; did you mean "verify_reads"/],
  [{ discovery_addr: ADDR, __proto__x: 1 }, /unknown configuration key/],
];

for (const [mapping, message] of REFUSED) {
  test(`config: ${JSON.stringify(mapping)} is refused by name`, (t) => {
    t.throws(() => MeshCacheConfig.fromExtraConfig(mapping), { instanceOf: ConfigError, message });
  });
}

test('config: of the two intervals, one that is not given follows the other', (t) => {
  t.is(new MeshCacheConfig({ discoveryAddr: ADDR, heartbeatInterval: 5 }).memberTtl, 15);
  t.is(new MeshCacheConfig({ discoveryAddr: ADDR, memberTtl: 3 }).heartbeatInterval, 1);
});

test('config: a refused secret is not shown', (t) => {
  const error = t.throws(() => MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, cluster_secret: 12345 }));
  t.notRegex(error?.message ?? '', /12345/);
});

test('config: an object that is not a mapping is refused', (t) => {
  t.throws(() => MeshCacheConfig.fromExtraConfig([] as unknown as Record<string, unknown>), {
    instanceOf: ConfigError,
  });
});

test('config: the secret is one text or two; nothing that prints a configuration shows it', (t) => {
  const given = { discovery_addr: ADDR, cluster_secret: ['hush-hush-1', 'hush-hush-2'], metrics_token: 'hush-hush-3' };
  const config = MeshCacheConfig.fromExtraConfig(given);
  t.deepEqual(config.clusterSecret?.reveal(), ['hush-hush-1', 'hush-hush-2']);
  t.deepEqual(new MeshCacheConfig({ discoveryAddr: ADDR, clusterSecret: ' one ' }).clusterSecret?.reveal(), ['one']);
  t.is(new MeshCacheConfig({ ...config }).clusterSecret, config.clusterSecret);
  const shown = [inspect(config), inspect({ config }, { depth: 9, showHidden: true }), JSON.stringify(config)];
  for (const text of shown) {
    t.notRegex(text, /hush/);
    t.regex(text, /\[secret\]/);
  }
});

for (const [name, keys, message] of [
  [
    'three secrets',
    { cluster_secret: ['hush', 'hush b', 'hush c'] },
    /"cluster_secret": got a value that is not shown/,
  ],
  ['an empty secret', { cluster_secret: '' }, /"cluster_secret"/],
  ['a secret and a file', { cluster_secret: 'hush', cluster_secret_file: '/x' }, /"cluster_secret_file"/],
  ['a certificate alone', { tls_cert_file: '/x' }, /"tls_key_file", "tls_ca_file"/],
  ['no authority', { tls_cert_file: '/x', tls_key_file: '/x' }, /missing: "tls_ca_file"$/],
] as const) {
  test(`config: ${name}: refused by key`, (t) => {
    const mapping = { discovery_addr: ADDR, ...keys };
    const error = t.throws(() => MeshCacheConfig.fromExtraConfig(mapping), { instanceOf: ConfigError, message });
    t.notRegex(inspect(error), /hush/);
  });
}

test('config: what stands for a secret where one is shown is no secret', (t) => {
  for (const key of ['cluster_secret', 'metrics_token']) {
    t.throws(() => MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, [key]: '[secret]' }), {
      instanceOf: ConfigError,
      message: new RegExp(key),
    });
  }
});

test('config: an own address that means every address is refused, with what to give', (t) => {
  // Cause: the other nodes were told it, and could not connect to it.
  for (const host of [
    '0.0.0.0',
    '::',
    ' 0.0.0.0 ',
    '0',
    '0x0',
    '00.0.0.0',
    '[::]',
    '0:0::0',
    '::%eth0',
    '::ffff:0.0.0.0',
  ]) {
    t.throws(() => new MeshCacheConfig({ discoveryAddr: ADDR, localHostname: host }), {
      instanceOf: ConfigError,
      message:
        /"localHostname": got ".*", allowed is a host name or address of this machine that the other nodes reach/,
    });
  }
  for (const host of ['127.0.0.1', '::1', 'node-0', '0.0.0.1', '10.0.0.0', 'fe80::1%eth0', '::ffff:10.0.0.1']) {
    t.is(new MeshCacheConfig({ discoveryAddr: ADDR, localHostname: host }).localHostname, host);
  }
});

test('config: a zone is a short word', (t) => {
  for (const zone of ['', '  ', 'two words', 'ü', 'x'.repeat(65), 7]) {
    t.throws(() => new MeshCacheConfig({ discoveryAddr: ADDR, zone: zone as string }), {
      instanceOf: ConfigError,
      message: /"zone": got .*, allowed is 1 to 64 letters, digits and \. _ - : \//,
    });
  }
  for (const zone of ['rack-7', 'eu-west-1a', 'hall/2:row.3', 'x'.repeat(64)]) {
    t.is(new MeshCacheConfig({ discoveryAddr: ADDR, zone: ` ${zone} ` }).zone, zone);
  }
});

test('config: a fingerprint is a word', (t) => {
  for (const fingerprint of ['', 'two words', 'ü', 'x'.repeat(129)]) {
    t.throws(() => new MeshCacheConfig({ discoveryAddr: ADDR, fingerprint }), {
      instanceOf: ConfigError,
      message: /"fingerprint": got .*, allowed is 1 to 128 visible characters without spaces/,
    });
  }
  t.is(new MeshCacheConfig({ discoveryAddr: ADDR, fingerprint: 'sha256:5eed' }).fingerprint, 'sha256:5eed');
});

test('config: write policies of namespaces are a mapping or its JSON; wrong ones, and those of a storage node, are refused', (t) => {
  const given = { weights: 'both', scratch: 'local' };
  for (const namespace_write_policies of [given, JSON.stringify(given)]) {
    const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, namespace_write_policies });
    t.deepEqual(config.namespaceWritePolicies, given);
    t.is(config.writePolicy, 'local');
  }
  const refused = (settings: Record<string, unknown>, message: RegExp) =>
    t.throws(() => MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, ...settings }), {
      code: 'ERR_CONFIG',
      message,
    });
  refused(
    { namespace_write_policies: { weights: 'remote' } },
    /tag "weights": got "remote", allowed is local, storage or both/,
  );
  refused({ namespace_write_policies: 'both' }, /"namespace_write_policies": got "both", allowed is a mapping/);
  refused({ namespace_write_policies: { '': 'both' } }, /got the tag "", allowed are 1 to 128 characters/);
  refused({ write_policy: 'remote' }, /"write_policy": got "remote", allowed is local, storage or both/);
  refused(
    { role: 'storage', write_policy: 'both' },
    /"write_policy": a node with role "storage" keeps its pages itself/,
  );
  refused(
    { role: 'storage', namespace_write_policies: given },
    /"namespace_write_policies": a node with role "storage"/,
  );
});

test('config: quotas by namespace are a mapping or its JSON, with shares of the disk like those of the pool', (t) => {
  t.deepEqual(new MeshCacheConfig({ discoveryAddr: ADDR }).namespaceQuotas, {});
  const given = { 'team-a': { min: 0.2, max: 0.5 }, b: { max: 0.3, max_disk: 0.6 }, c: {} };
  const expected = {
    'team-a': { min: 0.2, max: 0.5, minDisk: 0.2, maxDisk: 0.5 },
    b: { min: 0, max: 0.3, minDisk: 0, maxDisk: 0.6 },
    c: { min: 0, max: 1, minDisk: 0, maxDisk: 1 },
  };
  for (const namespace_quotas of [given, JSON.stringify(given)]) {
    const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, namespace_quotas });
    t.deepEqual(config.namespaceQuotas, expected);
    t.true(Object.isFrozen(config.namespaceQuotas));
  }
  t.notThrows(
    () => new MeshCacheConfig({ discoveryAddr: ADDR, namespaceQuotas: { a: { min: 0.7 }, b: { min: 0.3 } } }),
  );
});

for (const [wrong, says] of [
  ['none', /: got "none", allowed is a mapping/],
  ['[]', /: got "\[\]", allowed is a mapping/],
  [1, /: got 1, allowed is a mapping/],
  [{ '': {} }, /: got a namespace tag "", allowed are 1 to 128 characters/],
  [{ ' ': {} }, /: got a namespace tag " ", allowed are 1 to 128 characters/],
  [{ other: {} }, /: got a namespace tag "other", allowed are .* not "other"/],
  [{ ['x'.repeat(129)]: {} }, /: got a namespace tag of 129 characters, allowed are 1 to 128/],
  [{ a: 0.5 }, /: tag "a": got 0\.5, allowed is a mapping, for example \{"min"/],
  [{ b: {}, a: null }, /: tag "a": got null, allowed is a mapping/],
  [{ a: { share: 0.5 } }, /: tag "a": got the key "share", allowed are min, max, min_disk and max_disk$/],
  [{ b: { min: 0 }, a: { min: -0.1 } }, /: tag "a", key "min": got -0\.1, allowed is a number of 0 to 1$/],
  [{ a: { max: 1.1 } }, /: tag "a", key "max": got 1\.1, allowed is a number of 0 to 1$/],
  [{ a: { maxDisk: '0.5' } }, /: tag "a", key "maxDisk": got "0\.5", allowed is a number of 0 to 1$/],
  ['{"a": {"min": null}}', /: tag "a", key "min": got null, allowed is a number of 0 to 1$/],
  [{ a: { min: 0.6, max: 0.5 } }, /: tag "a", key "min": got 0\.6, allowed is at most its max, 0\.5$/],
  [
    { a: { max: 0.5, min_disk: 0.6 } },
    /: tag "a", key "min_disk": got 0\.6, allowed is at most its max_disk, 0\.5 \(as max\)$/,
  ],
  [
    { a: { min: 0.5, max_disk: 0.4 } },
    /: tag "a", key "min_disk": got 0\.5 \(as min\), allowed is at most its max_disk, 0\.4$/,
  ],
  [{ a: { max_disk: 0.5, maxDisk: 0.5 } }, /: tag "a": the key "maxDisk" is given twice$/],
  [
    { a: { min: 0.5 }, b: { min: 0.6 } },
    /: all min together: got 1\.1, allowed is at most 1; the largest is that of tag "b", 0\.6$/,
  ],
  [{ a: { min_disk: 0.6 }, b: { min_disk: 0.5 } }, /: all min_disk together: got 1\.1, .* of tag "a", 0\.6$/],
  [
    Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`tag-${i}`, {}])),
    /: got 65 namespace tags, allowed are at most 64$/,
  ],
] as const) {
  test(`config: quotas that cannot be are refused, with the place: ${JSON.stringify(wrong).slice(0, 60)}`, (t) => {
    const error = t.throws(() => MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, namespace_quotas: wrong }));
    t.true(error instanceof ConfigError);
    t.regex(error?.message ?? '', /^configuration key "namespace_quotas": /);
    t.regex(error?.message ?? '', says);
  });
}
