import test from 'ava';
import { runCli } from '../_support/cli/run-cli.js';

/** Every wrong call ends with status 2, says what was wrong on stderr, and prints nothing. */
const WRONG: readonly (readonly [args: readonly string[], ...says: RegExp[]])[] = [
  [['dance'], /unknown command 'dance'/],
  [['simulate', '--help'], /unknown command 'simulate'/],
  [['help', 'simulate'], /unknown command 'simulate'/],
  [['help', 'sim', 'dance'], /unknown command 'dance'/],
  [['sim', 'help', 'dance'], /unknown command 'dance'/],
  [['sim', 'dance', '--help'], /unknown command 'dance'/],
  [['demo', '--nodes', 'three'], /--nodes/, /'three'/, /whole number of 1 to 64/],
  [['demo', '--nodes', '0'], /--nodes/, /'0'/, /whole number of 1 to 64/],
  [['demo', '--nodes'], /--nodes/, /missing/],
  [['demo', '--noddes', '3'], /unknown option '--noddes'/, /--nodes/],
  [['demo', '--seconds', '-1'], /--seconds/, /'-1'/, /0 to 86400 seconds/],
  [['demo', '--conversations', '1.5'], /--conversations/, /'1\.5'/, /whole number/],
  [['demo', '--seed', '4294967296'], /--seed/, /'4294967296'/, /whole number of 0 to 4294967295/],
  [['demo', '--page-bytes', '1xb'], /--page-bytes/, /'1xb'/, /multiples of 8/],
  [['demo', '--page-bytes', '1001'], /--page-bytes/, /'1001'/, /multiples of 8/],
  [['demo', 'extra'], /too many arguments/],
  [['replay'], /missing required argument 'trace'/],
  [['replay', 't', '--pool', 'huge'], /--pool/, /'huge'/, /10000p, or unbounded/],
  [['replay', 't', '--pool', '0p'], /--pool/, /'0p'/],
  [['replay', 't', '--disk', 'unbounded'], /--disk/, /'unbounded'/, /1 MiB to 1024 TiB/, /30000p/],
  [['replay', 't', '--disk', '0p'], /--disk/, /'0p'/],
  [['replay', 't', '--disk', '1000'], /--disk/, /'1000'/, /1 MiB to/],
  [['replay', 't', '--policy', 'mru'], /--policy/, /'mru'/, /lru, s3fifo/],
  [['replay', 't', '--quarantine-ms', 'long'], /--quarantine-ms/, /'long'/, /milliseconds/],
  [['replay', 't', '--requests', '0'], /--requests/, /'0'/],
  [['replay', 't', '--concurrency', '0'], /--concurrency/, /'0'/],
  [['sim'], /Usage: meshcache sim/],
  [['sim', 'dance'], /unknown command 'dance'/],
  [['sim', 'cluster', '--seeds', '2', '--html', 'x'], /--seeds.* cannot be used with .*--html/],
  [['sim', 'cluster', '--random', '--pool-pages', '3'], /--random.* cannot be used with .*--pool-pages/],
  [['sim', 'cluster', '--scenario', 'x', '--nodes', '3'], /--scenario.* cannot be used with .*--nodes/],
  [['sim', 'cluster', '--option', 'vnode=3'], /unknown configuration key "vnode"/, /"vnodes"/],
  [['sim', 'cluster', '--speed', '2'], /--speed changes nothing without --trace/],
  [['sim', 'cluster', '--told-error', '0.3'], /--told-error changes nothing without --told/],
  [['sim', 'cluster', '--disk-rate', '6gb'], /--disk-rate changes nothing without --disk-pages/],
  [['sim', 'cluster', '--told', 'prefetch'], /--told is for recorded agent sessions; give a file of them as the trace/],
  [['sim', 'trace', 't', '--told-wrong', '0.1'], /--told-wrong changes nothing without --returns-told or --over-told/],
  [['replay', 't', '--write-policy', 'storage'], /--write-policy changes nothing without --storage-nodes/],
  [['sim', 'trace'], /missing required argument 'trace'/],
  [['sim', 'trace', 't', '--pool', '0'], /--pool/, /'0'/, /number of pages from 1 on/],
  [['sim', 'trace', 't', '--pool', '1000,huge'], /--pool/, /'1000,huge'/, /or a number of pages such as 10000/],
  [['sim', 'trace', 't', '--pool', '3kb', '--page-bytes', '4kb'], /--pool: 3 KiB have no room for a page of 4 KiB/],
  [
    ['sim', 'trace', 't', '--pool', '999999999999', '--page-bytes', '1gb'],
    /--pool: \d+ TiB of a node, 16 TiB are allowed/,
  ],
  [['sim', 'trace', 't', '--nodes', '1,0'], /--nodes/, /'1,0'/, /whole number of 1 to 1024/],
  [['sim', 'trace', 't', '--policy', 'lru,mru'], /--policy/, /'lru,mru'/, /Allowed are lru, s3fifo/],
  [['sim', 'trace', 't', '--routing', 'random'], /--routing/, /round-robin, session, prefix/],
  [['sim', 'trace', 't', '--ends-told', '90%'], /--ends-told/, /'90%'/, /Allowed is 0 to 1/],
  [['sim', 'trace', 't', '--report-delay-ms', 'late'], /--report-delay-ms/, /'late'/, /milliseconds, or never/],
  [['sim', 'trace', 't', '--interval-s', '0'], /--interval-s/, /'0'/, /1 to 86400 seconds/],
  [['sim', 'trace', 't', '--page-bytes', '1001'], /--page-bytes/, /'1001'/, /multiples of 8/],
  [
    ['sim', 'trace', 't', '--policy', 'lru', '--nodes', Array.from({ length: 400 }, (_, i) => i + 1).join()],
    /1200 clusters to simulate, 1000 are allowed/,
  ],
  [['node'], /--discovery-addr is missing/],
  [['node', '--discovery-addr', 'nowhere'], /--discovery-addr/, /'nowhere'/, /host:port/],
  [['node', '--discovery-addr', 'h:0'], /--discovery-addr/, /'h:0'/, /port of 1 to 65535/],
  [['node', '--discovery-addr', 'h:1', '--pool', '1'], /--pool/, /'1'/, /64 B to/],
  [['node', '--discovery-addr', 'h:1', '-o', 'vnodes'], /--option/, /'vnodes'/, /key=value/],
  [['node', '--discovery-addr', 'h:1', '-o', 'vnodes=none'], /vnodes/, /"none"/, /whole number/],
  [['node', '--discovery-addr', 'h:1', '-o', 'vnode=3'], /unknown configuration key "vnode"/, /"vnodes"/],
  [['node', '--discovery-addr', 'h:1', '--disk-size', '1kb', '--disk-path', 'p'], /--disk-size/, /'1kb'/, /1 MiB to/],
  [['node', '--discovery-addr', 'h:1', '--disk-size', '1gb'], /--disk-size is given without --disk-path/],
  [['node', '--discovery-addr', 'h:1', '-o', 'disk_enabled=true'], /"disk_path" is required/],
  [['node', '--config', '/no/such/file'], /--config \/no\/such\/file/, /ENOENT/],
  [['node', '-o', 'metrics_token:hidden'], /--option: a value that is not shown is not key=value/],
  [['status'], /--discovery-addr is missing; .*MESHCACHE_DISCOVERY_ADDR/],
  [['status', '--discovery-addr', 'h:1', '--watch', '--json'], /--watch prints text/],
  [['status', '--config', '/no/such/file'], /--config \/no\/such\/file/, /ENOENT/],
  [['status', '--discovery-addr', '::'], /--discovery-addr/, /'::'/, /host:port/],
  [['bench'], /missing required argument 'what'/],
  [
    ['bench', 'everything'],
    /'everything'/,
    /tcp, ring, map, map-feed, pool, directory, rdma, memory, small, store, placement, metrics, auth, disk, clients, peers, resp, isolation, engine, cluster/,
  ],
  [['bench', 'cluster', '--nodes', '5,1'], /--nodes/, /2 to 250/],
  [['bench', 'ring', '--rounds', '0'], /--rounds/, /'0'/],
  [['completions', 'tcsh'], /'tcsh'/, /bash, zsh, fish/],
  [
    ['prove', '--only', 'everything'],
    /--only/,
    /'everything'/,
    /machine, rdma, cluster, bytes, speed, failures, engine/,
  ],
  [['doctor', '--disk-size', '1gb'], /--disk-size is given without --disk-path/],
  [['doctor', '--discovery-addr', 'x'], /--discovery-addr/, /'x'/, /host:port/],
];

