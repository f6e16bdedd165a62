// A service on Express with its defaults; the second argument is the package.
import { pay, take } from './runs.mjs';

const { default: express } = await import(process.argv[3]);
const app = express();
app.get(process.argv[2], (request, answer) => answer.json(take()));
app.post('/payments', (request, answer) => {
  pay(request);
  answer.status(201).send('paid');
});
app.use((fault, request, answer, next) => answer.status(fault.status ?? 500).end()); // no stack in the log
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
