import { access, constants, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { CommandFailure } from '../../command/context.js';

/** Checks that the file can be written before the work begins, so that a wrong name does not cost the result. */
export async function checkWritable(file: string): Promise<void> {
  await access(dirname(file), constants.W_OK).catch((cause: Error) => {
    throw new CommandFailure(`cannot write the report ${file}: ${cause.message}`, undefined, { cause });
  });
}

export async function writePage(file: string, page: string): Promise<void> {
  await writeFile(file, page).catch((cause: Error) => {
    throw new CommandFailure(`cannot write the report ${file}: ${cause.message}`, undefined, { cause });
  });
}
