import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Environment } from '../../src/base/environment/environment.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { HostRegion } from '../../src/memory/host-region.js';
import {
  type CredentialFiles,
  certificateTrouble,
  memberCredentials,
} from '../../src/net/credentials/credential-files.js';
import { type SecurityConfig, securedEnvironment } from '../../src/net/credentials/secured-environment.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { Authority, type CertificateFiles, noCertificates } from '../_support/certificates.js';
import { patientClock } from '../_support/patient-clock.js';
import { content } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const host = '127.0.0.1';
const [OLD, NEW] = ['the old secret of this test', 'the new secret of this test'];
const BYTES = 50_000;
const withCertificates = unless(noCertificates);

const folder = mkdtempSync(join(tmpdir(), 'meshcache-credentials-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

function write(name: string, ...lines: readonly string[]): string {
  const path = join(folder, name);
  writeFileSync(path, lines.join('\n'), { mode: 0o600 });
  return path;
}

/** A node's memory that peers read, and the files of its credentials. */
class Owner {
  readonly files: CredentialFiles;
  readonly lines: string[] = [];
  readonly gauges = new Map<string, () => number>();
  readonly env: Environment;
  readonly #t: ExecutionContext;
  readonly #region = HostRegion.allocate(BYTES);

  constructor(t: ExecutionContext, config: SecurityConfig) {
    this.#t = t;
    const metrics = {
      ...noMetrics,
      setGaugeProvider: (name: string, value: () => number) => this.gauges.set(name, value),
    };
    const log = { log: (...record: unknown[]) => this.lines.push(JSON.stringify(record)) };
    this.env = securedEnvironment(config, systemEnvironment({ clock: patientClock, log, metrics }));
    this.files = memberCredentials(config, this.env);
    this.files.start();
    t.teardown(() => this.files.stop());
    this.#region.bytes().set(content(1, BYTES));
    t.teardown(() => this.#region.free());
  }

  /**
   * A function that says whether a new peer with these credentials can read the memory; and whether this node can read
   * that of such a peer.
   */
  async serve(): Promise<(config: SecurityConfig) => Promise<readonly [boolean, boolean]>> {
    const own = await TcpTransport.create({ host, env: this.env });
    this.#t.teardown(() => own.close());
    const { rkey } = own.registerMr(this.#region.addr, BYTES);
    return async (config) => {
      const peer = await TcpTransport.create({
        host,
        env: securedEnvironment(config, systemEnvironment({ clock: patientClock, log: silentLogger })),
      });
      const region = HostRegion.allocate(BYTES);
      try {
        const [there, back] = [peer.registerMr(region.addr, BYTES), own.localEndpoint()];
        const op = { localAddr: region.addr, remoteAddr: this.#region.addr, rkey, length: BYTES };
        const [isRead] = await peer.batchRead([{ ...op, remoteEndpoint: back }]);
        const inverse = { localAddr: this.#region.addr, remoteAddr: region.addr, rkey: there.rkey, length: BYTES };
        const [reads] = await own.batchRead([{ ...inverse, remoteEndpoint: peer.localEndpoint() }]);
        return [isRead === true, reads === true];
      } finally {
        await peer.close();
        region.free();
      }
    };
  }
}

const [BOTH, NEITHER] = [
  [true, true],
  [false, false],
];

test('credential files: a secret is changed while the node runs, and its serving thread follows', async (t) => {
  const path = write('secret', OLD);
  const owner = new Owner(t, { clusterSecretFile: path });
  const reads = await owner.serve();
  const [old, later] = [{ clusterSecret: OLD }, { clusterSecret: NEW }];
  t.deepEqual([await reads(old), await reads(later)], [BOTH, NEITHER]);
  write('secret', OLD, NEW);
  t.deepEqual([await reads(later)], [NEITHER], 'nobody has looked at the file yet');
  await owner.files.check();
  t.deepEqual([await reads(old), (await reads(later))[0]], [BOTH, true]);
  write('secret', NEW, OLD);
  await owner.files.check();
  t.deepEqual([(await reads(old))[0], await reads(later)], [true, BOTH]);
  write('secret', NEW);
  await owner.files.check();
  t.deepEqual([await reads(old), await reads(later)], [NEITHER, BOTH]);
  await owner.files.check();
  t.is(owner.lines.filter((line) => line.includes('new credentials are in use')).length, 3);
  t.notRegex(owner.lines.join(), /secret of this test/);
});

test('credential files: a file that cannot be used leaves the former secret in use, and is said once', async (t) => {
  const path = write('broken', OLD);
  const owner = new Owner(t, { clusterSecretFile: path });
  const failing = (): number | undefined => owner.gauges.get('meshcache_credential_files_failing')?.();
  t.is(failing(), 0);
  write('broken', '');
  for (let i = 0; i < 3; i++) await owner.files.check();
  t.deepEqual(owner.env.secrets?.reveal(), [OLD]);
  t.is(failing(), 1);
  t.is(owner.lines.filter((line) => line.includes('the former ones stay in use')).length, 1);
  rmSync(path);
  await owner.files.check();
  t.deepEqual([owner.env.secrets?.reveal(), failing()], [[OLD], 1]);
  write('broken', NEW);
  await owner.files.check();
  t.deepEqual([owner.env.secrets?.reveal(), failing()], [[NEW], 0]);
});

withCertificates('credential files: certificates and their authority are changed while the node runs', async (t) => {
  const [former, next] = [new Authority(), new Authority()];
  t.teardown(() => {
    former.remove();
    next.remove();
  });
  const paths = { tlsCertFile: join(folder, 'cert'), tlsKeyFile: join(folder, 'key'), tlsCaFile: join(folder, 'ca') };
  const put = (files: CertificateFiles): void => {
    for (const name of ['tlsCertFile', 'tlsKeyFile', 'tlsCaFile'] as const) copyFileSync(files[name], paths[name]);
  };
  put(former.issue('node', 30));
  const owner = new Owner(t, paths);
  const reads = await owner.serve();
  const [old, later] = [former.issue('peer'), next.issue('peer')];
  const expiryS = (): number => owner.gauges.get('meshcache_tls_certificate_expiry_seconds')?.() ?? 0;
  const [daysLeft] = [(expiryS() * 1000 - Date.now()) / 86_400_000];
  t.true(daysLeft > 29 && daysLeft < 31, String(daysLeft));
  t.deepEqual([await reads(old), await reads(later)], [BOTH, NEITHER]);
  // Half of it: a key that does not fit.
  copyFileSync(next.issue('node').tlsKeyFile, paths.tlsKeyFile);
  await owner.files.check();
  t.deepEqual([await reads(old), await reads(later)], [BOTH, NEITHER]);
  put(next.issue('node', 10));
  await owner.files.check();
  t.deepEqual([await reads(old), await reads(later)], [NEITHER, BOTH]);
  t.true(expiryS() * 1000 - Date.now() < 11 * 86_400_000);
});

withCertificates('credential files: a certificate that ends soon, or has ended, is said', async (t) => {
  const authority = new Authority();
  t.teardown(() => authority.remove());
  const owner = new Owner(t, authority.issue('node', 3));
  const isSaid = (text: string): number => owner.lines.filter((line) => line.includes(text)).length;
  for (let i = 0; i < 3; i++) await owner.files.check();
  t.is(isSaid('a certificate ends soon'), 1);
  t.is(certificateTrouble(owner.env), undefined);
  const { tls } = owner.env;
  const clock = { ...patientClock, wallMs: () => Date.now() + 4 * 86_400_000 };
  t.regex(
    certificateTrouble({ tls, clock }) ?? '',
    /has ended on \d{4}-.*: new connections with other nodes are refused/,
  );
  t.is(certificateTrouble({ clock }), undefined, 'without TLS');
});

withCertificates('credential files: two authorities at one time, while one takes the place of the other', async (t) => {
  const [former, next] = [new Authority('former'), new Authority('next')];
  t.teardown(() => {
    former.remove();
    next.remove();
  });
  const [own, peer] = [former.issue('node'), next.issue('peer')];
  const both = former.both(next);
  const owner = new Owner(t, { ...own, tlsCaFile: both });
  const reads = await owner.serve();
  t.deepEqual(await reads({ ...peer, tlsCaFile: both }), BOTH);
  t.deepEqual(await reads({ ...former.issue('other'), tlsCaFile: both }), BOTH);
  t.deepEqual(await reads(peer), NEITHER, 'a peer that does not know the authority of this node');
});

withCertificates(
  'credential files: a certificate that is revoked while the node runs is no longer one of a node',
  async (t) => {
    const authority = new Authority();
    t.teardown(() => authority.remove());
    const [own, good, lost] = ['node', 'good', 'lost'].map((name) => authority.issue(name)) as [
      CertificateFiles,
      CertificateFiles,
      CertificateFiles,
    ];
    const tlsCrlFile = join(folder, 'crl');
    copyFileSync(authority.revoked(), tlsCrlFile);
    const owner = new Owner(t, { ...own, tlsCrlFile });
    const reads = await owner.serve();
    t.deepEqual([await reads(good), await reads(lost)], [BOTH, BOTH]);
    copyFileSync(authority.revoked(lost), tlsCrlFile);
    await owner.files.check();
    t.deepEqual([await reads(good), await reads(lost)], [BOTH, NEITHER]);
  },
);

withCertificates('credential files: a peer needs one of the names that are set', async (t) => {
  const authority = new Authority();
  t.teardown(() => authority.remove());
  const owner = new Owner(t, { ...authority.issue('node'), tlsNames: ['node', 'storage'] });
  const reads = await owner.serve();
  t.deepEqual(await reads(authority.issue('storage')), BOTH);
  t.deepEqual(await reads(authority.issue('mailserver')), NEITHER);
});
