import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { temporaryFolder } from './mounts.js';

/**
 * Calls that can hang; `folders`: making and removing folders, `lists`: reading what is in one, `reserve`: fallocate.
 */
export const HANGING = [
  'read',
  'write',
  'sync',
  'open',
  'rename',
  'remove',
  'folders',
  'lists',
  'status',
  'reserve',
] as const;
export type Hanging = (typeof HANGING)[number];

/** Reason why no disk can hang here; empty if one can. */
export const hungMissing =
  process.platform !== 'linux' ? 'not Linux' : spawnSync('cc', ['--version']).status === 0 ? '' : 'no cc';

/**
 * Calls of the C library on files below HUNG_FOLDER do not return while there is a file HUNG_FOLDER.hang-KIND beside
 * the folder; then they take place.
 */
const SOURCE = `
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void hang_at(const char *kind, const char *path) {
  const char *folder = getenv("HUNG_FOLDER");
  if (folder == NULL || strncmp(path, folder, strlen(folder)) != 0) return;
  char control[PATH_MAX];
  snprintf(control, sizeof control, "%s.hang-%s", folder, kind);
  while (faccessat(AT_FDCWD, control, F_OK, 0) == 0) usleep(5000);
}

static void hang(const char *kind, int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return;
  path[length] = 0;
  hang_at(kind, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define BY_FD(kind, type, name, parameters, arguments) \\
  type name parameters { hang(kind, fd); return REAL(name) arguments; }
#define BY_PATH(kind, type, name, parameters, arguments) \\
  type name parameters { hang_at(kind, path); return REAL(name) arguments; }

BY_FD("read", ssize_t, pread, (int fd, void *b, size_t n, off_t o), (fd, b, n, o))
BY_FD("read", ssize_t, pread64, (int fd, void *b, size_t n, off64_t o), (fd, b, n, o))
BY_FD("read", ssize_t, preadv, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o))
BY_FD("read", ssize_t, preadv64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o))
BY_FD("write", ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o))
BY_FD("write", ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o))
BY_FD("write", ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o))
BY_FD("write", ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o))
BY_FD("write", ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n))
BY_FD("write", int, ftruncate, (int fd, off_t n), (fd, n))
BY_FD("write", int, ftruncate64, (int fd, off64_t n), (fd, n))
BY_FD("sync", int, fsync, (int fd), (fd))
BY_FD("sync", int, fdatasync, (int fd), (fd))
BY_FD("reserve", int, fallocate, (int fd, int m, off_t o, off_t n), (fd, m, o, n))
BY_FD("reserve", int, fallocate64, (int fd, int m, off64_t o, off64_t n), (fd, m, o, n))
BY_PATH("folders", int, mkdir, (const char *path, mode_t m), (path, m))
BY_PATH("folders", char *, mkdtemp, (char *path), (path))
BY_PATH("folders", int, rmdir, (const char *path), (path))
BY_PATH("remove", int, unlink, (const char *path), (path))
BY_PATH("rename", int, rename, (const char *path, const char *to), (path, to))
BY_PATH("status", int, statfs, (const char *path, struct statfs *s), (path, s))
BY_PATH("status", int, statfs64, (const char *path, struct statfs64 *s), (path, s))
BY_PATH("lists", DIR *, opendir, (const char *path), (path))
BY_PATH("lists", int, scandir, (const char *path, struct dirent ***l, int (*f)(const struct dirent *),
  int (*c)(const struct dirent **, const struct dirent **)), (path, l, f, c))
BY_PATH("lists", int, scandir64, (const char *path, struct dirent64 ***l, int (*f)(const struct dirent64 *),
  int (*c)(const struct dirent64 **, const struct dirent64 **)), (path, l, f, c))

static void hang_status(int fd, const char *path) {
  if (path != NULL && path[0] != 0) hang_at("status", path);
  else hang("status", fd);
}
int statx(int fd, const char *path, int flags, unsigned mask, struct statx *s) {
  hang_status(fd, path);
  return REAL(statx)(fd, path, flags, mask, s);
}
/* Node asks for the status of a file by the number of the system call. */
long syscall(long number, ...) {
  long a[6];
  va_list list; va_start(list, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_statx) hang_status((int)a[0], (const char *)a[1]);
  return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int open(const char *path, int flags, ...) {
  va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list);
  hang_at("open", path);
  return REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list);
  hang_at("open", path);
  return REAL(open64)(path, flags, mode);
}
`;

/** A folder on a disk that can hang for processes that are started with `env`. */
export interface HungDisk {
  readonly path: string;
  readonly env: Readonly<Record<string, string>>;
  hang(...kinds: readonly Hanging[]): void;
  heal(): void;
}

/** Makes a folder on a disk that hangs when it is told to. It is removed at the end of the test. */
export function hungDisk(t: ExecutionContext): HungDisk {
  const folder = temporaryFolder(t);
  const path = join(folder, 'disk');
  const library = join(folder, 'hung.so');
  const source = join(folder, 'hung.c');
  writeFileSync(source, SOURCE);
  execFileSync('cc', ['-shared', '-fPIC', '-w', '-o', library, source, '-ldl']);
  const control = (kind: Hanging): string => `${path}.hang-${kind}`;
  const heal = (): void => {
    for (const kind of HANGING) rmSync(control(kind), { force: true });
  };
  t.teardown(heal);
  return {
    path,
    env: { LD_PRELOAD: library, HUNG_FOLDER: path },
    hang: (...kinds) => {
      for (const kind of kinds) if (!existsSync(control(kind))) writeFileSync(control(kind), '');
    },
    heal,
  };
}
