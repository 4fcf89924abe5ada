import { Authority, noCertificates } from '../_support/certificates.js';
import { runCli, until } from '../_support/cli/run-cli.js';
import { startNode, untilMembersAt } from '../_support/cli/source-nodes.js';
import { DnsServer, hasDnsServer } from '../_support/discovery/dns-server.js';
import { EtcdServer, hasEtcd } from '../_support/discovery/etcd-server.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const withDns = unless(hasDnsServer ? '' : 'no dnsmasq');
const withEtcd = unless(hasEtcd ? '' : 'no etcd and etcdctl');
const withTls = unless(hasEtcd ? noCertificates : 'no etcd and etcdctl');

/** What the doctor says of the source. */
async function doctorOf(addr: string, env: Record<string, string> = {}): Promise<string> {
  const given = ['-o', 'protocol=tcp', '-o', 'metrics_enabled=false', '-o', 'local_hostname=127.0.0.1'];
  const { stdout } = await runCli(['doctor', '--discovery-addr', addr, '--json', ...given], { env });
  const { findings } = JSON.parse(stdout) as {
    readonly findings: readonly { subject: string; state: string; detail: string; advice?: string }[];
  };
  const some = findings.filter(({ subject }) => subject === 'discovery source');
  return some.map(({ state, detail, advice = '' }) => `${state}: ${detail} -> ${advice}`).join('\n');
}

withDns('doctor: a name without records, and a name server that is frozen or gone', async (t) => {
  const dns = await DnsServer.start(t);
  t.regex(
    await doctorOf(dns.addr('nobody.test')),
    /^problem: the name nobody\.test has no A, AAAA or SRV records -> add records/,
  );
  await dns.freeze();
  t.regex(
    await doctorOf(dns.addr('nobody.test')),
    /^problem: dns:\/\/.*nobody\.test: .*TIMEOUT.* -> .*name server runs/,
  );
  const gone = `dns://127.0.0.1:${await freePort()}/nobody.test`;
  t.regex(await doctorOf(gone), /^problem: .*(REFUSED|TIMEOUT).* -> .*name server runs/);
});

withEtcd('doctor: an etcd without masters, one with users, one that is frozen, and one of two', async (t) => {
  const etcd = await EtcdServer.start(t);
  t.regex(
    await doctorOf(etcd.addr),
    /^warning: etcd answers, and no discovery master is registered below \/meshcache\//,
  );
  const two = `etcd://127.0.0.1:${await freePort()},127.0.0.1:${etcd.port}/meshcache`;
  t.regex(
    await doctorOf(two),
    /^warning: etcd answers.*\nwarning: 127\.0\.0\.1:\d+: .*ECONNREFUSED.* -> check the address/,
  );
  await etcd.addUser('/meshcache/');
  t.regex(await doctorOf(etcd.addr), /^problem: .*user name is empty.* -> .*set etcd_user and etcd_password/);
  const user = (password: string) => ({ MESHCACHE_ETCD_USER: 'node', MESHCACHE_ETCD_PASSWORD: password });
  t.regex(
    await doctorOf(etcd.addr, user('wrong')),
    /^problem: .*invalid user ID.* -> check etcd_user and etcd_password/,
  );
  t.regex(await doctorOf(etcd.addr, user('node-password')), /^warning: etcd answers/);
  const other = await doctorOf(`${etcd.addr}/llama`, user('node-password'));
  t.regex(other, /^problem: .*permission denied.* -> .*readwrite --prefix=true \/llama\//);
  await etcd.freeze();
  t.regex(await doctorOf(etcd.addr), /^problem: .*no answer within 2 s.* -> .*etcdctl endpoint health/);
});

withTls('doctor: an etcd whose certificate no known authority has signed, and one without TLS', async (t) => {
  const authority = new Authority();
  t.teardown(() => authority.remove());
  const server = authority.issue('etcd', 30, '127.0.0.1');
  const etcd = await EtcdServer.start(t, { ca: server.tlsCaFile, cert: server.tlsCertFile, key: server.tlsKeyFile });
  t.regex(await doctorOf(etcd.addr), /^problem: .*certificate.* -> set etcd_ca_file/);
  const plain = etcd.addr.replace('etcds', 'etcd');
  t.regex(await doctorOf(plain), /^problem: .* -> .*etcds:\/\/ is for TLS/);
});

withEtcd('status: names the source of the addresses, and its trouble', async (t) => {
  const etcd = await EtcdServer.start(t);
  const port = await freePort();
  const host = '127.0.2.31';
  startNode(t, etcd.addr, host, ['-o', `discovery_port=${port}`]);
  const master = `${host}:${port}`;
  await untilMembersAt(master, [host]);
  const shown = async (): Promise<string> =>
    (await runCli(['status', '--discovery-addr', master])).stdout.replace(/\s+/g, ' ');
  await until(async () =>
    /found by +etcd:.*\/meshcache: 1 address, answers 1 of 1 nodes?, last .+ ago/.test(await shown()),
  );
  await etcd.stop();
  await until(async () => /meshcache does not answer: .*ECONNREFUSED/.test(await shown()));
  const { stdout } = await runCli(['status', '--discovery-addr', master, '--json']);
  const { nodes } = JSON.parse(stdout) as {
    readonly nodes: readonly { discovery: unknown; health: { status: string } }[];
  };
  t.like(nodes[0]?.discovery, { source: `${etcd.addr}/meshcache`, found: 1 });
  t.is(nodes[0]?.health.status, 'ok');
});
