import http from 'node:http';
import https from 'node:https';
import type { HttpClient, HttpConnections, HttpListener, HttpServerAddress } from '../base/environment/http-client.js';

/** Silence of a connection after which the system looks whether the other side is there. */
const KEEP_ALIVE_MS = 10_000;
/** Longest time for which an idle connection stays open; servers close theirs after a few seconds more. */
const IDLE_TIMEOUT_MS = 4_000;

/** HTTP from this machine. Of `post`, each request has a connection of its own, so that none is left behind. */
export const systemHttp: HttpClient = {
  post({ endpoint: { host, port }, path, body, headers, tls }, listener) {
    const bytes = Buffer.from(body);
    const options = {
      ...{ host, port, path, method: 'POST', agent: false as const },
      headers: { 'content-type': 'application/json', 'content-length': bytes.length, ...headers },
    };
    const request = tls === undefined ? http.request(options) : https.request({ ...options, ...tls });
    // An answer that goes on for days must not outlive a connection that has died silently.
    request.setSocketKeepAlive(true, KEEP_ALIVE_MS);
    return follow(request, listener, () => request.end(bytes));
  },
  connections: openConnections,
};

function openConnections({ endpoint: { host, port }, tls, connectionsMaxCount }: HttpServerAddress): HttpConnections {
  const settings = { keepAlive: true, maxSockets: connectionsMaxCount, timeout: IDLE_TIMEOUT_MS };
  const agent = tls === undefined ? new http.Agent(settings) : new https.Agent({ ...settings, ...tls });
  return {
    send({ method, path, headers, body = [] }, listener) {
      const options = { host, port, path, method, headers, agent };
      const request = tls === undefined ? http.request(options) : https.request({ ...options, ...tls });
      return follow(request, listener, () => {
        for (const part of body) request.write(part);
        request.end();
      });
    },
    close: () => agent.destroy(),
  };
}

/** Sends a request with `send` and passes its answer on; returns a function that ends it. */
function follow(request: http.ClientRequest, listener: HttpListener, send: () => void): () => void {
  let isOver = false;
  const end = (error?: Error): void => {
    if (isOver) return;
    isOver = true;
    listener.onEnd(error);
  };
  request.on('response', (response) => {
    if (isOver) return;
    listener.onHead(response.statusCode ?? 0, response.headers as Record<string, string>);
    response.on('data', (chunk: Buffer) => {
      if (!isOver) listener.onData(chunk);
    });
    // A body that ends before its announced length comes with `aborted`, and is not complete.
    response.on('end', () => end(response.complete ? undefined : new Error('the answer has been cut off')));
    response.on('error', end);
    response.on('close', () => end(new Error('the connection has ended before the answer')));
  });
  request.on('error', end);
  send();
  return () => {
    isOver = true;
    request.destroy();
  };
}
