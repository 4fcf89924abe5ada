import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { ExecutionContext } from 'ava';

/** Reason why there is no Python that can send descriptors; empty if there is one. */
export const noPython =
  spawnSync('python3', ['-c', 'import socket; socket.send_fds']).status === 0
    ? ''
    : 'no python3 that has socket.send_fds';

/** Beginning of all scripts. */
const PRELUDE = `
import ctypes, mmap, os, socket, struct, sys
def connect(path):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(path)
    return peer
def send(path, data, fds=()):
    peer = connect(path)
    try:
        socket.send_fds(peer, [data], list(fds))
    except (BrokenPipeError, ConnectionResetError):
        pass
    return peer
def answer(peer):
    try:
        data, fds, flags, _ = socket.recv_fds(peer, 4096, 8)
    except ConnectionResetError:
        return b'', []
    return data, list(fds)
def say(*words):
    print(*words, flush=True)
`;

/** A Python process that runs a script; its standard input and output are lines. */
export class PythonProcess {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #ended: Promise<number | null>;

  /** Starts a script, which ends with the test. `args` are `sys.argv[1:]`. */
  static start(t: ExecutionContext, script: string, ...args: string[]): PythonProcess {
    const process = new PythonProcess(script, args);
    t.teardown(() => process.#child.kill('SIGKILL'));
    return process;
  }

  /** Runs a script while this thread waits. Processes that it forks may live on. */
  static runToEnd(script: string, ...args: string[]): void {
    execFileSync('python3', ['-c', PRELUDE + script, ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
  }

  private constructor(script: string, args: readonly string[]) {
    this.#child = spawn('python3', ['-c', PRELUDE + script, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
    const { stdout } = this.#child;
    if (stdout === null) throw new Error('python3: no standard output');
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
    this.#ended = new Promise((resolve) => this.#child.once('close', resolve));
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  /** Resolves with the next line of output; empty after the end. */
  async line(): Promise<string> {
    const { value } = await this.#lines.next();
    return value ?? '';
  }

  /** Gives a line to the script's `input()`. */
  tell(text = ''): void {
    this.#child.stdin?.write(`${text}\n`);
  }

  /** Resolves with its exit code. */
  ended(): Promise<number | null> {
    return this.#ended;
  }
}
