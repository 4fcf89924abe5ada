import { chmod, copyFile, mkdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Kernel } from './debian-kernel.js';
import { output } from './tools.js';

/** Without crc32_generic rxe cannot be added to a network interface. */
const MODULES = [
  'virtio_pci',
  'virtio_net',
  '9p',
  '9pnet_virtio',
  'crc32_generic',
  'rdma_rxe',
  'rdma_ucm',
  'ib_uverbs',
  'sch_netem',
  'veth',
];

/**
 * Writes the initramfs that starts `initScript` with busybox, after the kernel's modules; `folder` is for its parts.
 */
export async function writeInitramfs(kernel: Kernel, initScript: string, folder: string): Promise<string> {
  const root = join(folder, 'initramfs');
  await mkdir(join(root, 'bin'), { recursive: true });
  await mkdir(join(root, 'modules'), { recursive: true });
  await copyFile('/bin/busybox', join(root, 'bin', 'busybox'));
  await copyFile(initScript, join(root, 'init'));
  await chmod(join(root, 'init'), 0o755);
  const files = await loadOrder(kernel);
  for (const file of files) await copyFile(file, join(root, 'modules', basename(file)));
  await writeFile(join(root, 'modules', 'order'), files.map((file) => `${basename(file)}\n`).join(''));
  const names = await output('find', ['.'], { cwd: root });
  const archive = await output('cpio', ['-o', '-H', 'newc', '--quiet'], { cwd: root, input: String(names) });
  const path = join(folder, 'initramfs.gz');
  await writeFile(path, gzipSync(archive, { level: 1 }));
  return path;
}

/** Files of the modules and of what they need, each before those that need it. */
async function loadOrder(kernel: Kernel): Promise<string[]> {
  const args = ['--show-depends', '-d', kernel.modulesRoot, '-S', kernel.version];
  const files = new Set<string>();
  for (const module of MODULES) {
    const shown = String(await output('modprobe', [...args, module]));
    for (const [, file] of shown.matchAll(/^insmod (\S+)/gm)) files.add(file as string);
  }
  return [...files];
}
