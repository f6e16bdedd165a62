// A service on Node's own http module, which reads a path as a link of its own host.
import { createServer } from 'node:http';
import { pay, take } from './runs.mjs';

const server = createServer((request, answer) => {
  request.resume();
  let path;
  try {
    ({ pathname: path } = new URL(request.url, 'http://localhost'));
  } catch {
    answer.writeHead(400).end();
    return;
  }
  if (request.method === 'GET' && path === process.argv[2]) {
    answer.end(JSON.stringify(take()));
  } else if (request.method === 'POST' && path === '/payments') {
    pay(request);
    answer.writeHead(201).end('paid');
  } else {
    answer.writeHead(404).end();
  }
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
