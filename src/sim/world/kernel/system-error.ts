/** A system error as Node creates it, with its code and the attempted call. */
export function systemError(
  code: string,
  message: string,
  more: { readonly syscall?: string; readonly path?: string; readonly address?: string; readonly port?: number } = {},
): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code, ...more });
}
