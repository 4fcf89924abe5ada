/** Whether a host is this machine by its text alone: `localhost`, an address of 127.0.0.0/8, or ::1. */
export function isLoopbackHost(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/**
 * Why a node must not be reached at `host`: whoever reaches it there would be a member. Undefined: it may, because only this machine reaches it,
 * or because peers prove that they are members (`isAuthenticated`).
 */
export function openNodeFault(host: string, isAuthenticated: boolean): string | undefined {
  if (isLoopbackHost(host) || isAuthenticated) return undefined;
  return (
    `this node would listen at ${host} without authentication: everyone who reaches it there could read, change and delete pages, and end nodes; ` +
    'set cluster_secret_file on all nodes (openssl rand -hex 32 > FILE), or tls_cert_file, tls_key_file and tls_ca_file; ' +
    'or allow_unauthenticated: true, if only nodes reach this network'
  );
}
