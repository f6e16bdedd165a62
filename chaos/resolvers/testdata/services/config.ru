# Payments on puma and SQLite, with the table of operations of docs/effects.md. RECIPE is a file with
# the statements of that page, and LIMIT_MS the time after which the gateway gives up.
require 'json'
require 'securerandom'
require 'sqlite3'

RECIPE = JSON.parse(File.read(ENV.fetch('RECIPE')))
LIMIT = Integer(ENV.fetch('LIMIT_MS')) / 1000.0

def database
  Thread.current[:database] ||= SQLite3::Database.new(ENV.fetch('DATABASE')).tap do |database|
    # not by busy_timeout of SQLite, which sleeps in C and stops all threads of Ruby meanwhile
    database.busy_handler { |tries| sleep(0.005) && tries < 2000 }
    database.execute('PRAGMA synchronous = NORMAL')
  end
end

def forget
  Thread.current[:database]&.close
  Thread.current[:database] = nil
end

def execute(statement, values)
  database.execute(statement['sql'], statement['args'].map { |name| values.fetch(name) })
end

# One payment of fifteen takes about as long as the gateway waits, and a lone one half of it.
def delay(key)
  return LIMIT / 2 if key.start_with?('lone')

  rand(15).positive? ? rand * 0.06 : LIMIT + rand * 0.2 - 0.1
end

def pay(operation, fence, key)
  sleep(delay(key))
  payment = SecureRandom.hex(8)
  answer = "paid #{key} #{payment}"
  values = { 'operation' => operation, 'fence' => fence, 'answer' => answer }
  begin
    RECIPE['effect'][0..-2].each { |statement| execute(statement, values) }
    if database.changes.zero?
      database.execute('ROLLBACK')
      former = execute(RECIPE['resolver'][-2], values).first.first
      return [201, { 'content-type' => 'text/plain' }, [former]] unless former.nil?

      return [409, { 'content-type' => 'application/problem+json' }, ['{"code": "idempotency-superseded"}']]
    end
    database.execute('INSERT INTO payments (id, client_key) VALUES (?, ?)', [payment, key])
    sleep(rand * 0.01)
  rescue SQLite3::Exception => e
    forget # which rolls back
    return [503, { 'idempotency-not-begun' => 'true' }, [e.message]]
  end
  execute(RECIPE['effect'].last, values)
  sleep(rand * 0.04)
  [201, { 'content-type' => 'text/plain' }, [answer]]
end

def close(operation, fence)
  answer = nil
  RECIPE['resolver'].each do |statement|
    rows = execute(statement, { 'operation' => operation, 'fence' => fence })
    answer = rows.first.first if rows.any?
  end
  return [204, { 'idempotency-resolution' => 'not-begun' }, []] if answer.nil?

  [201, { 'content-type' => 'text/plain', 'idempotency-resolution' => 'completed' }, [answer]]
end

run(lambda do |env|
  # the gem stores Rack's binary strings as BLOB, which a STRICT table refuses
  operation = env['HTTP_IDEMPOTENCY_OPERATION'].to_s.encode('UTF-8')
  fence = env['HTTP_IDEMPOTENCY_FENCE'].to_i
  case [env['REQUEST_METHOD'], env['PATH_INFO']]
  when ['POST', '/payments'] then pay(operation, fence, env['rack.input'].read.force_encoding('UTF-8'))
  when ['PUT', "/operations/#{operation}"]
    env['HTTP_IDEMPOTENCY_RESOLVE'] == 'true' ? close(operation, fence) : [404, {}, []]
  else [404, {}, []]
  end
rescue SQLite3::Exception => e # of a commit too: nobody knows
  forget
  [503, {}, [e.message]]
end)
