// A payment on Node's own http module. It writes down each effect, and each answer that is sent, in
// a file that outlives it.
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';

const note = (word, key) => appendFileSync(process.env.BOOK, `${word} ${key}\n`);

const server = createServer((request, answer) => {
  request.resume();
  request.on('end', () => {
    const key = request.headers['idempotency-key'];
    note('effect', key);
    setTimeout(() => {
      answer.on('finish', () => note('sent', key));
      answer.writeHead(201, { 'content-type': 'text/plain' }).end(`paid ${key}`);
    }, Math.random() * 30);
  });
});
server.listen(Number(process.argv[2]), '127.0.0.1');
process.on('SIGTERM', () => server.close(() => process.exit(0)));
