import { existsSync, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { listenAlone } from '../support.js';

export const CHROMIUM = process.env.MESHCACHE_CHROMIUM ?? '/usr/bin/chromium';
export const CHROMIUM_FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
export const HAS_CHROMIUM = existsSync(CHROMIUM);
/** Suffix of the titles of tests that are skipped without Chromium. */
export const CHROMIUM_SUFFIX = HAS_CHROMIUM ? '' : ` (skipped: no ${CHROMIUM}, see MESHCACHE_CHROMIUM)`;

const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript',
  '.wasm': 'application/wasm',
  '.html': 'text/html',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
};

/** A folder as a plain web server shows it; `/` is its index.html, or an empty page. */
export interface Site {
  readonly url: string;
  close(): void;
}

export async function serveFolder(folder: string): Promise<Site> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://host');
    const path = join(folder, pathname === '/' ? 'index.html' : pathname);
    const isFile = existsSync(path) && statSync(path).isFile();
    if (!isFile && pathname !== '/') return void response.writeHead(404).end();
    response.setHeader('content-type', TYPES[extname(path)] ?? 'application/octet-stream');
    response.end(isFile ? readFileSync(path) : '<!doctype html><title>empty</title>');
  });
  const url = `http://127.0.0.1:${await listenAlone(server)}/`;
  return {
    url,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
