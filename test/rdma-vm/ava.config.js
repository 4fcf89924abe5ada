// For runs by run.ts, in the virtual machine too, where the project's folder is read-only. One process at a time: the
// tests count packets, connections and memory of the whole machine.
export default {
  files: process.env.MESHCACHE_TEST_FILES.split(' '),
  nodeArguments: ['--enable-source-maps'],
  workerThreads: false,
  concurrency: 1,
  cache: false,
  timeout: '4m',
};
