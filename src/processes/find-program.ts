import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

/** The path of a program on PATH; undefined if it is not installed. */
export async function findProgram(name: string): Promise<string | undefined> {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, name);
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  return undefined;
}

/**
 * The Python in which engines run: `MESHCACHE_PYTHON` names it, else it is `python3` on PATH; undefined if there is
 * none. The command of the Python package sets the variable to its own Python.
 */
export async function findPython(): Promise<string | undefined> {
  return process.env.MESHCACHE_PYTHON || (await findProgram('python3'));
}
