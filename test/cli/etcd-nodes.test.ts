import { runCli, until } from '../_support/cli/run-cli.js';
import { membersAt, startNode, untilMembersAt } from '../_support/cli/source-nodes.js';
import { EtcdServer, hasEtcd } from '../_support/discovery/etcd-server.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const withEtcd = unless(hasEtcd ? '' : 'no etcd and etcdctl');

withEtcd(
  `etcd nodes: three processes find each other, and outlive an etcd that is frozen, stopped, wiped and restored`,
  async (t) => {
    const etcd = await EtcdServer.start(t);
    const port = await freePort();
    const options = ['-o', `discovery_port=${port}`];
    const hosts = ['127.0.2.11', '127.0.2.12', '127.0.2.13'];
    const nodes = hosts.map((host) => startNode(t, etcd.addr, host, options));
    await untilMembersAt(etcd.addr, hosts);
    const master = `${hosts[0]}:${port}`;
    await untilMembersAt(master, hosts);
    const snapshot = await etcd.save();
    const doctor = await runCli([
      'doctor',
      '--discovery-addr',
      etcd.addr,
      '-o',
      'protocol=tcp',
      '-o',
      'metrics_port=0',
    ]);
    t.regex(doctor.stdout, /ok +discovery source +etcd names 127\.0\.2\.1\d:\d+/);

    /** The running nodes see each other for that long, asked at one of them and not at etcd. */
    const stays = async (ms: number): Promise<void> => {
      const fromMs = performance.now();
      await until(async () => {
        const ids = (await membersAt(master)).split(',').sort();
        t.deepEqual(ids, [...hosts].sort());
        return performance.now() - fromMs > ms;
      });
    };
    const joins = async (host: string): Promise<void> => {
      const fromMs = performance.now();
      nodes.push(startNode(t, etcd.addr, host, options));
      hosts.push(host);
      await untilMembersAt(master, hosts);
      const ms = performance.now() - fromMs;
      // That it is within 5 s is tested on virtual time; here the machine may be busy.
      t.log(`${host} has joined ${Math.round(ms)} ms after it was started`);
    };

    await etcd.freeze();
    await stays(12_000);
    etcd.thaw();
    await joins('127.0.2.14');
    await etcd.stop();
    await stays(4_000);
    await etcd.up();
    await joins('127.0.2.15');
    await etcd.wipe();
    await joins('127.0.2.16');
    await stays(3_000);
    await etcd.restore(snapshot);
    await joins('127.0.2.17');
    await stays(12_000);
    for (const { child } of nodes) t.is(child.exitCode, null);
    for (const { child, ended } of nodes) {
      child.kill('SIGTERM');
      const { status, stderr } = await ended;
      t.is(status, 0, stderr);
      t.notRegex(stderr, /nodes? lost/, 'no node has lost a peer');
    }
    await until(async () => (await etcd.control('get', '--prefix', '/meshcache/', '--keys-only')).trim() === '');
  },
);
