// An MCP server with one tool, which charges once however often a model calls it:
//
//   AGENT_RUN=run-1 node server.mjs
//
// It speaks the Model Context Protocol over stdin and stdout, one JSON-RPC message a line:
// https://modelcontextprotocol.io/specification

import { createInterface } from 'node:readline';

import { Charges } from './charges.mjs';

const VERSIONS = ['2025-11-25', '2025-06-18', '2024-11-05']; // that have no batches, the latest first

const { AGENT_RUN: run, COATCHECK_SERVER: server = 'http://127.0.0.1:8080', LEDGER: ledger = 'ledger.jsonl' } = process.env;
if (!run) {
  console.error('AGENT_RUN names the run of the agent: the same after a restart, another for another run');
  process.exit(2);
}
const lease = Number(process.env.LEASE_SECONDS ?? 30); // how long a charge may be silent before it is in doubt
const charges = new Charges({ server, key: process.env.COATCHECK_API_KEY, run, ledger, lease });

class RPCError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const methods = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion: VERSIONS.includes(protocolVersion) ? protocolVersion : VERSIONS[0],
    capabilities: { tools: {} },
    serverInfo: { name: 'charges', version: '1.0.0' },
  }),
  ping: () => ({}),
  'tools/list': () => ({ tools: [Charges.tool] }),
  'tools/call': ({ name, arguments: given }) => {
    if (name !== Charges.tool.name) throw new RPCError(-32602, `Unknown tool: ${name}`);
    return charges.call(given);
  },
};

/** Answers a line; undefined for one that wants no answer: a notification, or an answer. */
async function answer(line) {
  let message;
  try {
    message = JSON.parse(line);
  } catch {
    return { id: null, error: { code: -32700, message: 'Parse error' } };
  }
  const { id, method, params } = Object(message);
  const hasID = typeof id === 'string' || Number.isInteger(id);
  if (message?.jsonrpc !== '2.0' || (typeof method !== 'string' && !hasID) || (id !== undefined && !hasID)) {
    return { id: hasID ? id : null, error: { code: -32600, message: 'Invalid Request' } };
  }
  // Among these is notifications/cancelled: a charge that has begun cannot be taken back.
  if (id === undefined || method === undefined) return undefined;
  try {
    if (!Object.hasOwn(methods, method)) throw new RPCError(-32601, `Method not found: ${method}`);
    return { id, result: await methods[method](Object(params)) };
  } catch (error) {
    if (error instanceof RPCError) return { id, error: { code: error.code, message: error.message } };
    console.error(error);
    return { id, error: { code: -32603, message: 'Internal error' } };
  }
}

// It ends when stdin does, and all that was asked for has been answered.
const lines = createInterface({ input: process.stdin });
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.stdin.destroy());
lines.on('line', async (line) => {
  const said = await answer(line);
  if (said) process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...said })}\n`);
});
