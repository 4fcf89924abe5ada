import { type ChildProcess, spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { debianKernel } from './debian-kernel.js';
import { writeInitramfs } from './initramfs.js';
import { checkTools } from './tools.js';

export interface VirtualMachineOptions {
  /** In messages. */
  readonly name: string;
  /** Keeps the kernel between runs. */
  readonly cacheFolder: string;
  /** Has `init.sh` and `agent.sh`. */
  readonly guestFolder: string;
  readonly memoryMiB: number;
  /** QEMU's options for the network cards: eth0, eth1, ... in the guest. */
  readonly network: readonly string[];
  /** Shell commands that prepare the guest; the first that fails fails the start. */
  readonly setup: string;
  readonly bootTimeoutMs: number;
}

export interface ExecOptions {
  readonly timeoutMs: number;
  /** Called with what the command writes, as it comes. */
  readonly onOutput?: (text: string) => void;
}

export interface ExecResult {
  readonly status: number;
  /** Standard output and error. */
  readonly output: string;
}

/** The guest's root is the host's, read-only; this is where a guest sees its machine's writable folder. */
export const GUEST_SHARE = '/run/share';

const OUTPUT_POLL_MS = 50;
const POWER_OFF_TIMEOUT_MS = 5_000;
const CONSOLE_TAIL_CHARS = 3_000;

/**
 * An emulated computer with the host's file system, in which commands are run. It ends with this process at the latest.
 */
export class VirtualMachine {
  readonly #options: VirtualMachineOptions;
  readonly #folder: string;
  readonly #waiting = new Map<string, () => void>();
  #qemu!: ChildProcess;
  #listener!: Server;
  #channel: Socket | undefined;
  /** Resolves, with the reason, when the machine is gone. */
  #gone!: Promise<string>;
  #isGone = false;
  #jobs = 0;

  /** Resolves when the guest takes commands. */
  static async start(options: VirtualMachineOptions): Promise<VirtualMachine> {
    await checkTools();
    const kernel = await debianKernel(options.cacheFolder);
    const folder = await mkdtemp(join(tmpdir(), 'meshcache-vm-'));
    const machine = new VirtualMachine(options, folder);
    try {
      await mkdir(join(machine.share, 'jobs'), { recursive: true });
      await copyFile(join(options.guestFolder, 'agent.sh'), join(machine.share, 'agent.sh'));
      await writeFile(join(machine.share, 'setup.sh'), options.setup);
      const initramfs = await writeInitramfs(kernel, join(options.guestFolder, 'init.sh'), folder);
      await machine.#boot(kernel.image, initramfs);
      return machine;
    } catch (error) {
      await machine.close();
      throw error;
    }
  }

  private constructor(options: VirtualMachineOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
  }

  /** The folder on the host that the guest sees as {@link GUEST_SHARE}. */
  get share(): string {
    return join(this.#folder, 'share');
  }

  get isRunning(): boolean {
    return !this.#isGone;
  }

  /**
   * Runs a shell command in the guest. Rejects when it takes too long (the machine is of no use then) or when the
   * machine ends meanwhile; in both cases with what was on its console.
   */
  async exec(command: string, options: ExecOptions): Promise<ExecResult> {
    const name = String(++this.#jobs);
    const job = join(this.share, 'jobs', name);
    await mkdir(job);
    await writeFile(join(job, 'command'), command);
    await writeFile(join(job, 'output'), '');
    const follower = options.onOutput && follow(join(job, 'output'), options.onOutput);
    try {
      const done = new Promise<void>((resolve) => this.#waiting.set(name, resolve));
      this.#channel?.write(`${name}\n`);
      await this.#orGone(done, options.timeoutMs, `\`${command}\``);
    } finally {
      this.#waiting.delete(name);
      await follower?.end();
    }
    const status = Number(await readFile(join(job, 'status'), 'utf8'));
    return { status, output: await readFile(join(job, 'output'), 'utf8') };
  }

  /** Takes the machine away at once, as a failure of its power would. */
  async kill(): Promise<void> {
    this.#qemu.kill('SIGKILL');
    await this.#gone;
  }

  /** Switches the machine off and removes its files. Idempotent. */
  async close(): Promise<void> {
    if (this.#qemu !== undefined && !this.#isGone) {
      this.#channel?.write('off\n');
      const timer = setTimeout(() => this.#qemu.kill('SIGKILL'), POWER_OFF_TIMEOUT_MS);
      await this.#gone;
      clearTimeout(timer);
    }
    this.#channel?.destroy();
    this.#listener?.close();
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** What the guest's kernel said. */
  async console(): Promise<string> {
    return readFile(join(this.#folder, 'console'), 'utf8').catch(() => '');
  }

  async #boot(kernelImage: string, initramfs: string): Promise<void> {
    const channel = join(this.#folder, 'channel');
    const ready = this.#listen(channel);
    const args = [
      ...['-accel', 'tcg,thread=multi', '-cpu', 'max', '-smp', '2', '-m', `${this.#options.memoryMiB}M`],
      ...['-nodefaults', '-display', 'none', '-no-reboot', '-kernel', kernelImage, '-initrd', initramfs],
      ...['-append', 'console=ttyS0 quiet panic=-1'],
      ...['-serial', `file:${join(this.#folder, 'console')}`],
      ...['-chardev', `socket,id=channel,path=${channel}`, '-serial', 'chardev:channel'],
      ...['-virtfs', 'local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap'],
      ...['-virtfs', `local,path=${this.share},mount_tag=share,security_model=none`],
      ...this.#options.network,
    ];
    // With the death signal the machine goes even when this process is killed and cannot end it.
    this.#qemu = spawn('setpriv', ['--pdeathsig', 'KILL', 'qemu-system-x86_64', ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    this.#qemu.stderr?.on('data', (chunk: Buffer) => {
      said += chunk;
    });
    const kill = () => {
      this.#qemu.kill('SIGKILL');
      rmSync(this.#folder, { recursive: true, force: true });
    };
    process.on('exit', kill);
    this.#gone = new Promise((resolve) => {
      const end = (reason: string) => {
        this.#isGone = true;
        process.off('exit', kill);
        resolve(reason);
      };
      this.#qemu.on('error', (error) => end(`could not be started: ${error.message}`));
      this.#qemu.on('close', (status, signal) => end(`ended (${signal ?? `status ${status}`}): ${said.trim()}`));
    });
    await this.#orGone(ready, this.#options.bootTimeoutMs, 'its start');
  }

  /** Takes QEMU's connection; resolves when the guest says that it is ready. */
  #listen(path: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#listener = createServer((socket) => {
        this.#channel = socket;
        let rest = '';
        // The machine's end is noticed by its process.
        socket.on('error', () => {});
        socket.on('data', (chunk) => {
          const lines = `${rest}${chunk}`.split(/\r?\n/);
          rest = lines.pop() as string;
          for (const line of lines) {
            if (line === 'ready') resolve();
            if (line === 'failed') reject(new Error(`${this.#options.name}: the guest could not be set up`));
            if (line.startsWith('done ')) this.#waiting.get(line.slice('done '.length))?.();
          }
        });
      });
      this.#listener.on('error', reject);
      this.#listener.listen(path);
      this.#listener.unref();
    });
  }

  async #orGone(awaited: Promise<void>, timeoutMs: number, what: string): Promise<void> {
    const { name } = this.#options;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<string>((resolve) => {
      timer = setTimeout(() => resolve(`was not done with ${what} within ${timeoutMs / 1000} s`), timeoutMs);
    });
    const failure = await Promise.race([awaited.then(() => ''), this.#gone, late]).finally(() => clearTimeout(timer));
    if (failure === '') return;
    const console = (await this.console()).slice(-CONSOLE_TAIL_CHARS).trim();
    throw new Error(`virtual machine ${name} ${failure}\nits console:\n${console || '(nothing)'}`);
  }
}

/**
 * Hands on what is appended to a text file, until the end is asked for. The guest's writes may appear out of order:
 * zeros are text that has not come yet.
 */
function follow(path: string, onText: (text: string) => void): { end(): Promise<void> } {
  let offset = 0;
  let isReading = Promise.resolve();
  const decoder = new TextDecoder();
  const read = async (isLast: boolean) => {
    const bytes = await readFrom(path, offset);
    const missingAt = isLast ? -1 : bytes.indexOf(0);
    const chunk = missingAt < 0 ? bytes : bytes.subarray(0, missingAt);
    offset += chunk.length;
    if (chunk.length > 0) onText(decoder.decode(chunk, { stream: true }));
  };
  const timer = setInterval(() => {
    isReading = isReading.then(() => read(false));
  }, OUTPUT_POLL_MS);
  return {
    async end() {
      clearInterval(timer);
      await isReading;
      await read(true);
    },
  };
}

async function readFrom(path: string, offset: number): Promise<Buffer> {
  const file = await open(path);
  try {
    const { size } = await file.stat();
    if (size <= offset) return Buffer.alloc(0);
    const { bytesRead, buffer } = await file.read(Buffer.alloc(size - offset), 0, size - offset, offset);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}
