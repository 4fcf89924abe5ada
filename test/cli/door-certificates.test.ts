import { checkMetrics } from '../../src/cli/doctor/configuration.js';
import { checkRedis } from '../../src/cli/doctor/doors.js';
import { MeshCacheConfig } from '../../src/config.js';
import { noCertificates } from '../_support/certificates.js';
import { authorityOf, doorFiles } from '../_support/door-certificates.js';
import { unless } from '../_support/unless.js';

const withCertificates = unless(noCertificates);

withCertificates('doctor: a certificate that a door cannot use is a problem, and a good one is not', async (t) => {
  const authority = authorityOf(t);
  const [good, expired] = [authority.issue('door'), authority.issue('expired', -1)];
  for (const [door, check] of [
    ['resp', checkRedis],
    ['metrics', checkMetrics],
  ] as const) {
    const finding = (extra: Record<string, unknown>) =>
      check(MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1', [`${door}_port`]: 0, ...extra }));
    t.is((await finding(doorFiles(door, good))).state, 'ok');
    const { state, detail } = await finding(doorFiles(door, expired));
    t.is(state, 'problem');
    t.regex(detail, new RegExp(`"${door}_tls_cert_file": .* has expired on`));
    const open = { [`${door}_host`]: '0.0.0.0' };
    t.is((await finding({ ...doorFiles(door, good, good.tlsCaFile), ...open })).state, 'ok');
  }
});
