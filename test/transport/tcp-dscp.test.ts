import { execFileSync } from 'node:child_process';
import { readdirSync, readlinkSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import test, { type ExecutionContext } from 'ava';
import type { Environment } from '../../src/base/environment/environment.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { securedEnvironment } from '../../src/net/credentials/secured-environment.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { Authority, noCertificates } from '../_support/certificates.js';
import { PYTHON, succeeds } from '../_support/python.js';
import { PATIENCE_MS } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const DSCP = 46;
/** Threads have clocks of their own, and each must wait for a processor. */
const PATIENT = { patienceMinMs: PATIENCE_MS, connectTimeoutMs: PATIENCE_MS, stallTimeoutMs: PATIENCE_MS } as const;
const PAGE_BYTES = 4096;
/** Prints ports and traffic class of each connected socket among the descriptors from 3 on. */
const PROGRAM = `
import json, socket, sys
found = []
for fd in range(3, 3 + int(sys.argv[1])):
    try:
        one = socket.socket(fileno=fd)
        is_v6 = one.family == socket.AF_INET6
        sent = one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if is_v6 else one.getsockopt(0, socket.IP_TOS)
        found.append([one.getsockname()[1], one.getpeername()[1], sent])
    except OSError:
        pass
print(json.dumps(found))
`;

/** The traffic class of each end of each connection to `port`, all of which are in this process. */
function trafficClasses(port: number): number[] {
  const sockets = readdirSync('/proc/self/fd').filter((fd) => isSocket(fd));
  const stdio = ['ignore', 'pipe', 'inherit', ...sockets.map(Number)] as const;
  const printed = execFileSync(PYTHON, ['-c', PROGRAM, String(sockets.length)], { stdio: [...stdio] });
  const found = JSON.parse(printed.toString()) as readonly (readonly [number, number, number])[];
  return found.filter(([local, peer]) => local === port || peer === port).map(([, , trafficClass]) => trafficClass);
}

function isSocket(fd: string): boolean {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`).startsWith('socket:');
  } catch {
    return false;
  }
}

interface Case {
  readonly host?: string;
  readonly threads: number;
  readonly secured?: (env: Environment) => Environment;
}

/** Reads pages by all threads, and returns the traffic class of both ends of each connection. */
async function readMarked(t: ExecutionContext, dscp: number | undefined, subject: Case): Promise<number[]> {
  const { host = '127.0.0.1', threads, secured = (env) => env } = subject;
  const env = secured(systemEnvironment({ log: silentLogger }));
  const options = { host, threads, dscp, env, limits: { ...PATIENT, threadedMinBytes: 0 } };
  const [server, reader] = [await TcpTransport.create(options), await TcpTransport.create(options)];
  const [source, target] = [HostRegion.allocate(4 * PAGE_BYTES), HostRegion.allocate(4 * PAGE_BYTES)];
  try {
    const { rkey, addr } = server.registerMr(source.addr, source.length);
    const ops = [0, 1, 2, 3].map((page) => ({
      remoteEndpoint: server.localEndpoint(),
      remoteAddr: addr + BigInt(page * PAGE_BYTES),
      rkey,
      localAddr: target.addr + BigInt(page * PAGE_BYTES),
      length: PAGE_BYTES,
    }));
    t.deepEqual(await reader.batchRead(ops), [true, true, true, true]);
    return trafficClasses(server.localEndpoints().tcp.port);
  } finally {
    await Promise.all([server.close(), reader.close()]);
    source.free();
    target.free();
  }
}

const { addon, reason } = loadNative();
const noPython = succeeds(PYTHON, '-c', '') ? '' : `no ${PYTHON}`;
const marks = unless(noPython || (addon === null ? reason : ''), test.serial);
const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
const marksIpv6 = unless(noPython || (addon === null ? reason : hasIpv6 ? '' : 'no IPv6'), test.serial);
const marksTls = unless(noPython || (addon === null ? reason : noCertificates), test.serial);
/** Both ends of a connection for each thread that reads. */
const marked = (connections: number): number[] => new Array<number>(2 * connections).fill(DSCP << 2);

marks('tcp dscp: both ends of all connections have it, with one thread and with several', async (t) => {
  t.deepEqual(await readMarked(t, DSCP, { threads: 1 }), marked(1));
  t.deepEqual(await readMarked(t, DSCP, { threads: 3 }), marked(3));
  t.deepEqual(await readMarked(t, undefined, { threads: 1 }), [0, 0]);
});

marksIpv6('tcp dscp: over IPv6, too', async (t) => {
  t.deepEqual(await readMarked(t, DSCP, { host: '::1', threads: 2 }), marked(2));
});

marksTls('tcp dscp: over TLS, too', async (t) => {
  const authority = new Authority();
  t.teardown(() => authority.remove());
  const security = authority.issue('node');
  const secured = (env: Environment): Environment => securedEnvironment(security, env);
  t.deepEqual(await readMarked(t, DSCP, { threads: 1, secured }), marked(1));
  t.deepEqual(await readMarked(t, DSCP, { threads: 2, secured }), marked(2));
});

test.serial('tcp dscp: without the addon, reads go on, and the log says what is missing', async (t) => {
  const lines: string[] = [];
  const secured = (env: Environment): Environment => ({
    ...env,
    log: { log: (_level, message) => lines.push(message) },
  });
  await t.notThrowsAsync(readPlainly(t, secured));
  t.is(
    lines.some((line) => /could not be marked/.test(line)),
    addon === null,
  );
});

async function readPlainly(t: ExecutionContext, secured: (env: Environment) => Environment): Promise<void> {
  const env = secured(systemEnvironment());
  const transport = await TcpTransport.create({ host: '127.0.0.1', dscp: DSCP, env });
  const region = HostRegion.allocate(2 * PAGE_BYTES);
  try {
    const { rkey, addr } = transport.registerMr(region.addr, PAGE_BYTES);
    const localAddr = region.addr + BigInt(PAGE_BYTES);
    const remoteEndpoint = transport.localEndpoint();
    t.deepEqual(await transport.batchRead([{ remoteEndpoint, remoteAddr: addr, rkey, localAddr, length: 9 }]), [true]);
  } finally {
    await transport.close();
    region.free();
  }
}
