import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { SecurityConfig } from '../../src/net/credentials/secured-environment.js';
import type { DataProtocol } from '../../src/types.js';

/** What a {@link PeerProcess} has at `offset` of its memory. */
export function peerByte(offset: number): number {
  return (offset % 251) + 1;
}

/** A node in a process of its own that serves one region. */
export class PeerProcess {
  readonly lines: string[] = [];
  endpoint = '';
  addr = 0n;
  rkey = 0;
  readonly #child: ChildProcess;

  /** One that speaks `protocol` on the address `host`; `security` names files. */
  static async start(
    protocol: DataProtocol,
    host: string,
    length: number,
    security: SecurityConfig = {},
  ): Promise<PeerProcess> {
    const peer = new PeerProcess([protocol, host, String(length), JSON.stringify(security)]);
    peer.say('where');
    const { endpoint, addr, rkey } = JSON.parse(await peer.nextLine());
    peer.endpoint = endpoint;
    peer.addr = BigInt(addr);
    peer.rkey = rkey;
    return peer;
  }

  private constructor(args: readonly string[]) {
    const program = new URL('./contract-peer.js', import.meta.url).pathname;
    this.#child = spawn(process.execPath, [program, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
    createInterface({ input: this.#child.stdout as NodeJS.ReadableStream }).on('line', (line) => {
      this.lines.push(line);
      this.#child.emit('said');
    });
  }

  say(line: string): void {
    this.#child.stdin?.write(`${line}\n`);
  }

  /** The next line that it says. */
  async nextLine(): Promise<string> {
    if (this.lines.length === 0) await once(this.#child, 'said');
    return this.lines.shift() as string;
  }

  /** Ends it without giving it a chance to say goodbye. */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGKILL');
    await once(this.#child, 'exit');
  }
}
