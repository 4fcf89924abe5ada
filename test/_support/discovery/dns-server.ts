import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { findProgram } from '../../../src/processes/programs.js';
import { systemNames } from '../../../src/system/system-names.js';
import { freePort, freeze, until } from '../support.js';

const PROGRAM = (await findProgram('dnsmasq')) ?? (await findProgram('/usr/sbin/dnsmasq'));
export const hasDnsServer = PROGRAM !== undefined;
/** A name that the server always knows. */
const PROBE = 'probe.test';

export interface DnsRecords {
  /** Addresses by name; IPv6 ones become AAAA records. */
  readonly addresses?: Readonly<Record<string, readonly string[]>>;
  /** Values of SRV records, `target:port:priority`, by name. */
  readonly services?: Readonly<Record<string, readonly string[]>>;
}

/** A dnsmasq of a test, on loopback. */
export class DnsServer {
  readonly port: number;
  readonly #folder: string;
  #process: ChildProcess | undefined;

  private constructor(port: number) {
    this.port = port;
    this.#folder = mkdtempSync(join(tmpdir(), 'meshcache-dns-'));
  }

  /** Starts one, which ends with the test. */
  static async start(t: ExecutionContext, records: DnsRecords = {}): Promise<DnsServer> {
    const server = new DnsServer(await freePort());
    t.teardown(async () => {
      await server.stop();
      rmSync(server.#folder, { recursive: true, force: true });
    });
    await server.serve(records);
    return server;
  }

  /** A discovery address that asks this server. */
  addr(name: string): string {
    return `dns://127.0.0.1:${this.port}/${name}`;
  }

  /** Starts, or starts again, with these records; resolves when the server answers. */
  async serve({ addresses = {}, services = {} }: DnsRecords): Promise<void> {
    await this.stop();
    const lines = Object.entries({ [PROBE]: ['127.0.0.1'], ...addresses }).flatMap(([name, all]) =>
      all.map((address) => `${address} ${name}`),
    );
    const hosts = join(this.#folder, 'hosts');
    writeFileSync(hosts, `${lines.join('\n')}\n`);
    const srv = Object.entries(services).flatMap(([name, all]) =>
      all.map((one) => `--srv-host=${name},${one.replaceAll(':', ',')}`),
    );
    const fixed = ['--keep-in-foreground', '--conf-file=/dev/null', '--no-hosts', '--no-resolv', '--pid-file='];
    const place = ['--listen-address=127.0.0.1', '--bind-interfaces', `--port=${this.port}`, '--user=root'];
    const data = ['--local=/test/', '--local-ttl=1', `--addn-hosts=${hosts}`, ...srv];
    this.#process = spawn(PROGRAM as string, [...fixed, ...place, ...data], { stdio: 'ignore' });
    const server = { host: '127.0.0.1', port: this.port };
    await until(() =>
      systemNames.lookUp({ name: PROBE, kind: 'addresses', server }).then(
        ({ endpoints }) => endpoints.length > 0,
        () => false,
      ),
    );
  }

  freeze(): Promise<void> {
    return freeze(this.#process);
  }

  thaw(): void {
    this.#process?.kill('SIGCONT');
  }

  async stop(): Promise<void> {
    const process = this.#process;
    this.#process = undefined;
    if (process === undefined || process.exitCode !== null) return;
    const ended = new Promise((resolve) => process.once('close', resolve));
    process.kill('SIGKILL');
    await ended;
  }
}
