/** Exit status of a command that was called in a wrong way. */
export const EXIT_WRONG_USAGE = 2;
/** Exit status of a command that could not do what it was asked, or found something wrong. */
export const EXIT_FAILURE = 1;

/** Ends a command with a message for the person who called it, and without a stack. */
export class CommandFailure extends Error {
  readonly exitStatus: number;

  constructor(message: string, exitStatus: number = EXIT_FAILURE, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = 'CommandFailure';
    this.exitStatus = exitStatus;
  }
}

/** The command line itself is wrong; the message names the option, what was given and what is allowed. */
export function wrongUsage(message: string): CommandFailure {
  return new CommandFailure(message, EXIT_WRONG_USAGE);
}
