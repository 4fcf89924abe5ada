import { runCli, until } from '../_support/cli/run-cli.js';
import { membersAt, startNode, untilMembersAt } from '../_support/cli/source-nodes.js';
import { DnsServer, hasDnsServer } from '../_support/discovery/dns-server.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const withDns = unless(hasDnsServer ? '' : 'no dnsmasq');

withDns(`discovery sources: three processes find each other by the A records of a name`, async (t) => {
  const hosts = ['127.0.1.11', '127.0.1.12', '127.0.1.13'];
  const dns = await DnsServer.start(t, { addresses: { 'nodes.test': hosts } });
  const addr = `${dns.addr('nodes.test')}:${await freePort()}`;
  for (const host of hosts) startNode(t, addr, host);
  await untilMembersAt(addr, hosts);

  const doctor = await runCli(['doctor', '--discovery-addr', addr, '-o', 'protocol=tcp', '-o', 'metrics_port=0']);
  t.regex(doctor.stdout, /ok +discovery source +dns names 127\.0\.1\.11:\d+, 127\.0\.1\.12:\d+, 127\.0\.1\.13:\d+/);
  t.regex(doctor.stdout, /127\.0\.1\.13:\d+ answers and knows 3 nodes/);
});

withDns(`discovery sources: DNS that is frozen and stopped changes nothing for nodes that run`, async (t) => {
  const hosts = ['127.0.1.21', '127.0.1.22', '127.0.1.23'];
  const late = '127.0.1.24';
  const port = await freePort();
  const dns = await DnsServer.start(t, { addresses: { 'nodes.test': hosts } });
  const addr = `${dns.addr('nodes.test')}:${port}`;
  const nodes = hosts.map((host) => startNode(t, addr, host));
  const master = `${hosts[0]}:${port}`;
  await untilMembersAt(master, hosts);

  await dns.freeze();
  const newcomer = startNode(t, addr, late);
  const fromMs = performance.now();
  // Longer than the node waits for its source, and several times the time-to-live.
  await until(async () => {
    t.is((await membersAt(master)).split(',').length, hosts.length);
    return performance.now() - fromMs > 6_000;
  });
  dns.thaw();
  const thawedMs = performance.now();
  await untilMembersAt(master, [...hosts, late]);
  t.log(`joined ${Math.round(performance.now() - thawedMs)} ms after the return of DNS`);

  await dns.stop();
  nodes[1]?.child.kill('SIGKILL');
  await untilMembersAt(master, [hosts[0] as string, hosts[2] as string, late]);
  t.is(newcomer.child.exitCode, null);
  // An answer without any address, or with wrong ones, is no reason to leave.
  await dns.serve({ addresses: { 'nodes.test': ['127.0.1.99'] } });
  const wrongMs = performance.now();
  await until(async () => {
    t.is((await membersAt(master)).split(',').length, 3);
    return performance.now() - wrongMs > 8_000;
  });
});

withDns(`discovery sources: a name without records ends a node that lacks its own address`, async (t) => {
  const dns = await DnsServer.start(t);
  const addr = dns.addr('nobody.test');
  const run = await runCli([
    'node',
    '--discovery-addr',
    addr,
    '--no-client-socket',
    '--pool',
    '1mb',
    '-o',
    'metrics_port=0',
  ]);
  t.is(run.status, 2, run.stderr);
  t.regex(run.stderr, /"discovery_addr": got "dns:.*nobody\.test", which has named no address within 15 s \(the name/);
  t.regex(run.stderr, /check the name and the name server, or set local_hostname/);
  const status = await runCli(['status', '--discovery-addr', addr]);
  t.is(status.status, 1);
  t.regex(status.stderr, /nobody\.test names no node\. Check the address/);
});
