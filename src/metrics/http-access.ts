import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';

/** The token of a request, `Authorization: Bearer <token>`; undefined: it has none. */
export function bearerToken(request: IncomingMessage): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1];
}

/**
 * Whether the Host header is an IP address or `localhost`, with any port. Another site's page can have its own name
 * point at this machine, and is then no other site to the browser; that name is in the header.
 */
export function namesLocally({ headers }: IncomingMessage): boolean {
  const host = (headers.host ?? '').replace(/:\d*$/, '');
  return host.toLowerCase() === 'localhost' || isIP(host.replace(/^\[(.*)\]$/, '$1')) !== 0;
}

/** Headers of every answer: no page of another site may frame, sniff, cache or read it. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
};

/**
 * A policy that lets a page run its own inline scripts and styles, named by their hashes, and contact no server but its
 * own.
 */
export function pagePolicy(html: string): string {
  return [
    "default-src 'none'",
    `script-src ${inlineHashes(html, 'script')}`,
    `style-src ${inlineHashes(html, 'style')}`,
    "connect-src 'self'",
    'img-src data:',
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

/** Whether only this machine reaches the address. */
export function isLoopback(address: string): boolean {
  return /^(::ffff:)?127\./i.test(address) || address === '::1';
}

function inlineHashes(html: string, element: 'script' | 'style'): string {
  const elements = html.matchAll(new RegExp(`<${element}\\b[^>]*>([\\s\\S]*?)</${element}>`, 'gi'));
  const hashes = Array.from(
    elements,
    ([, text = '']) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`,
  );
  return hashes.length > 0 ? hashes.join(' ') : "'none'";
}
