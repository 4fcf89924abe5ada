import { Command, InvalidArgumentError } from 'commander';
import { FINGERPRINT, FINGERPRINT_ALLOWED } from '../../base/settings/fields.js';
import { type CommandContext, printResult } from '../../command/context.js';
import { CommandFailure } from '../../command/failure.js';
import { printable } from '../../command/table.js';
import { ATTACH_HELP, type AttachOptions, addAttachOptions, attached } from './attaching.js';

const HELP = `
An LLM engine whose weights change while it runs (a training step, a reload) shares no pages with others until it is told which
weights it has now. Engines that are told the same fingerprint share pages again. \`meshcache status\` shows the names of attached
clients, and the fingerprints of their namespaces.

Examples:
  meshcache fingerprint vllm step-1200
  meshcache fingerprint sglang-tp0of1 '' --socket /run/meshcache/node.sock
${ATTACH_HELP}`;

/** `meshcache fingerprint`: tells the engines of a host which weights they have. */
export function fingerprintCommand(context: CommandContext): Command {
  return addAttachOptions(new Command('fingerprint'))
    .description('tell the attached clients of a name the fingerprint of their weights')
    .argument('<client>', 'name of the clients')
    .argument('<fingerprint>', "identity of the weights: 1 to 128 visible characters; '' for none", fingerprintText)
    .addHelpText('after', HELP)
    .action((client: string, fingerprint: string, options: AttachOptions) =>
      attached(options, context, { writes: false }, async (cli) => {
        const count = await cli.tellFingerprint(client, fingerprint);
        if (count === null) throw new CommandFailure('the node does not answer');
        if (count === 0) {
          throw new CommandFailure(
            `no client named ${printable(client)} is attached to this node, or it has no namespace of its own; \`meshcache status\` lists the clients`,
          );
        }
        printResult(
          context,
          { client, fingerprint, clients: count },
          {
            json: options.json,
            asText: () => `told ${count} ${count === 1 ? 'client' : 'clients'} named ${printable(client)}`,
          },
        );
      }),
    );
}

function fingerprintText(text: string): string {
  if (text === '' || FINGERPRINT.test(text)) return text;
  throw new InvalidArgumentError(`Allowed are ${FINGERPRINT_ALLOWED}, or '' for none.`);
}
