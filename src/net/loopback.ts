/** Whether a host is this machine by its text alone: `localhost`, an address of 127.0.0.0/8, or ::1. */
export function isLoopbackHost(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}
