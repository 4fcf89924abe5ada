import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { temporaryFolder } from '../disk/mounts.js';

/** Reason why no process can have another date here; empty if one can. */
export const otherDateMissing =
  process.platform !== 'linux' ? 'not Linux' : spawnSync('cc', ['--version']).status === 0 ? '' : 'no cc';

/**
 * Adds the seconds that lie in the file DATE_AHEAD, a whole number of 64 bits, to the date that the C library tells all
 * threads of a process. The clocks that are no dates stay as they are.
 */
const SOURCE = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("DATE_AHEAD");
  int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void *memory = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (memory != MAP_FAILED) ahead_s = memory;
  close(fd);
}

int clock_gettime(clockid_t id, struct timespec *time) {
  int result = real_gettime != NULL ? real_gettime(id, time) : (int)syscall(SYS_clock_gettime, id, time);
  int is_date = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI;
  if (result == 0 && is_date && ahead_s != NULL) time->tv_sec += *ahead_s;
  return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != NULL) *seconds = now.tv_sec;
  return now.tv_sec;
}
`;

let library: string | undefined;

/** The library, which is made once for all tests of this process. */
function builtLibrary(): string {
  if (library !== undefined) return library;
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-date-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const source = join(folder, 'date.c');
  const built = join(folder, 'date.so');
  writeFileSync(source, SOURCE);
  execFileSync('cc', ['-shared', '-fPIC', '-O1', '-w', '-o', built, source, '-ldl']);
  library = built;
  return library;
}

/**
 * The date of a machine, for real processes that are started with `env`; it steps while they run, as an operator or NTP
 * makes it.
 */
export class OtherDate {
  readonly env: Readonly<Record<string, string>>;
  readonly #fd: number;

  constructor(t: ExecutionContext, aheadS = 0) {
    const path = join(temporaryFolder(t), 'ahead');
    this.env = { LD_PRELOAD: builtLibrary(), DATE_AHEAD: path };
    this.#fd = openSync(path, 'w');
    this.set(aheadS);
    t.teardown(() => closeSync(this.#fd));
  }

  /** Sets the date so many seconds ahead of the right one; negative: behind it. */
  set(aheadS: number): void {
    writeSync(this.#fd, Buffer.from(new BigInt64Array([BigInt(aheadS)]).buffer), 0, 8, 0);
  }
}
