/** Replaces the host's `abort`: the module imports nothing, so a broken assertion traps. */
export function onAbort(message: string | null, fileName: string | null, line: u32, column: u32): void {
  unreachable();
}
