/** An error as Node makes them of the system's: with its code, and with what was tried. */
export function systemError(
  code: string,
  message: string,
  more: { readonly syscall?: string; readonly path?: string; readonly address?: string; readonly port?: number } = {},
): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code, ...more });
}
