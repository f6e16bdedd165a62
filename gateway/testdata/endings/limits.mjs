// A payment on a framework of Node, with the time limit that its users set.
// The first argument names the framework, and for Fastify a second one names its setting.
import 'reflect-metadata';

const port = Number(process.env.PORT);
const limit = 300; // milliseconds
const tell = (what, key) => fetch(`${process.env.BOOK}/${what}/${key}`);

// pay is the work, which goes on when the limit has answered.
async function pay(headers) {
  const key = headers['idempotency-key'];
  await tell('begun', key);
  if (headers['x-event'] === 'slow') {
    await tell('wait', key);
  }
  if (headers['x-event'] === 'late') {
    await new Promise((done) => { setTimeout(done, 3 * limit); });
  }
  await tell('ended', key);
}

const frameworks = {
  async express() {
    const { default: express } = await import('express');
    const { default: timeout } = await import('connect-timeout');
    const app = express();
    app.use(timeout(limit));
    app.post('/payments', async (request, answer) => {
      await pay(request.headers);
      if (!request.timedout) {
        answer.status(201).send('paid');
      }
    });
    app.use((fault, request, answer, next) => answer.status(fault.status ?? 500).end()); // no stack in the log
    app.listen(port, '127.0.0.1');
  },

  async fastify() {
    const { default: fastify } = await import('fastify');
    const app = fastify({ [process.argv[3]]: limit });
    app.post('/payments', async (request, answer) => {
      await pay(request.headers);
      return answer.code(201).send('paid');
    });
    await app.listen({ port, host: '127.0.0.1' });
  },

  async koa() {
    const { default: Koa } = await import('koa');
    const { default: timeout } = await import('koa-timeout-v2');
    const app = new Koa();
    app.silent = true;
    app.use(timeout(limit));
    app.use(async (context) => {
      await pay(context.headers);
      context.status = 201;
      context.body = 'paid';
    });
    app.listen(port, '127.0.0.1');
  },

  async hapi() {
    const { default: hapi } = await import('@hapi/hapi');
    const server = hapi.server({ port, host: '127.0.0.1', routes: { timeout: { server: limit } } });
    server.route({
      method: 'POST',
      path: '/payments',
      handler: async (request, h) => {
        await pay(request.headers);
        return h.response('paid').code(201);
      },
    });
    await server.start();
  },

  async nest() {
    const nest = await import('@nestjs/common');
    const { NestFactory } = await import('@nestjs/core');
    const { TimeoutError, catchError, throwError, timeout } = await import('rxjs');
    // as Nest's page on interceptors has it
    const interceptor = {
      intercept: (context, next) => next.handle().pipe(
        timeout(limit),
        catchError((fault) => throwError(() => (fault instanceof TimeoutError ? new nest.RequestTimeoutException() : fault))),
      ),
    };
    class Payments {
      async pay(headers) {
        await pay(headers);
        return 'paid';
      }
    }
    // what decorators do, which Node itself does not have
    nest.Headers()(Payments.prototype, 'pay', 0);
    nest.Post('payments')(Payments.prototype, 'pay', Object.getOwnPropertyDescriptor(Payments.prototype, 'pay'));
    nest.Controller()(Payments);
    class App {}
    nest.Module({ controllers: [Payments] })(App);
    const app = await NestFactory.create(App, { logger: false });
    app.useGlobalInterceptors(interceptor);
    await app.listen(port, '127.0.0.1');
  },
};
await frameworks[process.argv[2]]();
