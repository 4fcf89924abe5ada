import { spawnSync } from 'node:child_process';

/**
 * Forbids memfd_create to a program with a filter of the kernel, as profiles of containers do, and starts it: `python3
 * -c SCRIPT ERRNO PROGRAM ARGUMENTS`.
 */
const SCRIPT = `
import ctypes, os, platform, struct, sys
CALL = {"x86_64": 319, "aarch64": 279}[platform.machine()]
def step(code, yes, no, value):
    return struct.pack("HBBI", code, yes, no, value)
steps = step(0x20, 0, 0, 0) + step(0x15, 0, 1, CALL) + step(6, 0, 0, 0x00050000 | int(sys.argv[1])) + step(6, 0, 0, 0x7FFF0000)
memory = ctypes.create_string_buffer(steps)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
program = Program(4, ctypes.addressof(memory))
system = ctypes.CDLL(None, use_errno=True)
if system.prctl(38, 1, 0, 0, 0) != 0 or system.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[2], sys.argv[2:])
`;

const PYTHON = 'python3';

/** What starts a program that may not create memory for other processes: the call fails with this error number. */
export function withoutMemoryFiles(errno: number): readonly [string, ...string[]] {
  return [PYTHON, '-c', SCRIPT, String(errno)];
}

/** Reason why calls cannot be forbidden here; empty if they can. */
export const forbiddingMissing = whyNot();

function whyNot(): string {
  if (process.platform !== 'linux') return 'not Linux';
  const [program, ...args] = withoutMemoryFiles(1);
  const { status, error } = spawnSync(program, [...args, 'true']);
  if (error !== undefined) return `no ${PYTHON}`;
  return status === 0 ? '' : 'no seccomp filters';
}
