import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { findProgram } from '../../processes/find-program.js';

const run = promisify(execFile);
const OUTPUT_MAX_BYTES = 16 * 2 ** 20;

export interface FioJob {
  /** Path of the file; the first write creates it. */
  readonly file: string;
  /** Whether blocks are written in order, or each block is read once at random. */
  readonly kind: 'write' | 'randread';
  readonly fileBytes: number;
  readonly blockBytes: number;
  /** Blocks in flight. */
  readonly depth: number;
  readonly isDirect: boolean;
}

/** fio's own time of one side of a job, as its JSON output has it. */
interface FioSide {
  readonly io_bytes: number;
  /** Milliseconds that the job took. */
  readonly runtime: number;
}

/** The program fio, the usual benchmark of disks. */
export class Fio {
  readonly #program: string;

  private constructor(program: string) {
    this.#program = program;
  }

  /** Finds fio and runs the small job `probe`. Resolves with the reason as text if fio cannot be used. */
  static async find(probe: FioJob): Promise<Fio | string> {
    const program = await findProgram('fio');
    if (program === undefined) return 'fio is not installed (Debian: apt install fio)';
    const fio = new Fio(program);
    return fio.run(probe).then(
      () => fio,
      (error: Error) => `fio does not do what is asked of it: ${error.message.trim().split('\n').at(-1)}`,
    );
  }

  /** Milliseconds that the job took, without fio's own start. Rejects when it has not moved every byte. */
  async run(job: FioJob): Promise<number> {
    const stdout = await this.#output(flagsOf(job));
    const { read, write } = jobOf(stdout);
    const { io_bytes: bytes, runtime } = job.kind === 'write' ? write : read;
    if (bytes !== job.fileBytes) throw new Error(`fio has moved ${bytes} of ${job.fileBytes} bytes`);
    return Math.max(1, runtime);
  }

  /** What fio prints. It ends with this program: otherwise it would go on, and make its file and folder again. */
  async #output(flags: readonly string[]): Promise<string> {
    const running = run(this.#program, flags, { maxBuffer: OUTPUT_MAX_BYTES });
    const end = (): void => void running.child.kill('SIGKILL');
    // Before its files are removed.
    process.prependOnceListener('exit', end);
    try {
      return (await running).stdout;
    } finally {
      process.off('exit', end);
    }
  }
}

function flagsOf({ file, kind, fileBytes, blockBytes, depth, isDirect }: FioJob): string[] {
  const settings = {
    name: 'pages',
    filename: file,
    rw: kind,
    size: fileBytes,
    bs: blockBytes,
    iodepth: depth,
    ioengine: 'libaio',
    direct: isDirect ? 1 : 0,
    fallocate: 'native',
    // In one process, which can be ended.
    thread: 1,
    'output-format': 'json',
  };
  return Object.entries(settings).map(([name, value]) => `--${name}=${value}`);
}

/** Finds the job in fio's JSON output, which may begin with warnings. */
function jobOf(stdout: string): { readonly read: FioSide; readonly write: FioSide } {
  const start = stdout.indexOf('{');
  const { jobs } = JSON.parse(stdout.slice(start)) as { jobs: readonly { read: FioSide; write: FioSide }[] };
  const [job] = jobs;
  if (job === undefined) throw new Error(`fio said what this program does not understand:\n${stdout}`);
  return job;
}
