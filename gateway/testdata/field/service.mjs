// A payment on Node's own http module. It writes down each effect, and each answer that is sent, in
// a file that outlives it.
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';

const note = (word, key) => appendFileSync(process.env.BOOK, `${word} ${key}\n`);

const server = createServer((request, answer) => {
  const key = request.headers['idempotency-key'];
  if (request.headers['x-early']) { // with the body unread
    note('effect', key);
    answer.writeHead(402, { 'content-type': 'text/plain', connection: 'close' }).end('no money');
    return;
  }
  request.resume();
  request.on('end', () => {
    note('effect', key);
    setTimeout(() => {
      answer.on('finish', () => note('sent', key));
      answer.writeHead(201, { 'content-type': 'text/plain' }).end(`paid ${key}`);
    }, Math.random() * 30);
  });
});
server.listen(Number(process.argv[2]), '127.0.0.1');
process.on('SIGTERM', () => {
  if (server.listening) { // the first time
    server.close(() => process.exit(0));
  }
});
