import http from 'node:http';
import https from 'node:https';
import type { HttpClient } from '../base/environment/http-client.js';

/** Silence of a connection after which the system looks whether the other side is there. */
const KEEP_ALIVE_MS = 10_000;

/** HTTP from this machine, with a connection for each request, so that none is left behind. */
export const systemHttp: HttpClient = {
  post({ endpoint: { host, port }, path, body, headers, tls }, listener) {
    const bytes = Buffer.from(body);
    const options = {
      ...{ host, port, path, method: 'POST', agent: false as const },
      headers: { 'content-type': 'application/json', 'content-length': bytes.length, ...headers },
    };
    let isOver = false;
    const end = (error?: Error): void => {
      if (isOver) return;
      isOver = true;
      listener.onEnd(error);
    };
    const request = tls === undefined ? http.request(options) : https.request({ ...options, ...tls });
    request.on('response', (response) => {
      if (isOver) return;
      listener.onHead(response.statusCode ?? 0);
      response.on('data', (chunk: Buffer) => {
        if (!isOver) listener.onData(chunk);
      });
      response.on('end', () => end());
      response.on('error', end);
      response.on('close', () => end(new Error('the connection has ended before the answer')));
    });
    request.on('error', end);
    // An answer that goes on for days must not outlive a connection that has died silently.
    request.setSocketKeepAlive(true, KEEP_ALIVE_MS);
    request.end(bytes);
    return () => {
      isOver = true;
      request.destroy();
    };
  },
};