for (const [args, ...says] of WRONG) {
  test.serial(`usage: "${args.join(' ')}" ends with status 2 and says why`, async (t) => {
    const run = await runCli(args);
    t.is(run.status, 2, run.stderr);
    t.is(run.stdout, '');
    for (const pattern of says) t.regex(run.stderr, pattern);
    t.notRegex(run.stderr, /\n\s+at |hidden/);
  });
}

test.serial('usage: without a command the help is shown and the status is 2', async (t) => {
  const run = await runCli([]);
  t.is(run.status, 2);
  t.regex(run.stderr, /Usage: meshcache/);
});

for (const command of [
  'demo',
  'node',
  'status',
  'drain',
  'replay',
  'sim trace',
  'bench',
  'doctor',
  'prove',
  'completions',
]) {
  test.serial(`usage: ${command} --help shows options and examples`, async (t) => {
    const run = await runCli([...command.split(' '), '--help']);
    t.is(run.status, 0);
    t.regex(run.stdout, new RegExp(`Usage: meshcache ${command}`));
    t.regex(run.stdout, /--json/);
    t.regex(run.stdout, /Examples:\n {2}meshcache /);
    t.is(run.stderr, '');
    // Where the width of the terminal is unknown.
    for (const line of run.stdout.split('\n')) t.true(line.length <= 80, line);
  });
}

test.serial('usage: help shows the help of nested commands, and of those with arguments', async (t) => {
  for (const command of ['demo', 'sim', 'sim growth', 'bench', 'delete key']) {
    const asked = await runCli([...command.split(' '), '--help']);
    t.regex(asked.stdout, /^Usage: meshcache /);
    t.deepEqual(await runCli(['help', ...command.split(' ')]), asked, command);
  }
  t.regex((await runCli(['sim', 'help', 'growth'])).stdout, /^Usage: meshcache sim growth /);
});

test.serial('usage: a failure has status 1 and a message without a stack', async (t) => {
  const run = await runCli(['replay', '/no/such/trace.jsonl']);
  t.is(run.status, 1);
  t.is(run.stdout, '');
  t.regex(run.stderr, /^error: cannot read the trace \/no\/such\/trace\.jsonl: ENOENT/);
  t.notRegex(run.stderr, /\n\s+at /);
});
