import { access, constants, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { CommandFailure } from '../../command/failure.js';

/** Before the work begins: a wrong name should not cost its result. */
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
