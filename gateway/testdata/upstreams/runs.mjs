// How often the payment ran, by key.
let runs = {};

export function pay(request) {
  const key = request.headers['idempotency-key'] ?? '';
  runs[key] = (runs[key] ?? 0) + 1;
}

export function take() {
  const taken = runs;
  runs = {};
  return taken;
}
