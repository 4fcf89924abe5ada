import { execFile } from 'node:child_process';
import { access, mkdir, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** The package of PyPI, built without CUDA, in the version that is measured. */
const PACKAGE = 'mooncake-transfer-engine-non-cuda';
const VERSION = '0.3.13.post1';
const INSTALL_LIMIT_MS = 300_000;
/** File in the environment that says that its installation was completed. */
const COMPLETE = 'installed';

/** Environment variables of Mooncake's clients. Of 13 settings for TCP that were tried, this one alone was fastest. */
export const MOONCAKE_VARIABLES: Readonly<Record<string, string>> = {
  MC_TCP_ENABLE_CONNECTION_POOL: '1',
  GLOG_minloglevel: '2',
};

/**
 * A virtual environment with Mooncake Store in the user's cache; installed from PyPI unless it is there. Resolves with
 * the path of its Python. Rejects with the reason if it cannot be installed or does not load here.
 */
export async function mooncakePython(python: string, progress: (text: string) => void): Promise<string> {
  const folder = join(homedir(), '.cache', 'meshcache', `mooncake-${VERSION}`);
  const program = join(folder, 'bin', 'python');
  const isComplete = await access(join(folder, COMPLETE)).then(
    () => true,
    () => false,
  );
  if (!isComplete) {
    progress(`installing ${PACKAGE} ${VERSION} into ${folder}`);
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await run(python, ['-m', 'venv', folder], 'cannot make a virtual environment (Debian: apt install python3-venv)');
    const install = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--retries', '1'];
    const source = ['--timeout', '10', '--only-binary', ':all:', `${PACKAGE}==${VERSION}`];
    await run(program, [...install, ...source], `cannot install ${PACKAGE} ${VERSION} from PyPI`);
    await run(
      program,
      ['-c', 'import mooncake.store'],
      `${PACKAGE} does not load (Debian: apt install libibverbs1 libcurl4 libnuma1)`,
    );
    await writeFile(join(folder, COMPLETE), '');
  }
  return program;
}

async function run(program: string, words: readonly string[], problem: string): Promise<void> {
  try {
    await promisify(execFile)(program, words, { timeout: INSTALL_LIMIT_MS });
  } catch (error) {
    const { stderr = '', message } = error as { readonly stderr?: string; readonly message: string };
    throw new Error(`${problem}: ${stderr.trim().split('\n').at(-1) || message}`, { cause: error });
  }
}
