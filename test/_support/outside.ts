import { builtinModules } from 'node:module';

/**
 * What leads out of a program past its environment: names of the platform and of its modules, and whoever may use them.
 */

/** Modules that only compute. */
const PURE_MODULES: ReadonlySet<string> = new Set([
  ...['node:buffer', 'node:crypto', 'node:events', 'node:path', 'node:url', 'node:util'],
  ...['aws4', 'msgpackr', 'prom-client'],
]);

/** Further ways out, by the names that exceptions use. */
const WAYS: Readonly<Record<string, RegExp>> = {
  Date: /\bDate\b/,
  performance: /\bperformance\b/,
  timers: /\b(?:set|clear)(?:Timeout|Interval|Immediate)\b|\bAbortSignal\.timeout\b/,
  ticks: /\bqueueMicrotask\b|\bnextTick\b/,
  'Math.random': /\bMath\.random\b/,
  randomness: /\b(?:randomBytes|randomUUID|randomInt|randomFill\w*|getRandomValues|webcrypto|generateKey\w*)\b/,
  collector: /\b(?:FinalizationRegistry|WeakRef)\b/,
  fetch: /(?<![.#\w])fetch\(|\bWebSocket\b/,
  globalThis: /\bglobalThis\b/,
  console: /\bconsole\./,
  // Other values named `process` have other members.
  process: new RegExp(`(?<![#.\\w])process\\??\\.(?:${memberNames(process).join('|')})\\b`),
  waiting: /\bAtomics\.wait\b/,
  // The real machine by its names in this code.
  system:
    /\bspinningClock\b|\bsystem(?:Clock|Random|Network|Names|Http|Files|Threads|Host|Environment|RdmaHost)\b|\b(?:defaultLogger|stderrLogger)\b/,
};

/** A file that may use such ways itself, and the reason. */
export interface Exception {
  readonly ways: readonly string[];
  readonly because: string;
}

/** Folders in which environments are created or passed on; no other file takes the real machine by itself. */
export const ENTRY_POINTS = /^src\/(?:processes|command|cli|bench|dashboard)\//;

const REAL = 'a part of the system environment';
const PUBLIC = 'what users make without an environment takes the real machine';
const OWN_CODE = 'reads what the program itself consists of: the same for all nodes of the process';
const CONSTANTS = 'numbers of errors only';
const RDMA = 'RDMA of the real machine: only where the host of the environment has devices';
const OPERATORS = 'HTTP for operators of the real machine: only with metrics_enabled';
const ATTACHED =
  'memory, descriptors and files that processes of the real machine share: only with client_socket or resp_socket';
const SIMULATED = 'a simulated process, by the same name';
const CLIENT = 'a process of the real machine that attaches to its node: an entry point';

/** Files that may use ways out themselves. */
export const EXCEPTIONS: Readonly<Record<string, Exception>> = {
  'src/system/system-clock.ts': {
    ways: ['Date', 'performance', 'process', 'system', 'ticks', 'timers'],
    because: REAL,
  },
  'src/native/spinning-clock.ts': { ways: ['node:os', 'performance', 'system', 'timers'], because: REAL },
  'src/system/system-environment.ts': { ways: ['system'], because: 'the system environment itself' },
  'src/system/system-log.ts': { ways: ['Date', 'process', 'system'], because: REAL },
  'src/system/system-random.ts': { ways: ['randomness', 'system'], because: REAL },
  'src/system/files/file-operations.ts': {
    ways: ['node:child_process', 'node:fs', 'node:worker_threads', 'process'],
    because: REAL,
  },
  'src/system/files/file-thread.ts': { ways: ['node:worker_threads', 'waiting'], because: REAL },
  'src/system/files/file-threads.ts': {
    ways: ['node:worker_threads', 'performance', 'process', 'timers', 'waiting'],
    because: REAL,
  },
  'src/system/files/system-files.ts': { ways: ['system'], because: REAL },
  'src/system/system-host.ts': {
    ways: ['node:dgram', 'node:dns', 'node:os', 'node:perf_hooks', 'performance', 'process', 'system'],
    because: REAL,
  },
  'src/system/memory-limit.ts': { ways: ['node:fs', 'node:os'], because: REAL },
  'src/system/system-http.ts': { ways: ['node:http', 'node:https', 'system'], because: REAL },
  'src/system/system-names.ts': { ways: ['node:dns', 'node:fs', 'system'], because: REAL },
  'src/system/system-network.ts': { ways: ['node:net', 'node:tls', 'system', 'timers'], because: REAL },
  'src/system/system-threads.ts': { ways: ['node:worker_threads', 'system'], because: REAL },
  'src/net/local-socket.ts': { ways: ['node:fs', 'node:worker_threads', 'process'], because: ATTACHED },
  'src/net/credentials/tls-files.ts': {
    ways: ['Date', 'node:tls'],
    because: 'computes: dates of certificates, and whether they fit',
  },
  'src/client/attachment.ts': { ways: ['node:fs', 'process'], because: CLIENT },
  'src/client/meshcache-client.ts': { ways: ['process', 'system'], because: CLIENT },
  'src/client/node-link.ts': { ways: ['process'], because: CLIENT },
  'src/clients/requests/client-files.ts': { ways: ['node:fs'], because: ATTACHED },
  'src/clients/client-memory.ts': { ways: ['node:fs', 'process'], because: ATTACHED },
  'src/clients/client-server.ts': { ways: ['process'], because: ATTACHED },
  'src/clients/socket-path.ts': { ways: ['node:fs', 'process'], because: ATTACHED },
  'src/discovery/messages/cluster-settings.ts': { ways: ['Date'], because: 'computes: a date as text' },
  'src/node/audit/audit-log.ts': { ways: ['Date'], because: 'computes: the time of the clock as text' },
  'src/net/credentials/credential-files.ts': { ways: ['Date'], because: 'computes: the end of a certificate as text' },
  'src/objects/object-client.ts': { ways: ['Date'], because: 'computes: times as text, and from text' },
  'src/core/binding/core.ts': { ways: ['collector', 'fetch', 'globalThis'], because: OWN_CODE },
  'src/memory/checksum.ts': { ways: ['node:zlib'], because: 'computes' },
  'src/memory/host-region.ts': {
    ways: ['node:fs', 'node:os'],
    because: 'memory of the addon, and files of other processes: the pool of an environment is HostRegion.allocateFrom',
  },
  'src/net/paced-stream.ts': { ways: ['node:net', 'node:stream', 'timers'], because: OPERATORS },
  'src/metrics/http-access.ts': { ways: ['koa', 'node:http', 'node:net'], because: OPERATORS },
  'src/metrics/page-advice.ts': { ways: ['node:http'], because: OPERATORS },
  'src/metrics/http-answers.ts': {
    ways: ['koa', 'node:fs', 'node:stream', 'node:zlib'],
    because: OPERATORS,
  },
  'src/metrics/metrics-server.ts': { ways: ['koa', 'node:http', 'node:net'], because: OPERATORS },
  'src/metrics/process-metrics.ts': {
    ways: ['node:fs', 'node:perf_hooks', 'performance', 'process'],
    because: 'the figures of this process, when somebody asks for the text of the metrics',
  },
  'src/native/unix-sockets.ts': { ways: ['node:fs'], because: ATTACHED },
  'src/native/engine/engine-channel.ts': { ways: ['node:os'], because: RDMA },
  'src/native/addon/loader.ts': { ways: ['node:fs', 'node:os', 'process'], because: OWN_CODE },
  'src/native/addon/prebuilt.ts': { ways: ['node:fs', 'node:module', 'process'], because: OWN_CODE },
  'src/native/devices/rdma-support.ts': { ways: ['system'], because: RDMA },
  'src/native/devices/locked-memory.ts': { ways: ['node:fs'], because: RDMA },
  'src/native/devices/kernel-files.ts': { ways: ['node:fs'], because: RDMA },
  'src/native/devices/rdma-devices.ts': { ways: ['node:fs', 'node:net', 'node:os', 'system'], because: RDMA },
  'src/native/transfer-engine.ts': { ways: ['system'], because: `${PUBLIC}; no other code uses it` },
  'src/node/machine/machine-defaults.ts': { ways: ['system'], because: PUBLIC },
  'src/node/machine/machine-disk.ts': { ways: ['system'], because: PUBLIC },
  'src/node/machine/machine-node.ts': { ways: ['system'], because: PUBLIC },
  'src/node/node.ts': { ways: ['system'], because: 'the entry point: MeshCacheStore.create' },
  'src/node/reporting/package-version.ts': { ways: ['node:fs'], because: OWN_CODE },
  'src/sim/run/sim-node.ts': { ways: ['process'], because: SIMULATED },
  'src/sim/world/kernel/scheduler.ts': {
    ways: ['process', 'timers'],
    because:
      'all promises have their turn between two events of virtual time; what simulated code throws and nobody catches ends its run',
  },
  'src/sim/world/kernel/sim-clock.ts': { ways: ['process', 'ticks'], because: 'ticks have no time, virtual or real' },
  'src/sim/world/sim-host.ts': { ways: ['process'], because: SIMULATED },
  'src/transport/create-transport.ts': { ways: ['node:os', 'system'], because: RDMA },
  'src/transport/rdma/destinations.ts': { ways: ['node:os'], because: CONSTANTS },
  'src/transport/tcp/threads/thread-environment.ts': {
    ways: ['system'],
    because: 'the environment of a thread: there is one only where the threads are of the system',
  },
};

/** The ways out that a source uses, in the order of their names. */
export function waysOut(source: string): string[] {
  const code = withoutComments(source);
  const modules = [...code.matchAll(/(?:\bfrom|\bimport|\brequire)\s*\(?\s*'([a-z@][^']*)'/g)]
    .map(([, name]) => (name as string).replace(/\/.*/, ''))
    .map((name) => (builtinModules.includes(name) ? `node:${name}` : name))
    .filter((name) => !PURE_MODULES.has(name));
  const names = Object.keys(WAYS).filter((way) => (WAYS[way] as RegExp).test(code));
  return [...new Set([...modules, ...names])].sort();
}

/** Removes comments. It relies on regular expressions without quotes and slashes that look like comments. */
function withoutComments(source: string): string {
  return source.replace(
    /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|\/\*[\s\S]*?\*\/|(?<!:)\/\/[^\n]*/g,
    (_comment, text) => text ?? '',
  );
}

function memberNames(object: object): string[] {
  const names: string[] = [];
  for (const name in object) if (/^\w+$/.test(name)) names.push(name);
  return names;
}
